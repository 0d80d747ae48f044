// Puts the page together: a change asks for the answer first, and for everything else after it.
import { showAnswer, showRemedies, showTrouble, showLowerBound } from "./answer.js";
import { Refused, ask, begin, progress } from "./api.js";
import { asSvg } from "./chart.js";
import { pin } from "./compare.js";
import { Controls, typed } from "./controls.js";
import { byId, element, save } from "./dom.js";
import { fragment, fromFragment } from "./link.js";
import { PICTURES, without } from "./pictures.js";
import { listen } from "./review.js";

const PAUSE = 20, POLL = 400; // milliseconds
const SUPERSEDED = 409;
const LANES = ["account", ...PICTURES.map(({ id }) => id), "remedies"];

/** @type {Controls} */
let controls;
/** @type {any} */
let answer = null;
let round = 0;
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
  const drawn = new Set(); // pictures that are no draft
  draft(question, (id) => late() || drawn.has(id));
  try {
    const reply = await ask("account", question);
    if (late()) return;
    answer = reply;
    drawn.add("account");
    showTrouble(null);
    showAnswer(answer);
    document.body.dataset.answered = String(mine);
  } catch (error) {
    if (late() || /** @type {Refused} */ (error).status === SUPERSEDED) return;
    round++; // drafts come too late now
    answer = null;
    const message = /** @type {Error} */ (error).message;
    showTrouble(message);
    controls.blame(message);
    for (const picture of PICTURES) without(picture, "");
    for (const id of ["code-python", "code-command", "code-toml"]) byId(id).textContent = "";
    return settle(round);
  }
  byId("lower-bound").textContent = "…";
  const first = answer;
  await Promise.all([
    ...PICTURES.map((picture) =>
      part(picture.question, { ...question, ...picture.more }, picture.id, (reply) => {
        drawn.add(picture.id);
        picture.draw(byId(picture.id), reply, first);
      }, (why) => without(picture, why))),
    part("lower_bound", question, "lower-bound", showLowerBound, (why) => showLowerBound({ says: why })),
    part("remedies", question, "remedies", (reply) => showRemedies(reply.remedies, use), (why) => showRemedies([], use, why)),
    part("code", question, "code", (reply) => {
      for (const name of ["python", "command", "toml"]) byId(`code-${name}`).textContent = reply[name];
    }, (why) => { byId("code-python").textContent = why; }),
  ]);
  settle(mine);

  /**
   * @param {string} kind @param {object} record @param {string} lane
   * @param {(reply: any) => void} show @param {(why: string) => void} fail
   */
  async function part(kind, record, lane, show, fail) {
    try {
      const reply = await ask(kind, record, lane);
      if (!late()) show(reply);
    } catch (error) {
      if (!late() && /** @type {Refused} */ (error).status !== SUPERSEDED) fail(/** @type {Error} */ (error).message);
    }
  }
}

/** Show what can be computed at once, certified too, until the whole answer comes.
 * @param {{run: any, delta: number}} question @param {(id: string) => boolean} late */
function draft(question, late) {
  if (!controls.offer.batches[question.run.batches]?.drafted) return;
  const asked = { ...question, draft: true };
  const drafted = ask("account", asked, "draft");
  drafted.then((reply) => { if (!late("account")) showAnswer(reply); }).catch(() => {});
  for (const picture of PICTURES.filter((one) => one.drafted)) {
    Promise.all([ask(picture.question, { ...asked, ...picture.more }, `draft-${picture.id}`), drafted])
      .then(([reply, sketch]) => { if (!late(picture.id)) picture.draw(byId(picture.id), reply, sketch); })
      .catch(() => {}); // the whole answer says what is wrong
  }
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
    for (const lane of LANES) {
      const reply = await progress(lane).catch(() => null);
      if (reply) {
        shown = reply.share === null ? `${reply.what}…` : `${reply.what}: ${Math.round(100 * reply.share)} %`;
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
  const grid = controls.offer.grids?.find((/** @type {any} */ one) => one.words.examples === words.examples);
  if (grid) controls.restrict(grid.values); // there is no server
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
    const reply = await ask("calibrate", { ...state(), epsilon: typed(input("target-epsilon").value), over });
    const clips = controls.words.unit === "clip";
    if (over === "steps") {
      const forever = reply.steps >= 1e12;
      line.textContent = forever ? "Any number of epochs meets it." : `${reply.epochs_text} epochs (${reply.steps.toLocaleString("en")} steps): ε = ${reply.epsilon_text}`;
      found = forever ? null : { epochs: reply.epochs };
    } else if (over === "release_noise_std") {
      found = { release_noise_std: reply.release_noise_std };
      line.textContent = `noise of ${reply.release_noise_std.toPrecision(6)} on the published model: ε = ${reply.epsilon_text}`;
    } else {
      found = clips ? { noise_multiplier: reply.noise_multiplier } : { noise_std: reply.noise_std };
      const value = clips ? reply.noise_multiplier : reply.noise_std;
      line.textContent = `${clips ? "a noise multiplier" : "noise"} of ${value.toPrecision(6)}: ε = ${reply.epsilon_text}`;
    }
    byId("use-found").hidden = found === null;
  } catch (error) {
    if (/** @type {Refused} */ (error).status !== SUPERSEDED) line.textContent = /** @type {Error} */ (error).message;
  }
}

async function unlearn() {
  const line = byId("unlearning-found");
  line.textContent = "searching…";
  try {
    const reply = await ask("unlearning", { ...state(), epsilon: typed(input("unlearn-epsilon").value), examples: typed(input("unlearn-examples").value) });
    line.textContent = `${reply.extra_steps.toLocaleString("en")} extra steps, ${(100 * reply.share_of_training).toPrecision(3)} % of the training: ε = ${reply.epsilon_text}`;
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
  byId("unlearn").addEventListener("submit", (event) => { event.preventDefault(); unlearn(); });
  byId("use-found").addEventListener("click", () => found && use(found));
  byId("pin").addEventListener("click", () => {
    if (answer) pin({ words: controls.run(), delta: controls.words.delta, reply: answer }, (one) => show(one.words, one.delta));
  });
  byId("copy-link").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      taken(controls.offer.grids ? "Copied." : "Copied. It opens while this server runs.");
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
  presets.addEventListener("change", () => presets.value && show(offer.presets[presets.value], offer.deltas[presets.value]));
  listen((words) => show(words));
  listenToButtons();
  const linked = fromFragment(location.hash);
  show(linked?.run ?? offer.run, typeof linked?.delta === "number" ? linked.delta : offer.delta);
  window.addEventListener("hashchange", () => {
    const other = fromFragment(location.hash);
    if (other?.run) show(other.run, other.delta);
  });
}

start().catch((error) => showTrouble(error.message));
