// A certificate that is dropped or chosen: the verdict, every word of it as text.
import { ask } from "./api.js";
import { byId, element } from "./dom.js";

const LARGEST = 900_000;

/** @param {(words: Record<string, any>) => void} use */
export function listen(use) {
  const drop = byId("drop"), input = /** @type {HTMLInputElement} */ (byId("certificate"));
  input.addEventListener("change", () => input.files?.[0] && judge(input.files[0], use));
  for (const name of ["dragenter", "dragover"]) {
    drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  }
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    const file = /** @type {DragEvent} */ (event).dataTransfer?.files[0];
    if (file) judge(file, use);
  });
}

/** @param {File} file @param {(words: Record<string, any>) => void} use */
async function judge(file, use) {
  const verdict = byId("verdict");
  if (file.size > LARGEST) return say(verdict, "This file is too large to be a certificate.");
  verdict.replaceChildren(element("p", {}, "Deriving it again…"));
  try {
    show(verdict, file.name, await ask("verify", { certificate: await file.text() }), use);
  } catch (error) {
    say(verdict, /** @type {Error} */ (error).message);
  }
}

/** @param {HTMLElement} home @param {string} text */
function say(home, text) {
  home.replaceChildren(element("p", { class: "trouble" }, text));
}

/** @param {string} title @param {string[]} lines */
function list(title, lines) {
  return lines?.length ? [element("h3", {}, title), element("ul", {}, ...lines.map((line) => element("li", {}, line)))] : [];
}

/** @param {HTMLElement} home @param {string} name @param {any} told @param {(words: Record<string, any>) => void} use */
function show(home, name, told, use) {
  const parts = [element("p", {}, element("strong", {}, told.holds ? `${name} holds.` : `${name} does not hold.`)), ...list("Because", told.reasons)];
  if (told.statement) {
    parts.push(element("h3", {}, "For a paper"), element("p", { class: "statement" }, told.statement));
    parts.push(...list("The guarantee rests on this", told.assumptions), ...list("Any of these voids it", told.voided_by), ...list("Not checked", told.unchecked));
  }
  if (told.words) {
    const button = element("button", { type: "button" }, "Show this run in the controls");
    button.addEventListener("click", () => use(told.words));
    parts.push(element("p", {}, button, told.words_leave_out ? ` ${told.words_leave_out}` : ""));
  }
  home.replaceChildren(...parts);
}
