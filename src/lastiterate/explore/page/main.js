// Puts the page together: a change asks for the answer first, and for everything else after it.
import { showAnswer, showRemedies, showTrouble, showWitness } from "./answer.js";
import { Refused, ask, begin, progress } from "./api.js";
import { asSvg, epsilons, nothing, tradeoff } from "./chart.js";
import { pin } from "./compare.js";
import { Controls, typed } from "./controls.js";
import { byId, element, save } from "./dom.js";
import { fragment, fromFragment } from "./link.js";
import { listen } from "./review.js";

const PAUSE = 20, POLL = 400; // milliseconds
const SUPERSEDED = 409;
const ACROSS = { epochs: "epochs", noise_multiplier: "noise multiplier", noise_std: "noise on the averaged gradient" };

/** @type {Controls} */
let controls;
/** @type {any} */
let answer = null;
let round = 0, attacker = 20;
/** @type {number|undefined} */
let timer;
/** @type {Record<string, any>|null} */
let found = null;

const input = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (byId(id));
const state = () => ({ run: controls.run(), delta: controls.words.delta });

function changed() {
  clearTimeout(timer);
  timer = setTimeout(refresh, PAUSE);
}

async function refresh() {
  const mine = ++round, question = state();
  const late = () => mine !== round;
  history.replaceState(null, "", location.pathname + location.search + fragment(question));
  document.body.classList.add("waiting");
  watch(mine);
  try {
    answer = await ask("account", question);
    if (late()) return;
    showTrouble(null);
    showAnswer(answer);
  } catch (error) {
    if (late() || /** @type {Refused} */ (error).status === SUPERSEDED) return;
    answer = null;
    const message = /** @type {Error} */ (error).message;
    showTrouble(message);
    controls.blame(message);
    for (const id of ["by-epochs", "attack", "by-noise"]) nothing(byId(id), "");
    for (const id of ["code-python", "code-command", "code-toml", "attacker"]) byId(id).textContent = "";
    return settle(mine);
  }
  const best = answer.bound;
  byId("witness").textContent = "…";
  const parts = [
    part("tradeoff", question, "tradeoff", (told) => tradeoff(byId("attack"), told, attacker, (i) => say(told, i)), () => nothing(byId("attack"), "")),
    part("curve", { ...question, over: "epochs" }, "epochs", (told) => epsilons(byId("by-epochs"), told, best, ACROSS.epochs), (why) => nothing(byId("by-epochs"), why)),
    part("curve", { ...question, over: "noise" }, "noise", (told) => epsilons(byId("by-noise"), told, best, ACROSS[told.across], target()), (why) => nothing(byId("by-noise"), why)),
    part("witness", question, "witness", showWitness, (why) => showWitness({ says: why })),
    part("remedies", question, "remedies", (told) => showRemedies(told.remedies, use), () => showRemedies([], use)),
    part("code", question, "code", (told) => {
      for (const name of ["python", "command", "toml"]) byId(`code-${name}`).textContent = told[name];
    }, (why) => { byId("code-python").textContent = why; }),
  ];
  await Promise.all(parts);
  settle(mine);

  /**
   * @param {string} kind @param {object} record @param {string} lane
   * @param {(told: any) => void} show @param {(why: string) => void} fail
   */
  async function part(kind, record, lane, show, fail) {
    try {
      const told = await ask(kind, record, lane);
      if (!late()) show(told);
    } catch (error) {
      if (!late() && /** @type {Refused} */ (error).status !== SUPERSEDED) fail(/** @type {Error} */ (error).message);
    }
  }
}

/** @param {any} told @param {number} i */
function say(told, i) {
  attacker = i;
  byId("attacker").textContent =
    `An attacker with ${told.told.false_positives[i]} false alarms misses at least ${told.told.false_negatives[i]}; by guessing, ${(1 - told.x[i]).toPrecision(4)}.`;
}

/** @returns {number|null} */
function target() {
  const value = typed(input("target-epsilon").value);
  return typeof value === "number" && value > 0 ? value : null;
}

/** @param {number} mine */
function settle(mine) {
  if (mine !== round) return;
  document.body.classList.remove("waiting");
  byId("status").textContent = "";
  document.body.dataset.settled = String(mine);
}

