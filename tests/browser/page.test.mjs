// The page in a real browser: `make test-browser` says what it needs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { FIRST_EPSILON, answered, browsing, hashOf, linked, looksRight, opened, python, settled } from "./browsing.mjs";

const PICTURES = ["by-epochs", "by-noise", "attack", "plan", "unlearning"];
const MARKUP = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>";
const CERTIFICATE = `
import json
import numpy as np
from lastiterate.linear_model import PrivateLogisticRegression
X = np.random.default_rng(0).normal(size=(200, 3))
model = PrivateLogisticRegression(batches="cyclic", batch_size=50, epochs=2)
print(json.dumps(model.fit(X, X[:, 0] > 0).certificate_))
`;
const RUNS = `
import json, sys
import numpy as np
sys.path.insert(0, ".")
from tests.explore.random_runs import random_words
import lastiterate as li
from lastiterate._display import up
from lastiterate.explore.page_runs import run_from_page
rng, told = np.random.default_rng(21), []
for i in range(20):
    words = random_words(rng) | ({"batches": "shuffled-once", "batch_size": 100, "examples": 5000} if i % 10 == 9 else {})
    delta = float(10 ** rng.uniform(-9, -3))
    report = li.account(run_from_page(words))
    told.append({"run": words, "delta": delta, "epsilon": up(report.epsilon(delta)), "bound": report.bound_at(delta)})
print(json.dumps(told))
`;

let browser, address, end, page;

before(async () => {
  ({ browser, address, end } = await browsing());
  page = await opened(browser, address);
});
after(async () => {
  assert.deepEqual(page.wrong, []);
  await end();
});

const epsilon = async () => Number(await page.textContent("#epsilon"));
const preset = (name) => page.selectOption("#preset", name);
/** Back to the first run, as if nothing had happened. */
const anew = () => settled(page, async () => { await preset("Opacus defaults"); await preset("Million-row logistic"); });

test("the first load is small, and quick to begin", async () => {
  const other = await browser.newPage();
  const bodies = [];
  other.on("response", (response) => { bodies.push(response.body().catch(() => Buffer.of())); });
  await other.goto(address);
  await other.waitForSelector("body[data-settled]");
  const bytes = (await Promise.all(bodies)).reduce((sum, body) => sum + body.length, 0);
  assert.ok(bytes > 10_000 && bytes < 300_000, `${bytes} bytes`);
  await other.close();
});

test("a slider moves the number, the exact field, every picture and the link", async () => {
  const first = await epsilon(), link = page.url();
  const drawn = () => Promise.all(PICTURES.map((id) => page.innerHTML(`#${id} .plot`)));
  const pictures = await drawn();
  for (const picture of pictures) assert.match(picture, /<svg.*<path class="curve/s);
  await settled(page, async () => {
    await page.focus("#slide-noise_multiplier");
    for (let i = 0; i < 20; i++) await page.keyboard.press("ArrowRight");
  });
  assert.ok((await epsilon()) < first);
  assert.ok(Number(await page.inputValue("#noise_multiplier")) > 4);
  const later = await drawn();
  PICTURES.forEach((id, i) => { if (id !== "plan") assert.notEqual(later[i], pictures[i], id); });
  assert.notEqual(page.url(), link);
  await settled(page, () => page.fill("#epochs", "12"));
  assert.notEqual((await drawn())[3], pictures[3]); // noise alone does not change a plan in arrivals
});

test("every control says something of the run", async () => {
  await anew();
  const begins = { clip: "Million-row logistic", plain: "MNIST softmax" };
  const seen = new Set();
  for (const [unit, name] of Object.entries(begins)) {
    await answered(page, () => preset(name));
    if (unit === "plain") await answered(page, () => page.selectOption("#batches", "cyclic"));
    for (const slider of await page.$$("#controls input[type=range]:visible")) {
      const id = (await slider.getAttribute("id")).slice("slide-".length);
      const said = () => (id === "delta" ? linked(page).delta : linked(page).run[id]);
      const old = said(), typed = Number((Number((await page.inputValue(`#${id}`)) || 0.5) * 2).toPrecision(3));
      const change = async (act) => {
        const link = page.url();
        await act();
        await page.waitForFunction((was) => location.href !== was, link);
      };
      await change(() => page.fill(`#${id}`, String(typed)));
      assert.equal(said(), typed, id);
      const where = await slider.inputValue();
      await change(async () => { await slider.focus(); await page.keyboard.press("ArrowLeft"); });
      assert.notEqual(await slider.inputValue(), where, id);
      assert.ok(said() < typed, id);
      if (said() !== old) await change(() => page.fill(`#${id}`, old === undefined ? "" : String(old)));
      assert.equal(said(), old, id);
      seen.add(id);
    }
  }
  for (const id of ["batches", "unit", "model", "adjacency"]) {
    for (const value of await page.$$eval(`#${id} option`, (options) => options.map((one) => one.value))) {
      await page.selectOption(`#${id}`, value);
      await page.waitForFunction(([name, chosen]) => {
        const bytes = atob(location.hash.slice(5).replaceAll("-", "+").replaceAll("_", "/"));
        const run = JSON.parse(bytes).run;
        return name === "unit" ? (chosen === "clip") === !("noise_std" in run) : run[name] === chosen;
      }, [id, value]);
    }
    seen.add(id);
  }
  const every = await page.$$eval("#controls input[type=range], #controls select", (all) => all.map((one) => one.id.replace("slide-", "")));
  assert.deepEqual(every.filter((id) => !seen.has(id) && id !== "feature_norm" && id !== "regulariser"), []);
  assert.ok(seen.has("feature_norm") && seen.has("regulariser") && seen.has("lipschitz"));
});

test("what is wrong is said in the library's words, at its field", async () => {
  await anew();
  await settled(page, () => page.fill("#step_size", "-1"));
  assert.match(await page.textContent("#trouble"), /^step_size must be/);
  assert.equal(await page.getAttribute("#step_size", "aria-invalid"), "true");
  assert.equal(await page.textContent("#epsilon"), "–");
  assert.equal((await page.$$(".plot > svg")).length, 0);
  await settled(page, () => page.fill("#step_size", "0.5"));
  assert.ok(await page.isHidden("#trouble"));
});

test("a delta that is not below one over the examples is warned of", async () => {
  await anew();
  assert.ok(linked(page).delta * linked(page).run.examples < 1);
  assert.ok(await page.isHidden("#warning"));
  await settled(page, () => page.fill("#delta", "1e-5"));
  assert.match(await page.textContent("#warning"), /is not below 1\/examples/);
  await anew();
  assert.ok(await page.isHidden("#warning"));
});

test("an attacker's point moves by mouse and by keyboard", async () => {
  const said = () => page.textContent("#attacker");
  const first = await said();
  await page.focus(".handle");
  await page.keyboard.press("End");
  assert.notEqual(await said(), first);
  assert.match(await said(), /false-positive rate 0\.5/);
  await page.locator("#attack .plot").scrollIntoViewIfNeeded();
  const box = await page.locator("#attack .plot").boundingBox();
  await page.mouse.move(box.x + box.width * 0.9, box.y + box.height * 0.5);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.3, box.y + box.height * 0.5, { steps: 5 });
  await page.mouse.up();
  assert.doesNotMatch(await said(), /false-positive rate 0\.5/);
});

