// The same page as the docs have it, without its server.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, extname, join } from "node:path";
import { after, before, test } from "node:test";
import { FIRST_EPSILON, looksRight, opened, python, settled, browser as launched } from "./browsing.mjs";

const BUILD = `
import json, sys
sys.path.insert(0, "docs/generate")
import explorer
explorer.PRESETS = {explorer.FIRST: explorer.PRESETS[explorer.FIRST]}
print(json.dumps(explorer.all_of_it()))
`;
const KINDS = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json", ".svg": "image/svg+xml" };
let folder, server, browser, address;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "explorer-"));
  for (const [name, text] of Object.entries(python(BUILD))) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  server = createServer((request, response) => {
    const name = new URL(request.url, "http://x").pathname;
    try {
      const body = readFileSync(join(folder, name.endsWith("/") ? `${name}index.html` : name));
      response.writeHead(200, { "content-type": KINDS[extname(name)] ?? "text/html" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  address = `http://127.0.0.1:${server.address().port}/try/`;
  browser = await launched();
});
after(async () => {
  await browser?.close();
  server?.close();
  rmSync(folder, { recursive: true });
});

test("noise and epochs move over what was computed beforehand", async () => {
  const page = await opened(browser, address, { bypassCSP: true });
  const first = await page.textContent("#epsilon");
  assert.equal(first, python(FIRST_EPSILON));
  assert.equal((await page.$$(".plot > svg")).length, 5);
  await settled(page, async () => { await page.focus("#slide-noise_multiplier"); await page.keyboard.press("ArrowRight"); });
  assert.equal(await page.inputValue("#noise_multiplier"), "8");
  assert.ok(Number(await page.textContent("#epsilon")) < Number(first));
  await settled(page, async () => { await page.focus("#slide-epochs"); await page.keyboard.press("End"); });
  assert.equal(await page.inputValue("#epochs"), "150");
  assert.ok(await page.isDisabled("#slide-step_size"));
  assert.ok(await page.isHidden("#inverse"));
  assert.match(await page.textContent("#unlearning"), /lastiterate explore/);
  if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/built.png`, fullPage: true });
  await looksRight(page);
  assert.deepEqual(page.wrong, []);
});
