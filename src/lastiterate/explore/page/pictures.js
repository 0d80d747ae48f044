// Which question each picture asks, and how the answer is drawn.
import { epsilons, nothing, tradeoff } from "./chart.js";
import { typed } from "./controls.js";
import { byId } from "./dom.js";
import { plan } from "./plan.js";

/**
 * @typedef {object} Picture
 * @property {string} id  of its figure, and of its lane
 * @property {string} question
 * @property {object} more  that is asked
 * @property {boolean} drafted  whether something can be shown at once
 * @property {(home: HTMLElement, reply: any, answer: any) => void} draw
 * @property {string[]} words  elements that are empty where there is no picture
 */

const ACROSS = { epochs: "epochs", noise_multiplier: "noise multiplier", noise_std: "noise on the averaged gradient" };
const REMOVED = "removed examples";
let attacker = 20;

/** What was typed as an epsilon. @param {string} id @returns {number|null} */
export function target(id) {
  const value = typed(/** @type {HTMLInputElement} */ (byId(id)).value);
  return typeof value === "number" && value > 0 ? value : null;
}

/** @param {HTMLElement} home @param {any} reply @param {any} answer @param {number|null} [aim] */
function byBound(home, reply, answer, aim = null) {
  const named = (/** @type {string} */ name) => (name === answer.bound && !answer.draft ? `${name} (the answer)` : name);
  epsilons(home, reply, ACROSS[reply.across], { best: answer.bound, target: aim, answer: answer.epsilon, named });
}

/** @param {any} reply @param {number} i */
function say(reply, i) {
  attacker = i;
  const [positives, negatives] = [reply.rounded.false_positives[i], reply.rounded.false_negatives[i]];
  byId("attacker").textContent = `An attacker with false-positive rate ${positives} has a false-negative rate of at least ${negatives}; by guessing, ${(1 - reply.x[i]).toPrecision(4)}.`;
}

/** @type {Picture[]} */
export const PICTURES = [
  { id: "by-epochs", question: "curve", more: { over: "epochs" }, drafted: true, words: [], draw: byBound },
  { id: "by-noise", question: "curve", more: { over: "noise" }, drafted: true, words: [], draw: (home, reply, answer) => byBound(home, reply, answer, target("target-epsilon")) },
  { id: "attack", question: "tradeoff", more: {}, drafted: true, words: ["attacker"], draw: (home, reply) => tradeoff(home, reply, attacker, (i) => say(reply, i)) },
  { id: "plan", question: "plan", more: {}, drafted: false, words: ["plan-says", "noise-shares"], draw: plan },
  { id: "unlearning", question: "curve", more: { over: "extra_steps" }, drafted: false, words: [], draw: (home, reply) => epsilons(home, reply, "extra steps", { best: REMOVED, target: target("unlearn-epsilon") }) },
];

/** @param {Picture} picture @param {string} why */
export function without(picture, why) {
  nothing(byId(picture.id), why);
  for (const id of picture.words) byId(id).textContent = "";
}