test("the inverse question and its use, a remedy, pins and unlearning", async () => {
  await page.click("#pin");
  for (const [over, unit, aim] of [["steps", "epochs", "1.3"], ["release_noise_std", "published model", "0.5"], ["noise_std", "noise multiplier", "0.5"]]) {
    await page.fill("#target-epsilon", aim);
    await page.selectOption("#target-over", over);
    await page.click("#target button");
    await page.waitForFunction((word) => document.getElementById("found").textContent.includes(word), unit);
  }
  await settled(page, () => page.click("#use-found"));
  assert.equal(await page.textContent("#epsilon"), "0.5000");
  await page.click("#pin");
  assert.equal((await page.$$("#pinned tbody tr")).length, 2);
  assert.match(await page.textContent("#pinned tbody"), /noise_multiplier = 4/);
  const promised = (await page.textContent("#remedies button")).split("ε = ")[1];
  await settled(page, () => page.click("#remedies button"));
  assert.equal(await page.textContent("#epsilon"), promised);
  await settled(page, () => page.click("#pinned tbody tr:first-child button"));
  assert.equal(linked(page).run.noise_multiplier, 4);
  await page.click("#pinned tbody tr:first-child button:last-child");
  assert.equal((await page.$$("#pinned tbody tr")).length, 1);
  await page.click("#unlearn button");
  await page.waitForFunction(() => /extra steps, .* % of the training: ε = 0\.[01]/.test(document.getElementById("unlearning-found").textContent));
});

