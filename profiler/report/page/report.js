"use strict";
// Draws the report. #view has the tables (columns, cells as text, numbers to sort by) and every sentence, made by the program; #data has the
// profile document, from which the charts take their points. Everything enters the page as text (textContent), never as markup.
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const d = read("data"), view = read("view");
  // A cell is the place of its text, or [text, number to sort by, full name].
  for (const t of Object.values(view.tables))
    t.rows = t.rows.map((row, i) => {
      const cells = row.map((c) => (Array.isArray(c) ? c : [c]));
      return { cells: cells.map((c) => c[0]), sort: cells.map((c) => c[1] ?? null), full: cells.map((c) => c[2] ?? null), sum: i === t.sum };
    });
  const charts = typeof Chart !== "undefined";
  // How many the whole document has; the page may hold fewer: the longest ones.
  const whole = document.getElementById("data").dataset, all_launches = Number(whole.launches), all_lanes = Number(whole.lanes);

  // ---- small helpers -----------------------------------------------------------------------------------------
  const known = (v) => v !== undefined && v !== null && Number.isFinite(v);
  const text = (index) => view.texts[index];
  const el = (tag, attributes = {}, ...children) => {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes)) v === undefined || e.setAttribute(k, v);
    for (const c of children) e.append(c);
    return e;
  };
  const put = (id, ...children) => document.getElementById(id).append(...children);
  const note = (words) => el("p", { class: "faint" }, words);
  const column = (t, field) => t.columns.findIndex((c) => c.field === field);
  const value = (t, row, field) => row.sort[column(t, field)];
  // Words that a cell shows; "" where it has no answer.
  const answer = (index) => (text(index) === "-" ? "" : text(index));
  // A row in words, for a tooltip: its names, then each number that is known, with its title.
  const words = (t, row) => {
    const is_name = (c) => c.text && !c.field;
    const known_cells = t.columns.map((c, i) => ({ c, shown: answer(row.cells[i]) })).filter(({ shown }) => shown);
    const names = known_cells.filter(({ c }) => is_name(c)).map(({ shown }) => shown);
    const numbers = known_cells.filter(({ c }) => !is_name(c)).map(({ c, shown }) => shown + " " + c.title);
    return [names.join(", "), numbers.join(", ")].filter(Boolean);
  };
  // Not Math.min(...list): browsers limit the arguments of a call, and some fifty ranks have more launches than that.
  const least = (list) => list.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity);

  // ---- theme -------------------------------------------------------------------------------------------------
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = [];  // functions that draw a chart again in the theme's colours
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const setTheme = (theme) => {
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    for (const draw of drawn) draw();
  };
  button.addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  root.dataset.theme = dark.matches ? "dark" : "light";
  button.textContent = dark.matches ? "Light" : "Dark";
  const palette = { encoder: "#cc79a7", forward: "#0072b2", classifier: "#e69f00", backward: "#d55e00", optimizer: "#009e73", communication: "#56b4e9", other: "#999999", unattributed: "#7f6b00", idle: "#c0c6cc" };
  const passColor = (pass) => palette[pass] || palette.unattributed;

  const chart = (parent, kind, label, config) => {
    if (!charts) return false;
    const canvas = el("canvas", { role: "img", "aria-label": label });
    parent.append(el("div", { class: "chart" + (kind ? " " + kind : "") }, canvas));
    let current = null;
    const draw = () => {
      if (current) current.destroy();
      Chart.defaults.color = color("--text");
      Chart.defaults.borderColor = color("--line");
      Chart.defaults.font.size = 13;
      current = new Chart(canvas, config());
    };
    drawn.push(draw);
    draw();
    return true;
  };
  const noCharts = () => note("This build of stepscope has no chart library (Debian package libjs-chart.js); the table holds the same numbers.");

  // ---- sortable table ----------------------------------------------------------------------------------------
  // `sort`: the column sorted first, largest on top unless `ascending`; undefined: the order stays as it came.
  const table = (t, sort, ascending) => {
    const body = el("tbody");
    let shown = t.rows.slice(), sorted = sort, descending = !ascending;
    const cell = (row, c, i) => {
      const name = row.full[i] !== null;
      return el("td", { class: (c.text ? "text" : "") + (name ? " name" : ""), title: name ? text(row.full[i]) : undefined }, text(row.cells[i]));
    };
    const fill = () => body.replaceChildren(...shown.map((row) => el("tr", row.sum ? { class: "sum" } : {}, ...t.columns.map((c, i) => cell(row, c, i)))));
    const order = () => {
      if (sorted === undefined) return;
      const by_words = t.columns[sorted].text;
      // No answer stands last in both directions.
      shown.sort((x, y) => {
        const key = (row) => (by_words ? answer(row.cells[sorted]) || null : row.sort[sorted]), a = key(x), b = key(y);
        if (a === null || b === null) return (a === null) - (b === null);
        const by = by_words ? a.localeCompare(b) : a - b;
        return descending ? -by : by;
      });
    };
    const heads = t.columns.map((c, i) => {
      const h = el("th", { scope: "col", class: c.text ? "text" : "" });
      if (sort === undefined) { h.append(c.title); return h; }
      const b = el("button", { type: "button" }, c.title);
      b.addEventListener("click", () => {
        descending = sorted === i ? !descending : !c.text;
        sorted = i;
        mark();
        order();
        fill();
      });
      h.append(b);
      return h;
    });
    const mark = () => heads.forEach((h, i) => h.setAttribute("aria-sort", i === sorted ? (descending ? "descending" : "ascending") : "none"));
    if (sort !== undefined) mark();
    order();
    fill();
    const element = el("div", { class: "scroll" }, el("table", {}, el("caption", {}, t.caption), el("thead", {}, el("tr", {}, ...heads)), body));
    return { element, filter: (keep) => { shown = t.rows.filter(keep); order(); fill(); return shown.length; } };
  };

  // ---- headline ----------------------------------------------------------------------------------------------
  document.getElementById("what").textContent = view.what.join(" · ");
  document.title = "stepscope: " + view.what.join(", ");
  for (const f of view.headline) put("headline", el("div", {}, el("b", {}, f.value), f.words));
  for (const m of view.missing.filter((m) => m.severity === "severe")) put("alerts", el("p", { class: "severe" }, "Severe: " + m.name + ": " + m.text));

  if (view.tables.states.rows.length) put("states", table(view.tables.states).element);

  // ---- passes ------------------------------------------------------------------------------------------------
  {
    const t = view.tables.passes, parts = t.rows.filter((r) => !r.sum && known(value(t, r, "time_ns")));
    const name = (r) => text(r.cells[0]);
    const rowColor = (r, i) => (t.columns[0].title === "kernel" && name(r) !== "idle" ? Object.values(palette)[i % 7] : passColor(name(r)));
    if (!parts.length || !known((d.totals || {}).time_ns)) {
      put("passes", note("No kernel of a step was traced; see what is missing."));
    } else {
      const total = parts.reduce((s, r) => s + value(t, r, "time_ns"), 0);
      chart(document.getElementById("passes"), "low", "Time of the step by " + t.columns[0].title + ", in ms; the table below has the numbers", () => ({
        type: "bar",
        data: { labels: ["step"], datasets: parts.map((r, i) => ({ label: name(r), data: [value(t, r, "time_ns") / 1e6], backgroundColor: rowColor(r, i), borderColor: color("--bg"), borderWidth: 1 })) },
        options: { indexAxis: "y", animation: false, maintainAspectRatio: false,
          scales: { x: { stacked: true, max: total / 1e6, title: { display: true, text: "ms" } }, y: { stacked: true, display: false } },
          plugins: { tooltip: { callbacks: { label: (c) => words(t, parts[c.datasetIndex]) } } } },
      })) || put("passes", noCharts());
      put("passes", table(t).element, ...t.notes.map(note));
    }
  }

  // ---- steps -------------------------------------------------------------------------------------------------
  {
    const t = view.tables.steps, median = ((d.timing || {}).step_time_ns || {}).median;
    if (!t.rows.length) {
      put("steps", note(view.sentences.no_steps));
    } else {
      chart(document.getElementById("steps"), "", "Time of each step, in ms", () => ({
        type: "line",
        data: { labels: t.rows.map((r) => r.sort[0]), datasets: [
          { label: "step", data: t.rows.map((r) => r.sort[1] / 1e6), borderColor: passColor("forward"), backgroundColor: passColor("forward"), showLine: false, pointRadius: 3 },
          { label: "median", data: t.rows.map(() => median / 1e6), borderColor: passColor("backward"), pointRadius: 0, borderWidth: 2, borderDash: [6, 4] }] },
        options: { animation: false, maintainAspectRatio: false, scales: { x: { title: { display: true, text: "step" } }, y: { title: { display: true, text: "ms" } } } },
      })) || put("steps", noCharts());
      put("steps", note(view.sentences.steps), el("details", {}, el("summary", {}, "every step"), table(t, 0, true).element));
    }
  }

  // ---- roofline ----------------------------------------------------------------------------------------------
  // Horizontal: how near the kernel's traffic comes to the device's DRAM ceiling; vertical: how near its tensor work comes to the matmul
  // ceiling. A dot at 100 on either axis cannot get faster without doing less.
  {
    const t = view.tables.kernels;
    const kernels = (d.kernels || []).map((k, i) => ({ k, row: t.rows[i] })).filter(({ k }) => known(k.dram_of_ceiling_pct) && k.time_ns > 0);
    // Tensor use may be known and its share of the ceiling not: another chip, a share of active cycles, a count of instructions. The one is no
    // stand-in for the other, so such a kernel has no place here.
    const counted = kernels.some(({ k }) => known(k.tensor_active_pct) || known(k.tensor_instructions));
    const rows = kernels.filter(({ k }) => !counted || known(k.tensor_of_ceiling_pct));
    if (!known((d.ceilings || {}).copy_bytes_per_s) || !kernels.length) {
      put("roofline", note(view.sentences.no_roofline));
    } else if (rows.length) {
      const longest = most(rows.map(({ k }) => k.time_ns));
      const pass = ({ k }) => k.pass || "unattributed";
      chart(document.getElementById("roofline"), "high", "Each kernel by its share of the DRAM ceiling and of the tensor ceiling; the kernel table has the numbers", () => ({
        type: "bubble",
        data: { datasets: [...new Set(rows.map(pass))].map((g) => ({ label: g, clip: false, backgroundColor: passColor(g) + "aa", borderColor: passColor(g),
          data: rows.filter((r) => pass(r) === g).map(({ k, row }) => ({ x: k.dram_of_ceiling_pct, y: k.tensor_of_ceiling_pct ?? 0, r: 3 + 22 * Math.sqrt(k.time_ns / longest), row })) })) },
        options: { animation: false, maintainAspectRatio: false,
          scales: { x: { min: 0, max: 110, title: { display: true, text: "% of the measured DRAM ceiling" } }, y: { min: 0, max: 110, title: { display: true, text: "% of the measured tensor ceiling" } } },
          plugins: { tooltip: { callbacks: { label: (i) => words(t, i.raw.row) } } } },
      })) || put("roofline", noCharts());
      put("roofline", note("One dot per kernel, its area the kernel's time. " + view.sentences.ceilings +
        " Dots at the right or upper edge are bound by memory or tensor cores; dots near the origin by latency, or by something that is not counted."));
      if (!counted) put("roofline", note("Tensor use was not counted: every dot lies on the axis, whatever its kernel does."));
    }
    if (rows.length < kernels.length) put("roofline", note("Not drawn: " + (kernels.length - rows.length) + " of " + kernels.length + " kernels, whose tensor work is unknown."));
  }

  // ---- kernels -----------------------------------------------------------------------------------------------
  {
    const t = view.tables.kernels;
    if (!t.rows.length) {
      put("kernel-table", note("No kernel was traced."));
    } else {
      const all = table(t, column(t, "time_ns"));
      const input = el("input", { type: "search", id: "filter", placeholder: "attention, backward, memory …" });
      const found = el("span", { class: "faint", role: "status" });
      // Words that the table shows ("bwd qkv"), and the whole ones behind them ("backward").
      const shown = (r) => t.columns.map((c, i) => (c.text ? text(r.cells[i]) : "")).join(" ");
      const haystack = new Map(t.rows.map((r, i) => [r, [d.kernels[i].name, d.kernels[i].pass || "", shown(r)].join(" ").toLowerCase()]));
      input.addEventListener("input", () => {
        const q = input.value.trim().toLowerCase();
        const n = all.filter((r) => !q || haystack.get(r).includes(q));
        found.textContent = q ? " " + n + " of " + t.rows.length : "";
      });
      put("kernel-table", el("p", { class: "filter" }, el("label", { for: "filter" }, "Show kernels with "), input, found), all.element, ...t.notes.map(note));
    }
  }

  // ---- timeline ----------------------------------------------------------------------------------------------
  {
    const t = view.tables.launches;
    const rows = (d.launches || []).map((l, i) => ({ l, row: t.rows[i], lane: view.lanes.names[view.lanes.of_launch[i]] })).filter(({ l }) => known(l.start_ns) && known(l.shown_ns));
    if (!rows.length) {
      put("timeline", note(view.sentences.no_timeline));
    } else {
      const lanes = view.lanes.names;
      const pass = ({ l }) => l.pass || "unattributed";
      const end = (d.timeline || {}).window_ns || most(rows.map(({ l }) => l.start_ns + l.shown_ns));
      chart(document.getElementById("timeline"), lanes.length > 2 ? "" : "low", "Kernels of one step over time, a row per stream", () => ({
        type: "bar",
        data: { labels: lanes, datasets: [...new Set(rows.map(pass))].map((g) => ({ label: g, backgroundColor: passColor(g), grouped: false, barPercentage: 0.9, minBarLength: 0,
          parsing: { xAxisKey: "x", yAxisKey: "y" }, data: rows.filter((r) => pass(r) === g).map(({ l, row, lane }) => ({ x: [l.start_ns / 1e6, (l.start_ns + l.shown_ns) / 1e6], y: lane, row })) })) },
        options: { indexAxis: "y", animation: false, maintainAspectRatio: false, interaction: { mode: "point" },
          scales: { x: { min: 0, max: end / 1e6, title: { display: true, text: "ms since the first kernel" } }, y: { stacked: true } },
          plugins: { tooltip: { callbacks: { label: (i) => words(t, i.raw.row) } } } },
      })) || put("timeline", noCharts());
      if (d.launches.length < all_launches) put("timeline", note("The " + rows.length + " longest of " + all_launches + " launches are drawn."));
      else if (rows.length < all_launches) put("timeline", note(rows.length + " of " + all_launches + " launches are drawn; the times of the others were lost."));
      put("timeline", note(view.sentences.timeline));
      put("timeline", el("details", {}, el("summary", {}, rows.length < all_launches ? "every launch drawn" : "every launch"), table({ ...t, rows: rows.map(({ row }) => row).sort((a, b) => value(t, a, "start_ns") - value(t, b, "start_ns")) }, column(t, "shown_ns")).element));
    }
  }

  // ---- ranks -------------------------------------------------------------------------------------------------
  if (view.tables.ranks) {
    document.getElementById("ranks").hidden = false;
    const lanes = (d.ranks || []).flatMap((r) => ["rank " + r.rank, "rank " + r.rank + " communication"]);
    const lane = (l) => "rank " + l.rank + (l.pass === "communication" ? " communication" : "");
    const pass = (l) => l.pass || "unattributed";
    const begin = least(d.lanes.map((l) => l.start_ns)), end = most(d.lanes.map((l) => l.start_ns + l.shown_ns));
    const section = document.getElementById("ranks");
    put("ranks", table(view.tables.ranks, column(view.tables.ranks, "rank"), true).element, ...view.ranks.map(note));
    if (!d.lanes.length) put("ranks", note("No step of a rank was traced; see what is missing."));
    else chart(section, lanes.length > 6 ? "high" : "", "The step on every rank by one clock, a row for work and one for communication", () => ({
      type: "bar",
      data: { labels: lanes, datasets: [...new Set(d.lanes.map(pass))].map((g) => ({ label: g, backgroundColor: passColor(g), grouped: false, barPercentage: 0.9, minBarLength: 0,
        parsing: { xAxisKey: "x", yAxisKey: "y" }, data: d.lanes.filter((l) => pass(l) === g).map((l) => ({ x: [l.start_ns / 1e6, (l.start_ns + l.shown_ns) / 1e6], y: lane(l), name: l.name })) })) },
      options: { indexAxis: "y", animation: false, maintainAspectRatio: false, interaction: { mode: "point" },
        scales: { x: { min: begin / 1e6, max: end / 1e6, title: { display: true, text: "ms since the first kernel of rank " + d.world.main_rank } }, y: { stacked: true } },
        plugins: { tooltip: { callbacks: { label: (i) => i.raw.name } } } },
    })) || put("ranks", noCharts());
    if (d.lanes.length < all_lanes) put("ranks", note("The " + d.lanes.length + " longest of " + all_lanes + " launches of all ranks are drawn."));
    const collectives = view.tables.collectives;
    if (collectives.rows.length) put("ranks", table(collectives, column(collectives, "exposed_ns")).element, ...collectives.notes.map(note));
  }

  // ---- missing, environment ----------------------------------------------------------------------------------
  const severity = (m) => (m.severity === "severe" || m.severity === "notice" ? m.severity : "faint");
  if (!view.missing.length) put("missing", note("Nothing: every record was matched and every counter read."));
  else put("missing", el("ul", {}, ...view.missing.map((m) => el("li", {}, el("span", { class: severity(m) }, m.severity + " "), el("b", {}, m.name), ": " + m.text))));
  put("environment", el("dl", {}, ...view.environment.flatMap(([what, words]) => [el("dt", {}, what), el("dd", {}, words)])));
})();
