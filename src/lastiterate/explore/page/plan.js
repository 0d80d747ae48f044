// The payment plan: the distance between two runs above, what is paid of it below, and who hides how much.
import { across, axes, canvas, key, path, put, upwards } from "./chart.js";
import { byId, drawn, element } from "./dom.js";

const SPLIT = 190, FAINTEST = 1e-3; // of an arrival, unless everything is less

/** @param {HTMLElement} home @param {any} told */
export function plan(home, told) {
  const positive = (/** @type {number[]} */ list) => list.filter((v) => v > 0);
  const sx = { log: false, from: 0, to: told.x[told.x.length - 1] };
  const distance = { log: false, from: 0, to: Math.max(...told.distance, 1) * 1.15, bottom: SPLIT - 14 };
  const paid = { log: true, from: Math.min(FAINTEST, Math.max(...told.paid) / 30), to: 4, top: SPLIT };
  paid.from = Math.max(paid.from, Math.min(...positive(told.paid)) / 2);
  const picture = canvas();
  axes(picture, sx, distance, "", "distance between two runs");
  axes(picture, sx, paid, "step", "paid in a step");
  const begins = [0, ...told.x.slice(0, -1)], foot = upwards(paid, paid.from);
  told.arrived.forEach((/** @type {number} */ one, /** @type {number} */ i) => {
    if (one > paid.from) picture.append(drawn("path", { class: "seen", d: `M${across(sx, begins[i] + 1)} ${foot}V${upwards(paid, one)}` }));
  });
  picture.append(drawn("path", { class: "curve c0", d: path(told.x, told.distance, sx, distance) }));
  picture.append(drawn("path", { class: "curve c1", d: path(told.x, told.paid, sx, paid) }));
  picture.setAttribute("aria-label", told.says);
  put(home, picture, [key("c0", "distance"), key("c1", "paid: what noise hides"), key("seen", "the example is seen")]);
  byId("plan-says").textContent = told.says;
  byId("who").replaceChildren(...told.who.map((/** @type {any} */ one) =>
    element("li", {}, element("label", {}, element("meter", { min: 0, max: 1, value: one.share }), ` ${one.share_text} of mu²: ${one.who}`))));
}
