// check_page.mjs PAGE.html SCREENSHOT_FOLDER [--charts|--no-charts]: opens a report in headless Chromium and checks what a reader would notice.
// Speaks the DevTools protocol over the browser's pipe (file descriptors 3 and 4): no library, no port.
// Exit 0: all good. 1: something is wrong (printed). 77: no Chromium here.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [page, folder, mode] = process.argv.slice(2);
const browser = ["chromium-headless-shell", "chromium", "google-chrome", "chrome"].flatMap((n) => (process.env.PATH || "").split(":").map((p) => join(p, n))).find(existsSync);
if (!browser) {
  console.log("no chromium on PATH: the page was not opened");
  process.exit(77);
}
mkdirSync(folder, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), "stepscope-browser-"));
const child = spawn(browser, ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--user-data-dir=" + profile, "--window-size=1366,768", "about:blank"],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });

let next = 1, buffer = "", session;
const waiting = new Map(), events = [];
child.stdio[4].setEncoding("utf8");
child.stdio[4].on("data", (chunk) => {
  buffer += chunk;
  for (let end; (end = buffer.indexOf("\0")) >= 0; buffer = buffer.slice(end + 1)) {
    const m = JSON.parse(buffer.slice(0, end));
    if (m.id) { const w = waiting.get(m.id); waiting.delete(m.id); m.error ? w.reject(new Error(w.method + ": " + m.error.message)) : w.resolve(m.result); }
    else events.push(m);
  }
});
const send = (method, params = {}) => new Promise((ok, no) => {
  const id = next++;
  waiting.set(id, { resolve: ok, reject: no, method });
  child.stdio[3].write(JSON.stringify({ id, method, params, sessionId: session }) + "\0");
});
const evaluate = async (expression) => {
  const r = await send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
  if (r.exceptionDetails) throw new Error(r.exceptionDetails.exception?.description || r.exceptionDetails.text);
  return r.result.value;
};
const sleep = (t) => new Promise((r) => setTimeout(r, t));
const problems = [];
const expect = (good, what) => { console.log((good ? "ok   " : "FAIL ") + what); if (!good) problems.push(what); };
const screenshot = async (name, full = false) => {
  const shot = await send("Page.captureScreenshot", { format: "png", captureBeyondViewport: full });
  writeFileSync(join(folder, name + ".png"), Buffer.from(shot.data, "base64"));
};

// Contrast of every visible text against the nearest opaque background (WCAG 2, relative luminance).
const contrast = `(() => {
  const rgb = (s) => s.match(/[\\d.]+/g).map(Number);
  const lum = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  let worst = 99, where = "";
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; (n = walk.nextNode());) {
    const e = n.parentElement;
    if (!n.textContent.trim() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName) || !e.checkVisibility()) continue;
    let back = e, c;
    for (; back; back = back.parentElement) { c = rgb(getComputedStyle(back).backgroundColor); if (c.length === 3 || c[3] === 1) break; }
    if (!back) c = [255, 255, 255];
    const a = lum(rgb(getComputedStyle(e).color)), b = lum(c), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst) { worst = ratio; where = e.tagName + " '" + n.textContent.trim().slice(0, 40) + "'"; }
  }
  return { worst, where };
})()`;
// Pixels of a canvas that are not transparent, and in how many colours.
const pixels = `[...document.querySelectorAll("canvas")].map((c) => {
  const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, colours = new Set();
  let drawn = 0;
  for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 0) { drawn++; if (d[i + 3] === 255) colours.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]); }
  return { label: c.getAttribute("aria-label"), drawn, colours: colours.size, size: c.width * c.height };
})`;
const column = (i) => `[...document.querySelectorAll("#kernel-table tbody tr")].map((r) => r.cells[${i}].textContent)`;

async function main() {
  const { targetInfos } = await send("Target.getTargets");
  session = (await send("Target.attachToTarget", { targetId: targetInfos.find((t) => t.type === "page").targetId, flatten: true })).sessionId;
  for (const domain of ["Page", "Runtime", "Network", "Log"]) await send(domain + ".enable");
  await send("Emulation.setDeviceMetricsOverride", { width: 1366, height: 768, deviceScaleFactor: 1, mobile: false });
  await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "light" }] });
  await send("Page.navigate", { url: pathToFileURL(resolve(page)).href });
  // Neither the page nor its charts have to be there within a time: a busy machine is no fault of theirs. ctest ends what hangs.
  for (let i = 0; i < 3000 && !events.some((e) => e.method === "Page.loadEventFired"); i++) await sleep(100);
  for (let i = 0; i < 600 && (await evaluate(pixels)).some((c) => c.drawn === 0); i++) await sleep(100);
  await sleep(300);  // for what a page should not do: late errors and requests

  expect(events.some((e) => e.method === "Page.loadEventFired"), "the page loads");
  const errors = events.filter((e) => e.method === "Runtime.exceptionThrown" || (e.method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(e.params.type)) || (e.method === "Log.entryAdded" && e.params.entry.level === "error"));
  expect(errors.length === 0, "no error in the console" + errors.map((e) => ": " + JSON.stringify(e.params).slice(0, 300)).join(""));
  const requests = events.filter((e) => e.method === "Network.requestWillBeSent").map((e) => e.params.request.url).filter((u) => !u.startsWith("data:"));
  expect(requests.length === 1 && requests[0].startsWith("file:"), "no request but for the file itself (" + requests.length + ")");
  expect(await evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "nothing is cut off at the right of a laptop's screen");

  expect(await evaluate(`[...document.querySelectorAll("#passes .scroll, #kernel-table .scroll")].every((e) => e.scrollWidth <= e.clientWidth + 1)`), "the tables of passes and kernels fit it");

  const canvases = await evaluate(pixels);
  if (mode !== "--no-charts") {
    expect(canvases.length >= 2, canvases.length + " charts");
    for (const c of canvases) expect(c.drawn > 0.005 * c.size && c.colours >= 3, "drawn: " + c.label.slice(0, 50) + " (" + c.drawn + " pixels, " + c.colours + " colours)");
  } else {
    expect(canvases.length === 0, "no chart where there is nothing to draw or nothing to draw with");
  }
  let c = await evaluate(contrast);
  expect(c.worst >= 4.5, "contrast in light " + c.worst.toFixed(2) + " (" + c.where + ")");
  await screenshot("light");

  // A note says what the rows of a table leave out: a page without it has rows that do not add up.
  const unsaid = await evaluate(`Object.values(JSON.parse(document.getElementById("view").textContent).tables).filter((t) => t.rows.length).flatMap((t) => t.notes)
    .filter((n) => ![...document.querySelectorAll("section p")].some((p) => p.textContent === n))`);
  expect(unsaid.length === 0, "every note of a table is on the page" + unsaid.map((n) => ": " + n).join(""));
  for (const part of ["#steps details table", "#ranks .scroll table"]) {
    const numbers = await evaluate(`[...(document.querySelector("${part}")?.querySelectorAll("tbody tr") ?? [])].map((r) => Number(r.cells[0].textContent))`);
    expect(numbers.every((v, i) => i === 0 || numbers[i - 1] < v), "rows in the order of their numbers in " + part + " (" + numbers.length + ")");
  }

  if (await evaluate(`document.querySelectorAll("#kernel-table tbody tr").length > 1`)) {
    const by_time = await evaluate(column(3));
    expect(by_time.every((v, i) => i === 0 || Number(by_time[i - 1]) >= Number(v)), "kernels come sorted by time");
    await evaluate(`document.querySelectorAll("#kernel-table th button")[0].click()`);
    const names = await evaluate(column(0));
    expect(names.every((v, i) => i === 0 || names[i - 1].localeCompare(v) <= 0), "a click on a title sorts by it");
    await evaluate(`document.querySelectorAll("#kernel-table th button")[3].focus()`);
    await send("Input.dispatchKeyEvent", { type: "keyDown", key: "Enter", code: "Enter", windowsVirtualKeyCode: 13, text: "\r" });
    await send("Input.dispatchKeyEvent", { type: "keyUp", key: "Enter", code: "Enter", windowsVirtualKeyCode: 13 });
    const again = await evaluate(column(3));
    expect(again.every((v, i) => i === 0 || Number(again[i - 1]) >= Number(v)), "Enter on a title sorts by it");
    expect(await evaluate(`document.querySelectorAll("#kernel-table th")[3].getAttribute("aria-sort") === "descending"`), "the sorted column says so");
    const first = (await evaluate(column(0)))[0];
    await evaluate(`(() => { const i = document.getElementById("filter"); i.value = ${JSON.stringify(first)}; i.dispatchEvent(new Event("input")); })()`);
    const found = await evaluate(column(0));
    expect(found.length >= 1 && found.length < names.length && found.every((n) => n.includes(first)), "the filter shows the kernels asked for (" + found.length + " of " + names.length + ")");
    await evaluate(`(() => { const i = document.getElementById("filter"); i.value = ""; i.dispatchEvent(new Event("input")); })()`);
    expect((await evaluate(column(0))).length === names.length, "an empty filter shows all");
  }
  expect(await evaluate(`[...document.querySelectorAll("button, input")].every((e) => e.tabIndex === 0 && (e.textContent.trim() || (e.labels && e.labels.length)))`), "every control can be reached by keyboard and has a name");

  const before = await evaluate("getComputedStyle(document.body).backgroundColor");
  await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "dark" }] });
  await sleep(300);
  expect((await evaluate("getComputedStyle(document.body).backgroundColor")) !== before, "dark follows the system's setting");
  c = await evaluate(contrast);
  expect(c.worst >= 4.5, "contrast in dark " + c.worst.toFixed(2) + " (" + c.where + ")");
  await screenshot("dark");
  await evaluate(`document.getElementById("theme").click()`);
  await sleep(200);
  expect((await evaluate("getComputedStyle(document.body).backgroundColor")) === before, "the button switches the theme");
  await screenshot("whole", true);
  const pdf = Buffer.from((await send("Page.printToPDF", { printBackground: true })).data, "base64");
  writeFileSync(join(folder, "printed.pdf"), pdf);
  expect(pdf.length > 10000 && pdf.subarray(0, 5).toString() === "%PDF-", "prints (" + pdf.length + " bytes)");
}

const limit = setTimeout(() => { console.log("FAIL no answer from the browser in 90 s"); child.kill("SIGKILL"); process.exit(1); }, 90000);
try {
  await main();
} catch (e) {
  expect(false, String(e));
}
clearTimeout(limit);
// Its processes write into the folder until the last of them has ended.
const ended = new Promise((ok) => child.once("exit", ok));
session = undefined;
send("Browser.close").catch(() => {});
await Promise.race([ended, sleep(5000)]);
child.kill("SIGKILL");
rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
process.exit(problems.length ? 1 : 0);
