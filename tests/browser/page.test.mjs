// The page in a real browser: `make test-browser` says what it needs.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

const COMMAND = process.env.LASTITERATE ?? "lastiterate";
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const WAIT = 120_000;

let server, address, browser;

before(async () => {
  server = spawn(COMMAND, ["explore", "--no-browser"], { stdio: ["ignore", "pipe", "inherit"] });
  address = await new Promise((found, failed) => {
    let said = "";
    server.stdout.on("data", (part) => {
      said += part;
      const match = said.match(/http:\S+/);
      if (match) found(match[0]);
    });
    server.on("exit", () => failed(new Error("the server ended")));
  });
  browser = await chromium.launch({ executablePath: CHROMIUM, args: QUIET });
});

after(async () => {
  await browser?.close();
  server?.kill("SIGINT");
});

/** A page whose first answer has come, and what went wrong on it. */
async function opened(options = {}, hash = "") {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
  page.setDefaultTimeout(WAIT);
  page.wrong = [];
  page.outside = [];
  page.on("pageerror", (error) => page.wrong.push(error.message));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== new URL(address).origin && url.protocol !== "blob:") page.outside.push(request.url());
  });
  await page.goto(address + hash);
  await page.waitForSelector("body[data-settled]");
  return page;
}

/** Wait until everything that a change asked for has come. */
async function settled(page, act) {
  const before = await page.getAttribute("body", "data-settled");
  await act();
  await page.waitForFunction((old) => document.body.dataset.settled !== old && !document.body.classList.contains("waiting"), before);
}

const epsilon = async (page) => Number(await page.textContent("#epsilon"));

test("a slider moves the number, the exact field, the pictures and the link", async () => {
  const page = await opened();
  const first = await epsilon(page), picture = await page.innerHTML("#by-epochs .plot"), link = page.url();
  await settled(page, async () => {
    await page.focus("#slide-noise_multiplier");
    for (let i = 0; i < 20; i++) await page.keyboard.press("ArrowRight");
  });
  assert.ok((await epsilon(page)) < first);
  assert.ok(Number(await page.inputValue("#noise_multiplier")) > 4);
  assert.notEqual(await page.innerHTML("#by-epochs .plot"), picture);
  assert.notEqual(page.url(), link);
  assert.equal((await page.$$(".plot > svg")).length, 3);
  const again = await opened({}, new URL(page.url()).hash);
  assert.equal(await page.textContent("#epsilon"), await again.textContent("#epsilon"));
  assert.deepEqual([...page.wrong, ...page.outside], []);
  await again.close();
  await page.close();
});

test("what is wrong is said in the library's words, at its field", async () => {
  const page = await opened();
  await settled(page, () => page.fill("#step_size", "-1"));
  assert.match(await page.textContent("#trouble"), /^step_size must be/);
  assert.equal(await page.getAttribute("#step_size", "aria-invalid"), "true");
  assert.equal(await page.textContent("#epsilon"), "–");
  await settled(page, () => page.fill("#step_size", "0.5"));
  assert.ok(await page.isHidden("#trouble"));
  await page.close();
});

test("an attacker's point moves by mouse and by keyboard", async () => {
  const page = await opened();
  const said = () => page.textContent("#attacker");
  const first = await said();
  await page.focus(".handle");
  await page.keyboard.press("End");
  assert.notEqual(await said(), first);
  assert.match(await said(), /0\.5 false alarms/);
  const box = await (await page.$("#attack .plot")).boundingBox();
  await page.mouse.move(box.x + box.width * 0.9, box.y + box.height * 0.5);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.3, box.y + box.height * 0.5, { steps: 5 });
  await page.mouse.up();
  assert.doesNotMatch(await said(), /0\.5 false alarms/);
  await page.close();
});

test("the inverse question, its use, and pins", async () => {
  const page = await opened();
  await page.click("#pin");
  await page.fill("#target-epsilon", "0.5");
  await page.click("#target button");
  await page.waitForSelector("#use-found:visible");
  await settled(page, () => page.click("#use-found"));
  assert.equal(await page.textContent("#epsilon"), "0.5000");
  await page.click("#pin");
  assert.equal((await page.$$("#pinned tbody tr")).length, 2);
  assert.match(await page.textContent("#pinned tbody"), /noise_multiplier = 4/);
  await page.close();
});

test("a certificate with markup is shown as text, and nothing of it runs", async () => {
  const page = await opened();
  const markup = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>";
  const certificate = JSON.stringify({ format: markup, run: { [markup]: markup }, guarantee: markup, digest: markup });
  await page.setInputFiles("#certificate", { name: `${markup}.json`, mimeType: "application/json", buffer: Buffer.from(certificate) });
  await page.waitForSelector("#verdict li");
  assert.match(await page.textContent("#verdict"), /does not hold/);
  assert.equal((await page.$$("#verdict img, #verdict script")).length, 0);
  assert.doesNotMatch(await page.title(), /^run$/);
  await page.close();
});

for (const [width, scheme] of [[360, "light"], [360, "dark"], [1600, "light"], [1280, "dark"]]) {
  test(`${width} pixels, ${scheme}: nothing sticks out, nothing serious for axe`, async () => {
    const page = await opened({ viewport: { width, height: 800 }, colorScheme: scheme, bypassCSP: true });
    if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/${width}-${scheme}.png`, fullPage: true });
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width);
    await page.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = true)));
    await page.evaluate(readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8"));
    const found = await page.evaluate(async () => (await axe.run()).violations.map((one) => `${one.impact} ${one.id}: ${one.nodes.map((node) => node.target).slice(0, 4).join(" | ")}`));
    assert.deepEqual(found.filter((line) => /^(serious|critical)/.test(line)), []);
    await page.close();
  });
}

test("the page is small and fetches nothing from elsewhere", async () => {
  const page = await browser.newPage();
  let bytes = 0;
  page.on("response", async (response) => { bytes += (await response.body().catch(() => Buffer.of())).length; });
  await page.goto(address);
  await page.waitForSelector("body[data-settled]", { timeout: WAIT });
  assert.ok(bytes < 300_000, `${bytes} bytes`);
  await page.close();
});
