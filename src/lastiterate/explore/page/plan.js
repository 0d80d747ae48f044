// The shift schedule: the distance between two runs above, each step's shift below, and the noise that hides it.
import { across, axes, canvas, key, path, put, upwards } from "./chart.js";
import { byId, drawn, element } from "./dom.js";

const SPLIT = 190, FAINTEST = 1e-3; // of one per-step sensitivity, unless everything is less

/** @param {HTMLElement} home @param {any} reply */
export function plan(home, reply) {
  const positive = (/** @type {number[]} */ list) => list.filter((v) => v > 0);
  const sx = { log: false, from: 0, to: reply.x[reply.x.length - 1] };
  const distance = { log: false, from: 0, to: Math.max(...reply.distance, 1) * 1.15, bottom: SPLIT - 14 };
  const shifts = { log: true, from: Math.min(FAINTEST, Math.max(...reply.shift) / 30), to: 4, top: SPLIT };
  shifts.from = Math.max(shifts.from, Math.min(...positive(reply.shift)) / 2);
  const picture = canvas();
  axes(picture, sx, distance, "", "distance between two runs");
  axes(picture, sx, shifts, "step", "shift in each step");
  const begins = [0, ...reply.x.slice(0, -1)], foot = upwards(shifts, shifts.from);
  reply.sensitivity.forEach((/** @type {number} */ one, /** @type {number} */ i) => {
    if (one > shifts.from) picture.append(drawn("path", { class: "seen", d: `M${across(sx, begins[i] + 1)} ${foot}V${upwards(shifts, one)}` }));
  });
  picture.append(drawn("path", { class: "curve c0", d: path(reply.x, reply.distance, sx, distance) }));
  picture.append(drawn("path", { class: "curve c1", d: path(reply.x, reply.shift, sx, shifts) }));
  picture.setAttribute("aria-label", reply.says);
  put(home, picture, [key("c0", "distance"), key("c1", "shift, hidden by noise"), key("seen", "the example participates")]);
  byId("plan-says").textContent = reply.says;
  byId("noise-shares").replaceChildren(...reply.noise_shares.map((/** @type {any} */ one) =>
    element("li", {}, element("label", {}, element("meter", { min: 0, max: 1, value: one.share }), ` ${one.share_text} of mu²: ${one.noise}`))));
}
