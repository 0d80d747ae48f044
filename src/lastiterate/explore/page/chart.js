// Curves as SVG, drawn by hand: logarithmic axes, a legend that is text, a point that can be dragged.
import { drawn, element } from "./dom.js";

const WIDTH = 650, HEIGHT = 400, LEFT = 58, RIGHT = 24, TOP = 12, BOTTOM = 44;
const FARTHEST = 30; // times the best curve's values; beyond it nothing can be compared

/** @typedef {{x: number[], curves: Record<string, (number|string|null)[]>, here?: number, across: string}} Curves */
/** Vertical ones may have a part of the picture. @typedef {{log: boolean, from: number, to: number, top?: number, bottom?: number}} Scale */

/** @param {Scale} s @param {number} v */
const share = (s, v) => (s.log ? Math.log(v / s.from) / Math.log(s.to / s.from) : (v - s.from) / (s.to - s.from));
/** @param {Scale} s @param {number} v */
export const across = (s, v) => LEFT + share(s, v) * (WIDTH - LEFT - RIGHT);
/** @param {Scale} s @param {number} v */
export const upwards = (s, v) => low(s) - share(s, v) * (low(s) - high(s));
/** @param {Scale} s */
const high = (s) => s.top ?? TOP;
/** @param {Scale} s */
const low = (s) => s.bottom ?? HEIGHT - BOTTOM;

/** @param {Scale} s @returns {number[]} */
function ticks(s) {
  if (!s.log) {
    const rough = (s.to - s.from) / (low(s) - high(s) < 200 ? 3 : 5), power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 2.5, 5, 10].find((digit) => digit * power >= rough * 0.999) ?? 10);
    return Array.from({ length: Math.floor((s.to - s.from) / step + 1e-9) + 1 }, (_, i) => s.from + i * step);
  }
  const decades = Math.log10(s.to / s.from);
  const digits = decades > 3 ? [1] : decades > 1.2 ? [1, 3] : [1, 2, 3, 5, 7];
  const found = [];
  for (let power = Math.floor(Math.log10(s.from)); power <= Math.ceil(Math.log10(s.to)); power++) {
    for (const digit of digits) {
      const value = digit * 10 ** power;
      if (value >= s.from * 0.999 && value <= s.to * 1.001) found.push(value);
    }
  }
  return found.length > 1 ? found : [s.from, s.to];
}

/** @param {number} value */
function label(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(0).replace("e+", "e");
  return size >= 1e4 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

/** An empty picture. */
export const canvas = () => drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });

