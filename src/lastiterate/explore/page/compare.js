// Runs that were pinned, side by side.
import { byId, element } from "./dom.js";

/** @typedef {{words: Record<string, any>, delta: number, reply: any}} Pin */

/** @type {Pin[]} */
let pins = [];

/** @param {Pin} pin @param {(pin: Pin) => void} show */
export function pin(pin, show) {
  pins = [...pins, pin];
  draw(show);
}

/** What differs among the pinned runs. @param {Pin} one */
function difference(one) {
  const names = new Set(pins.flatMap((pin) => Object.keys(pin.words)));
  const differing = [...names].filter((name) => new Set(pins.map((pin) => String(pin.words[name]))).size > 1);
  const shown = differing.map((name) => `${name} = ${one.words[name] ?? "none"}`);
  if (new Set(pins.map((pin) => pin.delta)).size > 1) shown.push(`delta = ${one.delta}`);
  return shown.join(", ") || `${one.words.batches}, ${one.words.epochs} epochs`;
}

/** @param {(pin: Pin) => void} show */
function draw(show) {
  const table = byId("pinned");
  table.hidden = pins.length === 0;
  const rows = pins.map((one) => {
    const back = element("button", { type: "button" }, "Show");
    const drop = element("button", { type: "button" }, "Unpin");
    back.addEventListener("click", () => show(one));
    drop.addEventListener("click", () => {
      pins = pins.filter((other) => other !== one);
      draw(show);
      byId("pin").focus();
    });
    return element("tr", {}, element("td", {}, difference(one)), element("td", { class: "number" }, one.reply.epsilon_text), element("td", {}, one.reply.bound), element("td", {}, back, " ", drop));
  });
  table.querySelector("tbody")?.replaceChildren(...rows);
}
