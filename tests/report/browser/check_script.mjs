// check_script.mjs FOLDER: runs the script of the pages that make_report_pages wrote, without a browser: on elements that only hold what the
// script puts into them. Sees what a tooltip says, how tables sort, and that every section is reached. Exit 1: something is wrong (printed).
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { runInNewContext } from "node:vm";

class Element {
  constructor(tag) { Object.assign(this, { tag, children: [], attributes: {}, dataset: {}, listeners: {} }); }
  setAttribute(name, value) { this.attributes[name] = value; }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) { this.children = children; }
  addEventListener(event, listener) { this.listeners[event] = listener; }
  set textContent(text) { this.children = [text]; }
  get textContent() { return this.children.map((c) => c.textContent ?? String(c)).join(""); }
  all(tag) { return this.children.flatMap((c) => (c instanceof Element ? [...(c.tag === tag ? [c] : []), ...c.all(tag)] : [])); }
}

// `change` may alter the page's document and its attributes before the script sees them.
function run(name, change = () => {}) {
  const html = readFileSync(join(process.argv[2], name + ".html"), "utf8");
  const json = (id) => JSON.parse(html.match(new RegExp(`id="${id}"[^>]*>([^]*?)</script>`))[1]);
  const data = json("data"), view = json("view");
  const ids = { data: new Element("script"), view: new Element("script") }, charts = [];
  for (const [, key, value] of html.match(/<script[^>]* id="data"[^>]*>/)[0].matchAll(/data-(\w+)="([^"]*)"/g)) ids.data.dataset[key] = value;
  change(data, ids.data.dataset);
  ids.data.textContent = JSON.stringify(data);
  ids.view.textContent = JSON.stringify(view);
  const document = { documentElement: new Element("html"), createElement: (tag) => new Element(tag), getElementById: (id) => (ids[id] ??= new Element("div")) };
  const Chart = function (canvas, config) { charts.push(config); };
  Chart.defaults = { font: {} };
  const window = { matchMedia: () => ({ matches: false, addEventListener() {} }) };
  runInNewContext(html.slice(html.lastIndexOf("<script>") + 8, html.lastIndexOf("</script>")), { document, window, Chart, getComputedStyle: () => ({ getPropertyValue: () => "" }) });
  return { ids, charts };
}
// Every point of a chart whose tooltip is made by the page: its set, what was drawn, and the lines of the tooltip.
const points = (chart) => {
  const label = chart.options.plugins?.tooltip?.callbacks.label;
  return label ? chart.data.datasets.flatMap((dataset, datasetIndex) => dataset.data.map((raw, dataIndex) =>
    ({ dataset, raw, lines: [label({ chart, dataset, datasetIndex, dataIndex, raw, label: dataset.label })].flat() }))) : [];
};
const tooltips = (chart) => points(chart).map(({ lines }) => lines);
const problems = [];
const expect = (good, what) => { console.log((good ? "ok   " : "FAIL ") + what); if (!good) problems.push(what); };

// What a row shows for a number that nobody knows was read out as one: "- GB/s".
for (const name of ["gpu", "cpu", "ranks"]) {
  const lines = run(name).charts.flatMap(tooltips).flat();
  expect(lines.length > 0 && lines.every((l) => l && !/(^|, )-( |,|$)/.test(l)), name + ": no tooltip holds a number without an answer: " + (lines.find((l) => /(^|, )-( |,|$)/.test(l)) ?? ""));
}
const of_passes = run("ranks").charts.map(tooltips)[0].map((lines) => lines.join("; "));
expect(of_passes.some((t) => / worst/.test(t) && / hidden/.test(t)), "a pass of several ranks says the worst of them: " + of_passes[0]);

// Each tooltip is that of its own point: the numbers in it are those that were drawn.
const number_before = (lines, title) => lines.join(", ").match(new RegExp(`\\(?([-\\d.]+)%?\\)? ${title}(,|$)`))?.[1] ?? "";
const near = (shown, drawn) => shown !== "" && Math.abs(Number(shown) - drawn) <= 0.51 * 10 ** -(shown.split(".")[1] ?? "").length;
for (const name of ["gpu", "cpu", "ranks"]) {
  const { charts } = run(name), has = (title) => charts.find((c) => c.options.scales?.x?.title?.text?.startsWith(title));
  const passes = points(charts[0]);
  expect(passes.length > 2 && passes.every(({ dataset, raw, lines }) => lines[0].split(", ")[0] === dataset.label && near(number_before(lines, "ms"), raw)), name + ": tooltips of the passes are theirs");
  const launches = points(has("ms since the first kernel"));
  expect(launches.length > 2 && launches.every(({ raw, lines }) => near(number_before(lines, "start ms"), raw.x[0]) && near(number_before(lines, "ms"), raw.x[1] - raw.x[0])), name + ": tooltips of the launches are theirs");
  if (name === "gpu") expect(points(has("% of")).every(({ raw, lines }) => near(number_before(lines, "\\(max\\)"), raw.x)), name + ": tooltips of the roofline are theirs");
  if (name === "ranks") expect(points(charts.at(-1)).every(({ raw, lines }) => lines.length === 1 && lines[0] === raw.name && raw.name), name + ": tooltips of the ranks are theirs");
}