/** How far long computations are, while they last. @param {number} mine */
async function watch(mine) {
  for (;;) {
    await new Promise((done) => setTimeout(done, POLL));
    if (mine !== round || !document.body.classList.contains("waiting")) return;
    let shown = "computing…";
    for (const lane of ["account", "epochs", "noise", "tradeoff", "remedies"]) {
      const told = await progress(lane).catch(() => null);
      if (told) {
        shown = told.share === null ? `${told.what}…` : `${told.what}: ${Math.round(100 * told.share)} %`;
        break;
      }
    }
    if (mine === round && document.body.classList.contains("waiting")) byId("status").textContent = shown;
  }
}

/** Change some words of the run. @param {Record<string, any>} words */
function use(words) {
  controls.begin({ ...controls.words, ...words }, controls.words.delta);
  changed();
}

/** Show another run. @param {Record<string, any>} words @param {number} [delta] */
function show(words, delta = controls.words.delta) {
  controls.begin(words, delta);
  changed();
}

async function invert() {
  const line = byId("found");
  found = null;
  byId("use-found").hidden = true;
  line.textContent = "searching…";
  const over = input("target-over").value;
  try {
    const told = await ask("calibrate", { ...state(), epsilon: typed(input("target-epsilon").value), over });
    const clips = controls.words.unit === "clip";
    if (over === "steps") {
      const forever = told.steps >= 1e12;
      line.textContent = forever ? "Any number of epochs meets it." : `${told.epochs_text} epochs (${told.steps.toLocaleString("en")} steps): ε = ${told.epsilon_text}`;
      found = forever ? null : { epochs: told.epochs };
    } else if (over === "release_noise_std") {
      found = { release_noise_std: told.release_noise_std };
      line.textContent = `noise of ${told.release_noise_std.toPrecision(6)} on the published model: ε = ${told.epsilon_text}`;
    } else {
      found = clips ? { noise_multiplier: told.noise_multiplier } : { noise_std: told.noise_std };
      const value = clips ? told.noise_multiplier : told.noise_std;
      line.textContent = `${clips ? "a noise multiplier" : "noise"} of ${value.toPrecision(6)}: ε = ${told.epsilon_text}`;
    }
    byId("use-found").hidden = found === null;
  } catch (error) {
    if (/** @type {Refused} */ (error).status !== SUPERSEDED) line.textContent = /** @type {Error} */ (error).message;
  }
}

/** @param {string} text */
function taken(text) {
  byId("taken").textContent = text;
}

function listenToButtons() {
  byId("run").addEventListener("submit", (event) => event.preventDefault());
  byId("target").addEventListener("submit", (event) => { event.preventDefault(); invert(); });
  byId("use-found").addEventListener("click", () => found && use(found));
  byId("pin").addEventListener("click", () => {
    if (answer) pin({ words: controls.run(), delta: controls.words.delta, told: answer }, (one) => show(one.words, one.delta));
  });
  byId("copy-link").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      taken("Copied. It opens while this server runs.");
    } catch {
      taken("Copy the address of this page: it holds the run.");
    }
  });
  byId("save-report").addEventListener("click", async () => {
    taken("writing the report…");
    try {
      save((await ask("report", state())).html, "privacy-report.html", "text/html");
      taken("Saved as privacy-report.html.");
    } catch (error) {
      taken(/** @type {Error} */ (error).message);
    }
  });
  for (const button of document.querySelectorAll("button.save-svg")) {
    button.addEventListener("click", () => {
      const name = /** @type {HTMLElement} */ (button).dataset.figure ?? "";
      const text = asSvg(byId(name));
      if (text) save(text, `${name}.svg`, "image/svg+xml");
      taken(text ? `Saved as ${name}.svg.` : "There is no picture yet.");
    });
  }
}

async function start() {
  const offer = await begin();
  controls = new Controls(byId("controls"), offer, changed);
  const presets = /** @type {HTMLSelectElement} */ (byId("preset"));
  presets.append(element("option", { value: "" }, "a preset…"), ...Object.keys(offer.presets).map((name) => element("option", { value: name }, name)));
  presets.addEventListener("change", () => presets.value && show(offer.presets[presets.value], offer.delta));
  listen((words) => show(words));
  listenToButtons();
  const linked = fromFragment(location.hash);
  controls.begin(linked?.run ?? offer.run, typeof linked?.delta === "number" ? linked.delta : offer.delta);
  window.addEventListener("hashchange", () => {
    const other = fromFragment(location.hash);
    if (other?.run) show(other.run, other.delta);
  });
  await refresh();
}

start().catch((error) => showTrouble(error.message));
