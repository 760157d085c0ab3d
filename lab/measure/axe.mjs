// Open pages in Chromium, refuse and count their requests, take pictures, run axe-core.
//
//     node lab/measure/axe.mjs NODE_MODULES CHROMIUM FOLDER SITE PAGE...
//
// A page may ask for files below SITE; "" if for nothing but itself. Pictures of each page go to FOLDER: light, dark, 420 pixels wide, and as printed.
// Printed to standard output: one JSON object, by name of the page.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, chromium, folder, site, ...pages] = process.argv.slice(2);
const require = createRequire(join(modules, "package.json"));
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const LOOKS = [
  { name: "", width: 1100, scheme: "light", media: "screen" },
  { name: "-dark", width: 1100, scheme: "dark", media: "screen" },
  { name: "-narrow", width: 420, scheme: "light", media: "screen" },
  { name: "-narrow-dark", width: 420, scheme: "dark", media: "screen" },
  { name: "-print", width: 794, scheme: "light", media: "print" },
];

async function look(page, look, stem) {
  await page.setViewport({ width: look.width, height: 900 });
  const session = await page.createCDPSession();
  await session.send("Emulation.setEmulatedMedia", {
    media: look.media,
    features: [{ name: "prefers-color-scheme", value: look.scheme }],
  });
  await page.screenshot({ path: join(folder, `${stem}${look.name}.png`), fullPage: true });
  await page.evaluate(() => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });
  const found = await page.evaluate(async () =>
    (await globalThis.axe.run(document, { resultTypes: ["violations"] })).violations,
  );
  const wide = await page.evaluate(
    () => document.documentElement.scrollWidth > document.documentElement.clientWidth,
  );
  await page.evaluate(() => {
    for (const each of document.querySelectorAll("details")) each.open = false;
  });
  const barriers = found.map((each) => ({
    look: look.name || "light",
    rule: each.id,
    impact: each.impact,
    where: each.nodes.map((node) => node.target.join(" ")).slice(0, 5),
    why: each.nodes[0]?.failureSummary,
  }));
  await session.detach();
  if (wide) barriers.push({ look: look.name, rule: "wider than the window", impact: "serious" });
  return barriers;
}

const browser = await puppeteer.launch({
  executablePath: chromium,
  args: ["--no-sandbox"],
});
const own = site && pathToFileURL(site).href + "/";
const report = {};
for (const path of pages) {
  const page = await browser.newPage();
  const address = pathToFileURL(path).href;
  const requests = [];
  await page.setBypassCSP(true); // or the policy would hide what the page asks for
  await page.setRequestInterception(true);
  page.on("request", (request) => {
    if (request.url() === address) return request.continue();
    if (own && request.url().startsWith(own)) return request.continue();
    if (request.url().startsWith("data:")) return request.continue();
    requests.push(request.url());
    return request.abort();
  });
  await page.goto(address, { waitUntil: "load" });
  await page.evaluate(axe);
  const stem = basename(path, ".html");
  const found = [];
  for (const each of LOOKS) found.push(...(await look(page, each, stem)));
  await page.pdf({ path: join(folder, `${stem}.pdf`), format: "A4", printBackground: true, preferCSSPageSize: true });
  const barriers = found.filter((each) => ["serious", "critical"].includes(each.impact));
  report[stem] = {
    requests: requests.length,
    asked: requests,
    axe: found.length ? `${found.length} findings, ${barriers.length} serious` : "nothing",
    barriers,
    findings: found,
  };
  await page.close();
}
await browser.close();
process.stdout.write(JSON.stringify(report, null, 1));