const sorted_by = (table, title, clicks) => {
  const button = table.all("button").find((b) => b.textContent === title), at = table.all("th").findIndex((h) => h.children.includes(button));
  for (let i = 0; i < clicks; ++i) button.listeners.click();
  return table.all("tbody")[0].children.map((row) => row.children[at].textContent);
};
for (const clicks of [1, 2]) {
  const bounds = sorted_by(run("gpu").ids["kernel-table"], "bound", clicks);
  expect(bounds.includes("-") && bounds.indexOf("-") + bounds.filter((b) => b === "-").length === bounds.length, "no answer stands last: " + bounds.join(" "));
}
// The table says "bwd", and only "backward" found its rows.
for (const words of ["bwd", "backward", "bwd qkv", "memory", "cutlass::kernel2"]) {
  const page = run("gpu"), all = page.ids["kernel-table"].all("tbody")[0].children.length;
  Object.assign(page.ids["kernel-table"].all("input")[0], { value: words }).listeners.input();
  const left = page.ids["kernel-table"].all("tbody")[0].children.length;
  expect(left > 0 && left < all, "the filter finds " + words + ": " + left + " of " + all);
}

// Sixty ranks: more launches than a call takes arguments. The sections below stayed empty.
const many = run("ranks", (data) => { data.lanes = Array.from({ length: 150000 }, (_, i) => data.lanes[i % data.lanes.length]); });
expect(many.ids.environment.textContent.includes("collected by"), "a page of very many launches is whole");
const notes = (page, id) => page.ids[id].all("p").map((p) => p.textContent);
const cut = notes(run("ranks", (data, whole) => { whole.lanes = "5000"; }), "ranks");
expect(cut.some((n) => /^The \d+ longest of 5000 launches of all ranks are drawn\.$/.test(n)), "the ranks say that launches are left out");
expect(notes(run("ranks"), "ranks").every((n) => !n.includes("longest")), "and only then");
const untraced = run("ranks", (data, whole) => { data.lanes = [], whole.lanes = "0"; });
expect(notes(untraced, "ranks").includes("No step of a rank was traced; see what is missing."), "ranks without a traced step are no empty chart");
const lost = notes(run("gpu", (data) => { delete data.launches[0].start_ns; }), "timeline");
expect(lost.some((n) => /^\d+ of \d+ launches are drawn; the times of the others were lost\.$/.test(n)), "a launch whose time was lost is not called a short one");
expect(notes(run("long"), "timeline").includes("The 2500 longest of 20000 launches are drawn."), "the longest are drawn of a long step");
// Tensor use that is no share of the measured ceiling (a share of active cycles, another chip) was drawn as one.
const roofline = (change) => { const page = run("gpu", change); return { dots: points(page.charts.find((c) => c.type === "bubble") ?? { options: {} }), notes: notes(page, "roofline") }; };
const placed = roofline(() => {});
const unplaced = roofline((data) => { delete data.kernels[0].tensor_of_ceiling_pct; });
expect(unplaced.dots.length === placed.dots.length - 1 && unplaced.notes.includes("Not drawn: 1 of " + placed.dots.length + " kernels, whose tensor work is unknown."), "a kernel of unknown tensor work has no place in the roofline");
expect(placed.notes.every((n) => !n.startsWith("Not drawn")), "and the others have");
const unknown = roofline((data) => { for (const k of data.kernels) delete k.tensor_of_ceiling_pct; });
expect(unknown.dots.length === 0 && unknown.notes.length === 1, "without any there is no chart");
const uncounted = roofline((data) => { for (const k of data.kernels) delete k.tensor_of_ceiling_pct, delete k.tensor_active_pct; });
expect(uncounted.dots.length === placed.dots.length && uncounted.notes.some((n) => n.startsWith("Tensor use was not counted")), "without tensor counters all lie on the axis, and the page says why");
process.exit(problems.length ? 1 : 0);
