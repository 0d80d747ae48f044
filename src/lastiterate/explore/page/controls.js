// The controls of a run: a logarithmic slider and an exact field for every number.
import { element } from "./dom.js";

/**
 * @typedef {object} Field
 * @property {string} name  as the library calls it
 * @property {string} label
 * @property {string} help  in plain words
 * @property {number} [from] @property {number} [to]  ends of the slider
 * @property {boolean} [whole] @property {string} [none]  what leaving it empty means
 * @property {string} [choice]  which of the server's lists it is chosen from
 * @property {(words: Words, offer: any) => boolean} [when]
 */
/** @typedef {Record<string, any>} Words */

const NOTCHES = 400;
const byNorm = (/** @type {Words} */ w, /** @type {any} */ o) => Boolean(o.models[w.model]?.by_feature_norm);
const inClips = (/** @type {Words} */ w) => w.unit === "clip";
const stated = (/** @type {Words} */ w) => w.model === "stated";

/** @type {Record<string, Field[]>} */
export const GROUPS = {
  Data: [
    { name: "examples", label: "Examples", help: "rows of the data set", from: 100, to: 1e8, whole: true },
    { name: "batches", label: "Batches", help: "how each step picks its examples", choice: "batches" },
    { name: "batch_size", label: "Batch size", help: "examples in a batch", from: 1, to: 1e6, whole: true, when: (w, o) => o.batches[w.batches]?.sized !== false },
    { name: "epochs", label: "Epochs", help: "passes over the data", from: 1, to: 1e4 },
  ],
  Training: [
    { name: "step_size", label: "Step size", help: "the learning rate of plain steps; none: every iterate is charged for", from: 1e-4, to: 10, none: "none" },
    { name: "unit", label: "Noise is stated", help: "", choice: "units" },
    { name: "noise_multiplier", label: "Noise multiplier", help: "noise on the summed gradient, in clips", from: 0.1, to: 100, when: inClips },
    { name: "clip_norm", label: "Clip", help: "the norm each example’s gradient is clipped to", from: 0.01, to: 100, when: inClips },
    { name: "noise_std", label: "Noise", help: "standard deviation, on the averaged gradient", from: 1e-6, to: 10, when: (w) => !inClips(w) },
    { name: "sensitivity", label: "Sensitivity", help: "the largest difference of two examples’ gradients", from: 0.01, to: 1000, when: (w) => !inClips(w) },
  ],
  Model: [
    { name: "model", label: "Kind", help: "", choice: "models" },
    { name: "feature_norm", label: "Norm of a row", help: "the largest, with the 1 of an intercept", from: 0.1, to: 100, when: byNorm },
    { name: "regulariser", label: "Penalty", help: "curvature of a penalty added in every step, outside the clip (weight decay)", from: 1e-6, to: 1, none: "0", when: byNorm },
    { name: "smoothness", label: "Smoothness", help: "of every example’s loss, penalty included", from: 1e-3, to: 1e3, none: "unknown", when: stated },
    { name: "strong_convexity", label: "Strong convexity", help: "of every example’s loss", from: 1e-6, to: 1, none: "0", when: stated },
    { name: "lipschitz", label: "Largest gradient", help: "a bound on every gradient’s norm, so that no clip is active", from: 0.01, to: 1e3, none: "unknown", when: stated },
  ],
  Guarantee: [
    { name: "delta", label: "Delta", help: "the chance that is left out of the promise", from: 1e-12, to: 1e-2 },
    { name: "adjacency", label: "One example is", help: "", choice: "adjacencies" },
    { name: "release_noise_std", label: "Noise on release", help: "added once, to the published model", from: 1e-6, to: 1, none: "0" },
    { name: "diameter", label: "Diameter", help: "of a ball that iterates are projected onto", from: 0.01, to: 1e3, none: "no ball" },
    { name: "examples_per_person", label: "Examples per person", help: "who is protected as a whole", from: 1, to: 100, whole: true },
  ],
};
export const FIELDS = Object.values(GROUPS).flat();

/** @param {Field} field @param {number} value @param {number[]} [only] the values that there are */
function notch(field, value, only) {
  if (only) return Math.max(0, only.indexOf(value));
  const share = Math.log(value / field.from) / Math.log(field.to / field.from);
  return Math.round(Math.min(1, Math.max(0, share)) * NOTCHES) + (field.none ? 1 : 0);
}

/** @param {Field} field @param {number} position @param {number[]} [only] @returns {number|undefined} */
function atNotch(field, position, only) {
  if (only) return only[position];
  if (field.none && position === 0) return undefined;
  const share = (position - (field.none ? 1 : 0)) / NOTCHES;
  const value = field.from * (field.to / field.from) ** share;
  return field.whole ? Math.round(value) : Number(value.toPrecision(3));
}

/** What was typed; text that is no number is left to the library to refuse.
 * @param {string} text @returns {number|string|undefined} */
export function typed(text) {
  const bare = text.trim().replaceAll(",", "");
  if (bare === "") return undefined;
  const value = Number(bare);
  return Number.isFinite(value) ? value : text.trim();
}

/** @param {any} value */
const shown = (value) => (value === undefined || value === null ? "" : String(value));

