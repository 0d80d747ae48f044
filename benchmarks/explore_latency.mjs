// From a slider to the picture, in a real browser: medians of 50 moves, and of page loads.
// node benchmarks/explore_latency.mjs [moves] [kind of batches], with LASTITERATE and CHROMIUM as in `make test-browser`.
import { readFileSync } from "node:fs";
import { browsing, opened } from "../tests/browser/browsing.mjs";

const MOVES = Number(process.argv[2] ?? 50), ONLY = process.argv[3], LOADS = 11, TICKS = 100; // of the clock in /proc, a second
const KINDS = { "fixed order": "cyclic", "shuffled once": "shuffled-once", "shuffled each epoch": "shuffled-each-epoch", "Poisson sampled": "poisson" };

const median = (all) => [...all].sort((a, b) => a - b)[Math.floor(all.length / 2)];
const ms = (value) => `${Math.round(value)} ms`.padStart(9);

/** Seconds of processor time of a process and all its children, those that have ended included. */
function cpu(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").filter(Boolean);
  return fields.slice(11, 15).reduce((sum, one) => sum + Number(one), 0) / TICKS + children.reduce((sum, one) => sum + cpu(one), 0);
}

/** Move the noise by a notch; when the picture first changes, and when the answer and its picture have come. */
const move = (page) => page.evaluate(async () => {
  const slider = document.getElementById("slide-noise_multiplier"), figure = document.querySelector("#by-epochs");
  const began = performance.now(), before = document.body.dataset.answered;
  slider.value = String(Number(slider.value) + (Number(slider.value) > 300 ? -100 : 1));
  let first = 0;
  const whole = new Promise((done) => {
    const seen = new MutationObserver(() => {
      first ||= performance.now() - began;
      if (document.body.dataset.answered === before || !figure.textContent.includes("the answer")) return;
      seen.disconnect();
      done(performance.now() - began);
    });
    seen.observe(figure.querySelector(".plot"), { childList: true });
    seen.observe(figure.querySelector(".rest"), { childList: true, subtree: true });
  });
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  return { whole: await whole, first };
});

const { server, address, browser, end } = await browsing();
const loads = [];
for (let i = 0; i < LOADS; i++) {
  const page = await opened(browser, address);
  loads.push(await page.evaluate(() => {
    const [navigation] = performance.getEntriesByType("navigation");
    const parts = performance.getEntriesByType("resource").filter((one) => /\/page\/|begin/.test(one.name));
    return { loaded: navigation.loadEventEnd, usable: Math.max(...parts.map((one) => one.responseEnd)), bytes: parts.reduce((sum, one) => sum + one.decodedBodySize, navigation.decodedBodySize) };
  }));
  await page.close();
}
console.log(`page load, median of ${LOADS}: ${ms(median(loads.map((one) => one.loaded)))}; usable after ${ms(median(loads.map((one) => one.usable)))}; ${Math.round(loads[0].bytes / 1000)} kB`);
console.log(`slider to picture, medians of ${MOVES}`.padEnd(44), "first".padStart(9), "whole".padStart(9), "server's processor time a move");
const page = await opened(browser, address);
for (const [name, batches] of Object.entries(KINDS)) {
  if (ONLY && batches !== ONLY) continue;
  await page.selectOption("#preset", "Million-row logistic");
  await page.selectOption("#batches", batches);
  await page.waitForFunction(() => !document.body.classList.contains("waiting"));
  await move(page);
  const before = cpu(server.pid), all = [];
  for (let i = 0; i < MOVES; i++) all.push(await move(page));
  const spent = (1000 * (cpu(server.pid) - before)) / MOVES;
  console.log(name.padEnd(44), ms(median(all.map((one) => one.first))), ms(median(all.map((one) => one.whole))), ms(spent));
}
await end();