test("what is taken away: five pictures, a report, a link, code", async () => {
  for (const id of PICTURES) {
    const [download] = await Promise.all([page.waitForEvent("download"), page.click(`button[data-figure=${id}]`)]);
    const text = readFileSync(await download.path(), "utf8");
    assert.equal(download.suggestedFilename(), `${id}.svg`);
    assert.match(text, /^<svg[^>]*xmlns="http:\/\/www\.w3\.org\/2000\/svg"/);
    assert.doesNotMatch(text, /class=|var\(/);
  }
  const [report] = await Promise.all([page.waitForEvent("download"), page.click("#save-report")]);
  assert.match(readFileSync(await report.path(), "utf8"), /<!DOCTYPE html>/i);
  const link = new URL(page.url()).hash, shown = await page.textContent("#epsilon");
  await answered(page, () => page.fill("#epochs", "3"));
  assert.match(await page.textContent("#code-toml"), /epochs = /);
  await answered(page, () => page.evaluate((hash) => { location.hash = hash; }, link));
  assert.equal(await page.textContent("#epsilon"), shown);
  await page.evaluate(() => { location.hash = "#run=nonsense"; });
  assert.equal(await page.textContent("#epsilon"), shown);
});

test("a certificate that is dropped is judged, and its run is shown", async () => {
  const text = python(CERTIFICATE);
  const transfer = await page.evaluateHandle((content) => {
    const data = new DataTransfer();
    data.items.add(new File([content], "certificate.json", { type: "application/json" }));
    return data;
  }, text);
  await page.dispatchEvent("#drop", "dragover", { dataTransfer: transfer });
  assert.ok(await page.$eval("#drop", (one) => one.classList.contains("over")));
  await page.dispatchEvent("#drop", "drop", { dataTransfer: transfer });
  await page.waitForSelector("#verdict button");
  assert.match(await page.textContent("#verdict"), /certificate\.json holds\..*For a paper/s);
  await answered(page, () => page.click("#verdict button"));
  assert.equal(linked(page).run.examples, 200);
});

test("a certificate with markup is shown as text, and nothing of it runs", async () => {
  const certificate = JSON.stringify({ format: MARKUP, run: { [MARKUP]: MARKUP }, guarantee: MARKUP, digest: MARKUP });
  await page.setInputFiles("#certificate", { name: `${MARKUP}.json`, mimeType: "application/json", buffer: Buffer.from(certificate) });
  await page.waitForFunction(() => document.getElementById("verdict").textContent.includes("does not hold"));
  assert.equal((await page.$$("#verdict img, #verdict script")).length, 0);
  await answered(page, async () => {
    await page.evaluate((hash) => { location.hash = hash; }, hashOf({ run: { ...linked(page).run, batches: MARKUP }, delta: 1e-5 }));
    await page.waitForSelector("#trouble:visible");
    await preset("Million-row logistic");
  });
  assert.doesNotMatch(await page.title(), /^run$/);
});

test("20 runs: the page's numbers are those of li.account", async () => {
  for (const { run, delta, epsilon: expected, bound } of python(RUNS)) {
    await answered(page, () => page.evaluate((hash) => { location.hash = hash; }, hashOf({ run, delta })));
    assert.equal(await page.textContent("#epsilon"), expected, JSON.stringify(run));
    assert.equal(await page.textContent("#bound"), bound, JSON.stringify(run));
  }
});

test("a draft is shown, and said to be one, until the whole answer comes", async () => {
  let free;
  const held = new Promise((done) => { free = done; });
  await page.route("**/api/account", async (route) => {
    if (!route.request().postDataJSON().draft) await held;
    await route.continue();
  });
  await preset("MNIST softmax");
  await page.waitForFunction(() => document.getElementById("at").textContent.includes("still computed"));
  await page.waitForFunction(() => document.querySelector("#by-epochs .plot > svg") && !document.querySelector("#by-epochs .keys").textContent.includes("the answer"));
  const draft = await epsilon();
  await answered(page, () => free());
  assert.ok((await epsilon()) <= draft);
  assert.doesNotMatch(await page.textContent("#at"), /still computed/);
  await page.unroute("**/api/account");
});

test("sampled batches show progress, and what they compute is left when it is superseded", async () => {
  await preset("Opacus defaults");
  await page.waitForFunction(() => /\d %|…/.test(document.getElementById("status").textContent));
  await settled(page, () => preset("Million-row logistic"));
  assert.equal(await page.textContent("#epsilon"), python(FIRST_EPSILON));
  assert.equal(await page.textContent("#status"), "");
});

test("everything is reached, and works, by the keyboard alone", async () => {
  await page.reload();
  await page.waitForSelector("body[data-settled]");
  await page.evaluate(() => document.body.focus());
  const reached = new Set();
  const name = () => page.evaluate(() => { const one = document.activeElement; return one.id || one.getAttribute("data-figure") || one.className?.baseVal || one.textContent.slice(0, 30); });
  for (let i = 0; i < 120; i++) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(() => document.activeElement === document.body)) break;
    const where = await name();
    reached.add(where);
    assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), "none", where);
  }
  const every = await page.$$eval("button, input:not([type=file]), select, summary, a[href], [tabindex='0']", (all) => all.filter((one) => one.checkVisibility()).map((one) => one.id || one.getAttribute("data-figure") || one.className?.baseVal || one.textContent.slice(0, 30)));
  assert.deepEqual(every.filter((one) => !reached.has(one)), []);
  await page.focus("#pin");
  await page.keyboard.press("Space");
  assert.equal((await page.$$("#pinned tbody tr")).length, 1);
  await settled(page, async () => { await page.focus("#preset"); await page.keyboard.press("h"); });
  assert.equal(linked(page).run.examples, 25_000);
});

for (const [width, scheme] of [[360, "light"], [360, "dark"], [1600, "light"], [1280, "dark"]]) {
  test(`${width} pixels, ${scheme}: nothing sticks out, nothing serious for axe`, async () => {
    const other = await opened(browser, address, { viewport: { width, height: 800 }, colorScheme: scheme, bypassCSP: true });
    if (process.env.SHOTS) await other.screenshot({ path: `${process.env.SHOTS}/${width}-${scheme}.png`, fullPage: true });
    await looksRight(other);
    const [ground] = await other.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/));
    assert.equal(Number(ground) < 128, scheme === "dark");
    await other.close();
  });
}