export class Controls {
  /** @param {HTMLElement} home @param {any} offer @param {() => void} changed */
  constructor(home, offer, changed) {
    this.offer = { ...offer, units: { clip: { says: "in clips, as DP-SGD libraries do" }, plain: { says: "with a sensitivity" } } };
    this.changed = changed;
    /** @type {Words} */
    this.words = {};
    /** @type {Record<string, {box: HTMLElement, exact?: HTMLInputElement, slider?: HTMLInputElement, select?: HTMLSelectElement, help: HTMLElement}>} */
    this.parts = {};
    /** @type {Record<string, number[]>|null} */
    this.only = null;
    for (const [name, fields] of Object.entries(GROUPS)) {
      const group = element("fieldset", {}, element("legend", {}, name));
      for (const field of fields) group.append(this.#made(field));
      home.append(group);
    }
  }

  /** @param {Field} field @returns {HTMLElement} */
  #made(field) {
    const help = element("div", { class: "help", id: `help-${field.name}` }, field.help);
    const label = element("label", { for: field.name }, field.label);
    const box = element("div", { class: "control" }, label);
    if (field.choice) {
      const select = /** @type {HTMLSelectElement} */ (element("select", { id: field.name, "aria-describedby": help.id }));
      for (const [value, option] of Object.entries(this.offer[field.choice])) {
        const says = typeof option === "string" ? option : option.name ?? (field.choice === "batches" ? `${value}: ${option.says}` : option.says);
        select.append(element("option", { value }, says));
      }
      select.addEventListener("change", () => this.#set(field, select.value));
      box.append(select, help);
      this.parts[field.name] = { box, select, help };
      return box;
    }
    const exact = /** @type {HTMLInputElement} */ (
      element("input", { id: field.name, inputmode: "decimal", "aria-describedby": help.id, placeholder: field.none ?? "", spellcheck: "false" })
    );
    const top = NOTCHES + (field.none ? 1 : 0);
    const slider = /** @type {HTMLInputElement} */ (
      element("input", { type: "range", min: 0, max: top, step: 1, id: `slide-${field.name}`, "aria-label": `${field.label}, slider` })
    );
    exact.addEventListener("input", () => this.#set(field, typed(exact.value), exact));
    slider.addEventListener("input", () => this.#slid(field, slider));
    box.append(exact, help, slider);
    this.parts[field.name] = { box, exact, slider, help };
    return box;
  }

  /** Whole numbers may be farther apart than notches: one more or less is the least that a move means.
   * @param {Field} field @param {HTMLInputElement} slider */
  #slid(field, slider) {
    const only = this.only?.[field.name], old = this.words[field.name], position = Number(slider.value);
    const value = atNotch(field, position, only);
    if (only || !field.whole || value !== old) return this.#set(field, value, slider);
    this.#set(field, Math.max(field.from, old + Math.sign(position - notch(field, old))));
  }

  /** @param {Field} field @param {any} value @param {HTMLElement} [from] */
  #set(field, value, from) {
    if (value === undefined) delete this.words[field.name];
    else this.words[field.name] = value;
    this.show(from);
    this.changed();
  }

  /** Let nothing move but these words, over these values. @param {Record<string, number[]>} only */
  restrict(only) {
    this.only = only;
    for (const { name } of FIELDS) {
      const { exact, slider, select } = this.parts[name];
      if (select) select.disabled = true;
      if (exact) exact.readOnly = true;
      if (!slider) continue;
      slider.disabled = !only[name];
      if (only[name]) slider.max = String(only[name].length - 1);
    }
  }

  /** Show a run, whatever was shown before.
   * @param {Words} words @param {number} delta */
  begin(words, delta) {
    /** @type {Words} */
    const known = { delta, adjacency: "zero-out", model: "stated", batches: "poisson", examples_per_person: 1, ...words };
    known.unit = words.unit ?? (words.noise_multiplier === undefined && words.clip_norm === undefined ? "plain" : "clip");
    this.words = {};
    for (const { name } of FIELDS) if (known[name] !== undefined && known[name] !== null) this.words[name] = known[name];
    this.show();
  }

  /** @param {HTMLElement} [except] where the user is typing */
  show(except) {
    for (const field of FIELDS) {
      const { box, exact, slider, select, help } = this.parts[field.name];
      const value = this.words[field.name];
      box.hidden = field.when ? !field.when(this.words, this.offer) : false;
      if (select) {
        select.value = shown(value);
        if (field.choice === "models") help.textContent = this.offer.models[value]?.says ?? "";
        continue;
      }
      if (exact !== except) exact.value = shown(value);
      if (slider !== except) slider.value = String(typeof value === "number" && value > 0 ? notch(field, value, this.only?.[field.name]) : 0);
      slider.setAttribute("aria-valuetext", shown(value) || field.none || "empty");
      exact.removeAttribute("aria-invalid");
    }
  }

  /** The words that count, without those of hidden controls. @returns {Words} */
  run() {
    /** @type {Words} */
    const said = {};
    for (const field of FIELDS) {
      const hidden = field.when && !field.when(this.words, this.offer);
      if (!hidden && field.name !== "unit" && field.name !== "delta" && this.words[field.name] !== undefined) {
        said[field.name] = this.words[field.name];
      }
    }
    return said;
  }

  /** Mark the field that an error names. @param {string} message */
  blame(message) {
    const name = message.split(" ", 1)[0];
    this.parts[name]?.exact?.setAttribute("aria-invalid", "true");
  }
}
