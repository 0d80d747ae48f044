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

/** @param {HTMLElement} home @param {string} name @param {any} reply @param {(words: Record<string, any>) => void} use */
function show(home, name, reply, use) {
  const parts = [element("p", {}, element("strong", {}, reply.holds ? `${name} holds.` : `${name} does not hold.`)), ...list("Because", reply.reasons)];
  if (reply.statement) {
    parts.push(element("h3", {}, "For a paper"), element("p", { class: "statement" }, reply.statement));
    parts.push(...list("The guarantee rests on this", reply.assumptions), ...list("Any of these voids it", reply.voided_by), ...list("Not checked", reply.unchecked));
  }
  if (reply.words) {
    const button = element("button", { type: "button" }, "Show this run in the controls");
    button.addEventListener("click", () => use(reply.words));
    parts.push(element("p", {}, button, reply.words_leave_out ? ` ${reply.words_leave_out}` : ""));
  }
  home.replaceChildren(...parts);
}