/** Axes, with a grid and words. @param {SVGElement} picture @param {Scale} sx @param {Scale} sy @param {string} below @param {string} beside */
export function axes(picture, sx, sy, below, beside) {
  for (const value of ticks(sx)) {
    const x = across(sx, value);
    picture.append(drawn("path", { class: "grid", d: `M${x} ${high(sy)}V${low(sy)}` }));
    if (below) picture.append(drawn("text", { x, y: low(sy) + 19, "text-anchor": "middle" }, label(value)));
  }
  for (const value of ticks(sy)) {
    const y = upwards(sy, value);
    picture.append(drawn("path", { class: "grid", d: `M${LEFT} ${y}H${WIDTH - RIGHT}` }));
    picture.append(drawn("text", { x: LEFT - 6, y: y + 5, "text-anchor": "end" }, label(value)));
  }
  picture.append(drawn("path", { class: "axis", d: `M${LEFT} ${high(sy)}V${low(sy)}H${WIDTH - RIGHT}` }));
  if (below) picture.append(drawn("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, below));
  picture.append(drawn("text", { x: LEFT + 8, y: high(sy) + 12 }, beside));
}

/** @param {number[]} xs @param {(number|string|null)[]} ys @param {Scale} sx @param {Scale} sy */
export function path(xs, ys, sx, sy) {
  let d = "", pen = "M";
  xs.forEach((x, i) => {
    const y = ys[i];
    if (typeof y !== "number" || y < sy.from || (sy.log && y <= 0)) pen = "M";
    else {
      d += `${pen}${across(sx, x).toFixed(1)} ${upwards(sy, Math.min(y, sy.to * 4)).toFixed(1)}`;
      pen = "L";
    }
  });
  return d;
}

/** The bound that answers first, so that it has the same colour in every picture.
 * @template T @param {Record<string, T>} curves @param {string} best @returns {[string, T][]} */
function inOrder(curves, best) {
  return Object.entries(curves).sort(([a], [b]) => Number(b === best) - Number(a === best));
}

/** @param {string} kind @param {string} name */
export function key(kind, name) {
  const line = drawn("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, drawn("path", { class: `curve ${kind}`, d: "M1 5H25" }));
  return element("span", { class: "key" }, line, name);
}

/**
 * Epsilon by something, one curve for each bound; `answer` is the epsilon where the run is.
 * @param {HTMLElement} home @param {Curves} reply @param {string} below
 * @param {{best: string, target?: number|null, answer?: any, named?: (name: string) => string}} more
 */
export function epsilons(home, reply, below, { best, target = null, answer = null, named = (name) => name }) {
  const numbers = (/** @type {any[]} */ list) => list.filter((v) => typeof v === "number" && v > 0).map(Number);
  const base = numbers([...(reply.curves[best] ?? []), target, answer]);
  const every = numbers([...Object.values(reply.curves).flat(), answer]);
  if (!every.length) return nothing(home, "No bound is finite here.");
  const least = Math.min(...(base.length ? base : every)) / 1.15;
  const most = Math.min(Math.max(...every, least * 2), Math.max(...(base.length ? base : every)) * FARTHEST) * 1.1;
  const sx = { log: true, from: reply.x[0], to: reply.x[reply.x.length - 1] };
  const sy = { log: true, from: Math.min(least, ...every.filter((v) => v * 3 > least)), to: most };
  const picture = canvas();
  axes(picture, sx, sy, below, "epsilon");
  picture.append(drawn("clipPath", { id: `clip-${home.id}` }, drawn("rect", { x: LEFT, y: TOP - 2, width: WIDTH - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM + 4 })));
  const clipped = drawn("g", { "clip-path": `url(#clip-${home.id})` });
  if (target) clipped.append(drawn("path", { class: "here", d: `M${LEFT} ${upwards(sy, target)}H${WIDTH - RIGHT}` }));
  if (reply.here) clipped.append(drawn("path", { class: "here", d: `M${across(sx, reply.here)} ${TOP}V${HEIGHT - BOTTOM}` }));
  const keys = [];
  inOrder(reply.curves, best).forEach(([name, ys], i) => {
    const kind = `c${i % 6}${name === best ? " best" : ""}`;
    const d = path(reply.x, ys, sx, sy);
    if (!d) return;
    clipped.append(drawn("path", { class: `curve ${kind}`, d }));
    keys.push(key(kind, named(name)));
  });
  if (reply.here && typeof answer === "number" && answer > 0) clipped.append(drawn("circle", { class: "point", r: 5, cx: across(sx, reply.here), cy: upwards(sy, answer) }));
  picture.append(clipped);
  picture.setAttribute("aria-label", described(reply, best, below));
  put(home, picture, keys);
}

/** @param {Curves} reply @param {string} best @param {string} below */
function described(reply, best, below) {
  const ys = reply.curves[best] ?? [];
  const ends = [0, reply.x.length - 1].map((i) => `${label(reply.x[i])}: ${typeof ys[i] === "number" ? label(ys[i]) : "none"}`);
  return `Epsilon by ${below}, ${Object.keys(reply.curves).length} curves; of the answer's bound, ${ends.join(", ")}`;
}

/**
 * The attacker's curve with a point on it, at values that are certified: it moves from one to the next.
 * @param {HTMLElement} home @param {any} reply @param {number} chosen @param {(i: number) => void} moved
 */
export function tradeoff(home, reply, chosen, moved) {
  const sx = { log: false, from: 0, to: 0.5 }, sy = { log: false, from: 0, to: 1 };
  const picture = canvas();
  axes(picture, sx, sy, "false-positive rate", "");
  picture.append(drawn("text", { x: LEFT + 8, y: HEIGHT - BOTTOM - 8 }, "least false-negative rate"));
  picture.append(drawn("path", { class: "curve cgrey", d: path([0, 0.5], [1, 0.5], sx, sy) }));
  const keys = [key("cgrey", "nothing learnt")];
  const best = reply.curves[reply.best];
  inOrder(reply.curves, reply.best).forEach(([name, ys], i) => {
    const kind = `c${i % 6}${name === reply.best ? " best" : ""}`;
    picture.append(drawn("path", { class: `curve ${kind}`, d: path(reply.x, /** @type {number[]} */ (ys), sx, sy) }));
    keys.push(key(kind, name));
  });
  picture.setAttribute("role", "group"); // an image may hold no control
  picture.setAttribute("aria-label", "Least false-negative rate of any attacker against the false-positive rate");
  const handle = drawn("circle", { class: "handle", r: 10, tabindex: 0, role: "slider", "aria-label": "False-positive rate of the attacker", "aria-valuemin": 0, "aria-valuemax": 0.5 });
  picture.append(handle);
  const place = (/** @type {number} */ i) => {
    chosen = Math.min(reply.x.length - 1, Math.max(0, i));
    handle.setAttribute("cx", String(across(sx, reply.x[chosen])));
    handle.setAttribute("cy", String(upwards(sy, best[chosen])));
    handle.setAttribute("aria-valuenow", String(reply.x[chosen]));
    handle.setAttribute("aria-valuetext", `false-positive rate ${reply.rounded.false_positives[chosen]}, false-negative rate at least ${reply.rounded.false_negatives[chosen]}`);
    moved(chosen);
  };
  const nearest = (/** @type {PointerEvent} */ event) => {
    const box = picture.getBoundingClientRect();
    const scale = Math.min(box.width / WIDTH, box.height / HEIGHT);
    const x = (event.clientX - box.left - (box.width - WIDTH * scale) / 2) / scale;
    const rate = ((x - LEFT) / (WIDTH - LEFT - RIGHT)) * 0.5;
    let found = 0;
    reply.x.forEach((/** @type {number} */ v, /** @type {number} */ i) => { if (Math.abs(v - rate) < Math.abs(reply.x[found] - rate)) found = i; });
    return found;
  };
  picture.addEventListener("pointerdown", (event) => { picture.setPointerCapture(event.pointerId); place(nearest(event)); });
  picture.addEventListener("pointermove", (event) => { if (event.buttons) place(nearest(event)); });
  handle.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 8, PageDown: -8, Home: -1e6, End: 1e6 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    place(chosen + step);
  });
  put(home, picture, keys);
  place(chosen);
}

/** @param {HTMLElement} home @param {string} why */
export function nothing(home, why) {
  put(home, element("p", { class: "note" }, why), []);
}

/** @param {HTMLElement} home @param {Node} picture @param {Node[]} keys */
export function put(home, picture, keys) {
  const had = home.querySelector(".plot")?.contains(document.activeElement);
  home.querySelector(".plot")?.replaceChildren(picture);
  let legend = home.querySelector(".keys");
  if (!legend) home.querySelector(".rest")?.prepend((legend = element("div", { class: "keys under" })));
  legend?.replaceChildren(...keys);
  if (had) /** @type {SVGElement|null} */ (home.querySelector(".handle"))?.focus();
}

/** The picture as a file: the page's colours written into it. @param {HTMLElement} home @returns {string|null} */
export function asSvg(home) {
  const picture = home.querySelector(".plot > svg");
  if (!picture) return null;
  const copy = /** @type {SVGElement} */ (picture.cloneNode(true));
  const from = [picture, ...picture.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const name of ["stroke", "fill", "stroke-width", "stroke-dasharray", "font-size", "paint-order"]) to[i].setAttribute(name, style.getPropertyValue(name));
    to[i].removeAttribute("class");
  });
  copy.setAttribute("font-family", "sans-serif");
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
}
