// A server and a browser for the tests, and what every one of them does.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { chromium } from "playwright-core";

const COMMAND = process.env.LASTITERATE ?? "lastiterate";
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const WAIT = 120_000;

/** What the library certifies for the run that the page begins with, as it is printed. */
export const FIRST_EPSILON = `
import json
import lastiterate as li
from lastiterate._display import up
from lastiterate.explore.page_runs import run_from_page
from lastiterate.explore.server import FIRST, PRESETS
print(json.dumps(up(li.account(run_from_page(PRESETS[FIRST])).epsilon(1e-7))))
`;
/** What a Python program prints, as JSON. */
export const python = (text) => JSON.parse(execFileSync(join(dirname(COMMAND), "python"), ["-c", text], { maxBuffer: 2 ** 26 }));

export const browser = () => chromium.launch({ executablePath: CHROMIUM, args: QUIET });

export async function browsing() {
  const server = spawn(COMMAND, ["explore", "--no-browser"], { stdio: ["ignore", "pipe", "ignore"] });
  const address = await new Promise((found, failed) => {
    let said = "";
    server.stdout.on("data", (part) => {
      said += part;
      const match = said.match(/http:\S+/);
      if (match) found(match[0]);
    });
    server.on("exit", () => failed(new Error("the server ended")));
  });
  const launched = await browser();
  const end = async () => {
    await launched.close();
    server.kill("SIGINT");
  };
  return { server, address, browser: launched, end };
}

/** A page whose answers have come, and what went wrong on it. */
export async function opened(browser, address, options = {}) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
  page.setDefaultTimeout(WAIT);
  page.wrong = [];
  page.on("pageerror", (error) => page.wrong.push(error.message));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== new URL(address).origin && url.protocol !== "blob:") page.wrong.push(`asked for ${request.url()}`);
  });
  await page.goto(address);
  await page.waitForSelector("body[data-settled]");
  return page;
}

/** Wait until everything that a change asked for has come. */
export async function settled(page, act) {
  const before = await page.getAttribute("body", "data-settled");
  await act();
  await page.waitForFunction((old) => document.body.dataset.settled !== old && !document.body.classList.contains("waiting"), before);
}

/** Wait until the answer to a change has come, whatever else is still computed. */
export async function answered(page, act) {
  const before = await page.getAttribute("body", "data-answered");
  await act();
  await page.waitForFunction((old) => document.body.dataset.answered !== old, before);
}

/** The run that the address holds. */
export const linked = (page) => JSON.parse(Buffer.from(new URL(page.url()).hash.slice(5), "base64url").toString());
export const hashOf = (state) => `#run=${Buffer.from(JSON.stringify(state)).toString("base64url")}`;

/** Nothing sticks out at the side, and nothing is serious for axe. The page must be one that bypasses its policy. */
export async function looksRight(page) {
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= page.viewportSize().width);
  await page.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = true)));
  await page.evaluate(readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8"));
  const found = await page.evaluate(async () => (await axe.run()).violations.map((one) => `${one.impact} ${one.id}: ${one.nodes.map((node) => node.target).slice(0, 4).join(" | ")}`));
  assert.deepEqual(found.filter((line) => /^(serious|critical)/.test(line)), []);
}
