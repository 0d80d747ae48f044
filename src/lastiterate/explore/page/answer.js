// The answer, and what belongs to it.
import { byId, element } from "./dom.js";

/** @param {any} reply */
export function showAnswer(reply) {
  byId("epsilon").textContent = reply.epsilon_text;
  byId("strip").textContent = `ε = ${reply.epsilon_text}`;
  byId("at").textContent = `at δ = ${reply.delta_text} ${reply.if}, ${reply.kind}${reply.draft ? "; other bounds are still computed" : ""}`;
  const warning = byId("warning");
  warning.hidden = reply.warning === null;
  warning.textContent = reply.warning ?? "";
  byId("bound").textContent = reply.bound;
  byId("why").textContent = reply.why;
  const charged = reply.composition;
  let says = "no composition bound applies";
  if (charged) {
    const same = charged.bound === reply.bound;
    says = same ? `the same: ε = ${charged.epsilon_text}` : `ε = ${charged.epsilon_text} for every iterate, ${charged.times} times as much`;
  }
  byId("composition").textContent = says;
  const rows = reply.bounds.map((/** @type {any} */ row) =>
    element("tr", row.id === reply.bound ? { class: "used" } : {},
      element("td", {}, row.id + (row.used ? "" : " *"), element("div", { class: "source" }, row.source)),
      ...[row.epsilon_text, row.mu_text, row.times].map((text) => element("td", { class: "number" }, text))));
  byId("bounds").querySelector("tbody")?.replaceChildren(...rows);
  const unmet = reply.unmet.map((/** @type {any} */ one) =>
    element("li", {}, element("strong", {}, one.bounds.join(", ")), ` needs ${one.needs}; found ${one.found}${one.remedy ? ` → ${one.remedy}` : ""}`));
  byId("unmet").replaceChildren(...(unmet.length ? unmet : [element("li", {}, "All that are about such batches apply.")]));
}

/** @param {any} reply */
export function showLowerBound(reply) {
  byId("lower-bound").textContent = reply.says || "no lower bound is known";
}

/** @param {any[]} remedies @param {(words: Record<string, any>) => void} use @param {string} [why] there are none */
export function showRemedies(remedies, use, why = "None of the small changes that were tried.") {
  const items = remedies.map((one) => {
    const button = element("button", { type: "button" }, `${one.says}: ε = ${one.epsilon_text}`);
    button.addEventListener("click", () => use(one.words));
    return element("li", {}, button);
  });
  byId("remedies").replaceChildren(...(items.length ? items : [element("li", {}, why)]));
}

/** @param {string|null} message */
export function showTrouble(message) {
  const trouble = byId("trouble");
  trouble.hidden = message === null;
  trouble.textContent = message ?? "";
  if (message !== null) {
    byId("epsilon").textContent = "–";
    byId("at").textContent = "";
    byId("warning").hidden = true;
    byId("strip").textContent = "";
    for (const id of ["bound", "lower-bound", "composition", "why"]) byId(id).textContent = id === "why" ? "" : "–";
    byId("remedies").replaceChildren();
  }
}
