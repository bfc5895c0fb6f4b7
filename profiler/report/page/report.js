"use strict";
// Draws the report from the profile document in #data. Everything from the document enters the page as text (textContent), never as markup.
// Times are shown in ms, rates in GB/s; "-" is "no answer", never 0.
(() => {
  const d = JSON.parse(document.getElementById("data").textContent);
  const charts = typeof Chart !== "undefined";
  const all_launches = Number(document.getElementById("data").dataset.launches);  // the document may hold fewer: the longest ones

  // ---- small helpers -----------------------------------------------------------------------------------------
  const known = (v) => v !== undefined && v !== null && Number.isFinite(v);
  const fixed = (v, n) => (known(v) ? v.toFixed(n) : "-");
  const ms = (ns) => (known(ns) ? (ns / 1e6).toFixed(ns >= 1e8 ? 1 : 3) : "-");
  const scaled = (v) => (v >= 1e9 ? (v / 1e9).toFixed(1) + "G" : v >= 1e6 ? (v / 1e6).toFixed(1) + "M" : v >= 1e3 ? (v / 1e3).toFixed(1) + "k" : v.toFixed(0));
  // Some reports of other tools counted instructions only.
  const tensor = (r) => (known(r.tensor_active_pct) ? fixed(r.tensor_active_pct, 1) : known(r.tensor_instructions) ? scaled(r.tensor_instructions) + " inst" : "-");
  const gbs = (b) => (known(b) ? (b / 1e9).toFixed(0) : "-");
  const count = (v) => (known(v) ? Math.round(v).toLocaleString("en-US") : "-");
  const el = (tag, attributes = {}, ...children) => {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes)) v === undefined || e.setAttribute(k, v);
    for (const c of children) e.append(c);
    return e;
  };
  const put = (id, ...children) => document.getElementById(id).append(...children);
  const note = (text) => el("p", { class: "faint" }, text);
  // "void fp32::(anonymous namespace)::adamw_kernel<4>(float*)" -> "adamw_kernel<4>"
  const short = (name) => {
    let n = name.replace(/\(anonymous namespace\)::|<unnamed>::/g, "").replace(/^(void|auto) /, "");
    const depth = (s, stop) => { let k = 0; for (let i = 0; i < s.length; i++) { if (k === 0 && s[i] === stop) return i; if (s[i] === "<") k++; if (s[i] === ">") k--; } return -1; };
    const open = depth(n, "(");
    if (open > 0) n = n.slice(0, open);
    const args = n.indexOf("<"), head = args < 0 ? n : n.slice(0, args);
    const scope = head.lastIndexOf("::");
    return scope < 0 ? n : n.slice(scope + 2);
  };
  const where = (row) => (row.pass ? row.pass + (row.op ? " " + row.op : "") : "-");

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
  // columns: {title, text (left aligned), value(row) for sorting, show(row)}
  const table = (caption, columns, rows, options = {}) => {
    const body = el("tbody");
    let shown = rows.slice(), sorted = options.sort, descending = true;
    const fill = () => {
      body.replaceChildren(...shown.map((row) => el("tr", row.class ? { class: row.class } : {}, ...columns.map((c) => {
        const text = c.show(row);
        return el("td", { class: (c.text ? "text" : "") + (c.name ? " name" : ""), title: c.title_of ? c.title_of(row) : undefined }, text);
      }))));
    };
    const order = () => {
      if (sorted === undefined) return;
      const c = columns[sorted];
      // No answer stands last in both directions.
      shown.sort((x, y) => {
        const a = c.value(x), b = c.value(y), na = a === undefined || a === null, nb = b === undefined || b === null;
        if (na || nb) return na - nb;
        const by = typeof a === "string" ? a.localeCompare(b) : a - b;
        return descending ? -by : by;
      });
    };
    const heads = columns.map((c, i) => {
      const h = el("th", { scope: "col", class: c.text ? "text" : "" });
      if (options.sort === undefined) { h.append(c.title); return h; }
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
    if (options.sort !== undefined) mark();
    order();
    fill();
    const t = el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...heads)), body);
    return { element: el("div", { class: "scroll" }, t), filter: (keep) => { shown = rows.filter(keep); order(); fill(); return shown.length; } };
  };

  // ---- headline ----------------------------------------------------------------------------------------------
  const t = d.totals || {}, step = (d.timing || {}).step_time_ns || {}, run = d.run || {}, env = d.environment || {}, made = d.collection || {};
  const gpu = env.gpu || run.device || "no GPU";
  const words = [gpu];
  if (run.trainer) words.push(run.trainer + (run.matmul ? " (" + run.matmul + ")" : ""));
  if (known(run.layers)) words.push(run.layers + " layers × " + run.channels + " channels");
  if (known(run.batch_size)) words.push("B " + run.batch_size + ", T " + run.seq_len);
  document.getElementById("what").textContent = words.join(" · ");
  document.title = "stepscope: " + words.join(", ");
  const fact = (value, label) => put("headline", el("div", {}, el("b", {}, value), label));
  if (known(step.median)) fact(ms(step.median) + " ms", "a step, median of " + (step.samples || []).length + " without a collector");
  else if (known(t.time_ns)) fact(ms(t.time_ns) + " ms", made.producer === "ncu" ? "all kernels, each measured alone" : "on the device");
  if (known((d.timing || {}).tokens_per_s)) fact(count(d.timing.tokens_per_s), "tokens/s");
  if (known((d.timing || {}).of_matmul_ceiling_pct)) fact(fixed(d.timing.of_matmul_ceiling_pct, 1) + " %", "of the measured " + d.timing.matmul_ceiling + " matmul ceiling");
  if (known(t.idle_ns)) fact(ms(t.idle_ns) + " ms", "idle between kernels");
  const headroom = known(t.headroom_ns) ? t.headroom_ns : t.kernel_headroom_ns;
  if (known(headroom)) fact(ms(headroom) + " ms", known(t.headroom_ns) ? "above the floor of the ops' mathematics" : "above the floors of the kernels themselves");
  const severe = (d.missing || []).filter((m) => m.severity === "severe");
  for (const m of severe) put("alerts", el("p", { class: "severe" }, "Severe: " + m.name + (m.detail ? ": " + m.detail : "")));

  // ---- passes ------------------------------------------------------------------------------------------------
  {
    const of_kernels = !known(t.headroom_ns);
    const rows = (d.passes || []).map((p) => ({ name: p.name, time_ns: p.time_ns, p }));
    // Steps of a program without our ranges: by kernel, not one row "unattributed".
    const by_kernel = !rows.length && known(made.shown_step) && (d.kernels || []).length > 0;
    if (by_kernel) {
      const most = 8, longest_first = d.kernels.slice().sort((a, b) => b.time_ns - a.time_ns), rest = longest_first.slice(most);
      for (const k of longest_first.slice(0, most)) rows.push({ name: short(k.name), time_ns: k.time_ns, p: k });
      if (rest.length) rows.push({ name: rest.length + " more kernels", time_ns: rest.reduce((s, k) => s + k.time_ns, 0), p: {} });
    }
    const rowColor = (r, i) => (by_kernel && r.name !== "idle" ? Object.values(palette)[i % 7] : passColor(r.name));
    if (!by_kernel && known(t.unattributed_ns) && (t.unattributed_ns > 0 || rows.length)) rows.push({ name: "unattributed", time_ns: t.unattributed_ns, p: {} });
    if (known(t.idle_ns)) rows.push({ name: "idle", time_ns: t.idle_ns, p: {} });
    const total = rows.reduce((s, r) => s + r.time_ns, 0);
    if (!rows.length || !known(t.time_ns)) {
      put("passes", note("No kernel of a step was traced; see what is missing."));
    } else {
      chart(document.getElementById("passes"), "low", "Time of the step by " + (by_kernel ? "kernel" : "pass") + ", in ms; the table below has the numbers", () => ({
        type: "bar",
        data: { labels: ["step"], datasets: rows.map((r, i) => ({ label: r.name, data: [r.time_ns / 1e6], backgroundColor: rowColor(r, i), borderColor: color("--bg"), borderWidth: 1 })) },
        options: { indexAxis: "y", animation: false, maintainAspectRatio: false, scales: { x: { stacked: true, max: total / 1e6, title: { display: true, text: "ms" } }, y: { stacked: true, display: false } },
          plugins: { tooltip: { callbacks: { label: (c) => c.dataset.label + " " + c.parsed.x.toFixed(3) + " ms" } } } },
      })) || put("passes", noCharts());
      const all = rows.concat([{ name: "sum", time_ns: total, class: "sum", p: { dram_bytes_per_s: t.dram_bytes_per_s, dram_of_ceiling_pct: t.dram_of_ceiling_pct, tensor_active_pct: t.tensor_active_pct, tensor_instructions: t.tensor_instructions, launches: t.launches, headroom_ns: t.headroom_ns, kernel_headroom_ns: t.kernel_headroom_ns } }]);
      put("passes", table("GB/s is DRAM traffic of the kernels, % max its share of this device's measured ceiling" + (of_kernels ? "; headroom is above what each kernel's own traffic and work need" : "; headroom is above the floor of the ops' mathematics"), [
        { title: by_kernel ? "kernel" : "pass", text: true, show: (r) => r.name }, { title: "ms", show: (r) => ms(r.time_ns) }, { title: "%", show: (r) => fixed((r.time_ns / total) * 100, 1) },
        { title: "launches", show: (r) => count(r.p.launches) }, { title: "GB/s", show: (r) => gbs(r.p.dram_bytes_per_s) }, { title: "% max", show: (r) => fixed(r.p.dram_of_ceiling_pct, 0) },
        { title: "tensor %", show: (r) => tensor(r.p) }, { title: "headroom ms", show: (r) => ms(of_kernels && !by_kernel ? r.p.kernel_headroom_ns : r.p.headroom_ns) },
        { title: "longest kernel", text: true, name: true, show: (r) => (r.p.top_kernel ? short(r.p.top_kernel) + " " + ms(r.p.top_kernel_ns) : ""), title_of: (r) => r.p.top_kernel },
      ], all).element);
    }
  }

  // ---- steps -------------------------------------------------------------------------------------------------
  {
    const samples = step.samples || [];
    if (!samples.length) {
      put("steps", note(made.producer === "ncu" || made.producer === "nsys" ? "The report of another tool: it has no steps that ran without a collector." : "No step was timed without a collector."));
    } else {
      chart(document.getElementById("steps"), "", "Time of each step, in ms", () => ({
        type: "line",
        data: { labels: samples.map((_, i) => i + 1 + (run.first_timed_step || 0)), datasets: [
          { label: "step", data: samples.map((v) => v / 1e6), borderColor: passColor("forward"), backgroundColor: passColor("forward"), showLine: false, pointRadius: 3 },
          { label: "median", data: samples.map(() => step.median / 1e6), borderColor: passColor("backward"), pointRadius: 0, borderWidth: 2, borderDash: [6, 4] }] },
        options: { animation: false, maintainAspectRatio: false, scales: { x: { title: { display: true, text: "step" } }, y: { title: { display: true, text: "ms" } } } },
      })) || put("steps", noCharts());
      put("steps", note("median " + ms(step.median) + " ms" + (known(step.interval_low) ? ", 95% interval of the median " + ms(step.interval_low) + " to " + ms(step.interval_high) : "") +
        ", 5% of the steps below " + ms(step.p05) + ", 5% above " + ms(step.p95) + ", mean " + ms(step.mean) + "."));
      put("steps", el("details", {}, el("summary", {}, "every step"), table("Steps without a collector", [
        { title: "step", show: (r) => String(r.i), value: (r) => r.i }, { title: "ms", show: (r) => ms(r.v), value: (r) => r.v }], samples.map((v, i) => ({ i: i + 1 + (run.first_timed_step || 0), v })), { sort: 0 }).element));
    }
  }

  // ---- roofline ----------------------------------------------------------------------------------------------
  // Horizontal: how near the kernel's traffic comes to the device's DRAM ceiling; vertical: how near its tensor work comes to the matmul
  // ceiling. A dot at 100 on either axis cannot get faster without doing less.
  {
    const rows = (d.kernels || []).filter((k) => known(k.dram_of_ceiling_pct) && k.time_ns > 0);
    const c = d.ceilings || {};
    if (!known(c.copy_bytes_per_s) || !rows.length) {
      put("roofline", note(!known(c.copy_bytes_per_s) ? "This device's ceilings were not measured, so there is no roof." : "No kernel has DRAM counters."));
    } else {
      const longest = Math.max(...rows.map((k) => k.time_ns));
      const groups = [...new Set(rows.map((k) => k.pass || "unattributed"))];
      const measured = Object.entries(c.matmul_flops_per_s || {}).map(([k, v]) => k + " " + (v / 1e12).toFixed(0) + " TFLOP/s").join(", ");
      chart(document.getElementById("roofline"), "high", "Each kernel by its share of the DRAM ceiling and of the tensor ceiling; the kernel table has the numbers", () => ({
        type: "bubble",
        data: { datasets: groups.map((g) => ({ label: g, clip: false, backgroundColor: passColor(g) + "aa", borderColor: passColor(g),
          data: rows.filter((k) => (k.pass || "unattributed") === g).map((k) => ({ x: k.dram_of_ceiling_pct, y: known(k.tensor_of_ceiling_pct) ? k.tensor_of_ceiling_pct : known(k.tensor_active_pct) ? k.tensor_active_pct : 0, r: 3 + 22 * Math.sqrt(k.time_ns / longest), k })) })) },
        options: { animation: false, maintainAspectRatio: false,
          scales: { x: { min: 0, max: 110, title: { display: true, text: "% of the measured DRAM ceiling" } }, y: { min: 0, max: 110, title: { display: true, text: "% of the measured tensor ceiling" } } },
          plugins: { tooltip: { callbacks: { label: (i) => { const k = i.raw.k; return [short(k.name), where(k) + ", " + k.launches + " launches, " + ms(k.time_ns) + " ms", gbs(k.dram_bytes_per_s) + " GB/s (" + fixed(k.dram_of_ceiling_pct, 0) + " %), tensor " + tensor(k) + (known(k.tensor_active_pct) ? " %" : "") + ", " + (k.bound || "no bound") + ", headroom " + ms(k.headroom_ns) + " ms"]; } } } } },
      })) || put("roofline", noCharts());
      put("roofline", note("One dot per kernel, its area the kernel's time. Ceilings measured on this device" + (c.measured_at ? " (" + c.measured_at + ")" : "") + ": copy " + gbs(c.copy_bytes_per_s) + " GB/s" + (measured ? ", " + measured : "") +
        ". Dots at the right or upper edge are bound by memory or tensor cores; dots near the origin by latency, or by something that is not counted."));
    }
  }

  // ---- kernels -----------------------------------------------------------------------------------------------
  {
    const rows = d.kernels || [];
    if (!rows.length) {
      put("kernel-table", note("No kernel was traced."));
    } else {
      const columns = [
        { title: "kernel", text: true, name: true, show: (k) => short(k.name), value: (k) => short(k.name), title_of: (k) => k.name },
        { title: "where", text: true, show: where, value: where },
        { title: "n", show: (k) => count((k.launches || 0) + (k.copies || 0)), value: (k) => (k.launches || 0) + (k.copies || 0) },
        { title: "ms", show: (k) => ms(k.time_ns), value: (k) => k.time_ns },
        { title: "%", show: (k) => fixed(k.share_pct, 1), value: (k) => k.share_pct },
        { title: "GB/s", show: (k) => gbs(k.dram_bytes_per_s), value: (k) => k.dram_bytes_per_s },
        { title: "% max", show: (k) => fixed(k.dram_of_ceiling_pct, 0), value: (k) => k.dram_of_ceiling_pct },
        { title: "tensor %", show: tensor, value: (k) => (known(k.tensor_active_pct) ? k.tensor_active_pct : k.tensor_instructions) },
        { title: "occ. %", show: (k) => fixed(k.occupancy_pct, 0), value: (k) => k.occupancy_pct },
        { title: "bound", text: true, show: (k) => k.bound || "-", value: (k) => k.bound },
        { title: "headroom ms", show: (k) => ms(k.headroom_ns), value: (k) => k.headroom_ns },
      ];
      const all = table("Click a title to sort. Headroom: ms above the time that the kernel's own traffic and work need at this device's ceilings.", columns, rows, { sort: 3 });
      const input = el("input", { type: "search", id: "filter", placeholder: "attention, backward, memory …" });
      const found = el("span", { class: "faint", role: "status" });
      input.addEventListener("input", () => {
        const q = input.value.trim().toLowerCase();
        const n = all.filter((k) => !q || [k.name, k.pass || "", k.op || "", k.bound || ""].join(" ").toLowerCase().includes(q));
        found.textContent = q ? " " + n + " of " + rows.length : "";
      });
      put("kernel-table", el("p", { class: "filter" }, el("label", { for: "filter" }, "Show kernels with "), input, found), all.element);
    }
  }

  // ---- timeline ----------------------------------------------------------------------------------------------
  {
    const rows = (d.launches || []).filter((l) => known(l.start_ns) && known(l.shown_ns));
    if (!rows.length) {
      put("timeline", note(made.producer === "ncu" ? "Nsight Compute runs kernels one at a time: there is no timeline." : "No launch has a start time."));
    } else {
      const lanes = [...new Set(rows.map((l) => l.stream))].sort((a, b) => a - b);
      const few = rows;
      const groups = [...new Set(few.map((l) => l.pass || "unattributed"))];
      chart(document.getElementById("timeline"), lanes.length > 2 ? "" : "low", "Kernels of one step over time, a row per stream", () => ({
        type: "bar",
        data: { labels: lanes.map((s) => "stream " + s), datasets: groups.map((g) => ({ label: g, backgroundColor: passColor(g), grouped: false, barPercentage: 0.9, minBarLength: 0,
          parsing: { xAxisKey: "x", yAxisKey: "y" }, data: few.filter((l) => (l.pass || "unattributed") === g).map((l) => ({ x: [l.start_ns / 1e6, (l.start_ns + l.shown_ns) / 1e6], y: "stream " + l.stream, l })) })) },
        options: { indexAxis: "y", animation: false, maintainAspectRatio: false, interaction: { mode: "point" },
          scales: { x: { min: 0, max: (d.timeline && d.timeline.window_ns ? d.timeline.window_ns : Math.max(...rows.map((l) => l.start_ns + l.shown_ns))) / 1e6, title: { display: true, text: "ms since the first kernel" } }, y: { stacked: true } },
          plugins: { tooltip: { callbacks: { label: (i) => { const l = i.raw.l; return [short(l.name), where(l) + (known(l.layer) ? " layer " + l.layer : "") + ", " + ms(l.shown_ns) + " ms"]; } } } } },
      })) || put("timeline", noCharts());
      if (few.length < all_launches) put("timeline", note("The " + few.length + " longest of " + all_launches + " launches are drawn."));
      const tl = d.timeline || {};
      put("timeline", note("busy " + ms(tl.busy_ns) + " ms, idle " + ms(tl.idle_ns) + " ms, at least two at a time " + ms(tl.overlap_ns) + " ms, of " + ms(tl.window_ns) + " ms" + (known(made.graph_launches) ? "; " + made.graph_launches + " launches came from a CUDA graph" : "") + "."));
      put("timeline", el("details", {}, el("summary", {}, "every launch"), table("Launches of the step shown", [
        { title: "start ms", show: (l) => ms(l.start_ns), value: (l) => l.start_ns }, { title: "ms", show: (l) => ms(l.shown_ns), value: (l) => l.shown_ns },
        { title: "kernel", text: true, name: true, show: (l) => short(l.name), value: (l) => l.name, title_of: (l) => l.name }, { title: "where", text: true, show: where, value: where },
        { title: "layer", show: (l) => (known(l.layer) ? String(l.layer) : "-"), value: (l) => l.layer }, { title: "stream", show: (l) => String(l.stream), value: (l) => l.stream },
        { title: "grid", text: true, show: (l) => (l.grid || []).join("×"), value: (l) => (l.grid || [0])[0] }], few.slice().sort((a, b) => a.start_ns - b.start_ns), { sort: 1 }).element));
    }
  }

  // ---- missing, environment ----------------------------------------------------------------------------------
  {
    const rows = d.missing || [];
    if (!rows.length) put("missing", note("Nothing: every record was matched and every counter read."));
    else put("missing", el("ul", {}, ...rows.map((m) => el("li", {}, el("span", { class: m.severity === "severe" ? "severe" : m.severity === "notice" ? "notice" : "faint" }, m.severity + " "), el("b", {}, m.name + (m.count > 1 ? " × " + m.count : "")), ": " + (m.detail ? m.detail + ". " : "") + (m.advice || "")))));
    const dl = el("dl");
    const line = (k, v) => { if (v !== undefined && v !== null && v !== "" && v !== "-") dl.append(el("dt", {}, k), el("dd", {}, String(v))); };
    line("command", run.command);
    line("measured", run.profiled_at);
    line("code", (run.git_revision || "") + (run.build_type ? " " + run.build_type : ""));
    line("GPU", [env.gpu, env.chip, env.compute_capability ? "cc " + env.compute_capability : "", known(env.sm_count) ? env.sm_count + " SMs" : ""].filter(Boolean).join(", "));
    for (const [k, v] of Object.entries(env.versions || {})) line(k, v);
    if (known(env.sm_clock_mhz_median)) line("SM clock", fixed(env.sm_clock_mhz_median, 0) + " MHz (" + fixed(env.sm_clock_mhz_min, 0) + " to " + fixed(env.sm_clock_mhz_max, 0) + ")");
    if (known(env.power_w_median)) line("power", fixed(env.power_w_median, 0) + " W, at most " + fixed(env.power_w_max, 0) + " W");
    if (known(env.temperature_c_max)) line("temperature", "at most " + fixed(env.temperature_c_max, 0) + " °C");
    line("throttled", (env.throttle_reasons || []).join(", "));
    for (const [k, v] of Object.entries(run.variants || {})) line("variant " + k, v);
    for (const [k, v] of Object.entries(run.memory_bytes || {})) line("memory " + k, (v / 2 ** 30).toFixed(2) + " GiB");
    line("data", (run.data || []).join(" "));
    line("loss", known(run.first_loss) ? fixed(run.first_loss, 4) + " to " + fixed(run.last_loss, 4) : "");
    line("collected by", made.producer);
    line("kernel times", (made.time_basis || "").replaceAll("_", " "));
    line("traced steps", made.traced_steps);
    line("counted steps", made.counted_steps);
    line("cost of tracing", known(made.traced_overhead_pct) ? fixed(made.traced_overhead_pct, 1) + " %" : "");
    line("cost of counting", known(made.collecting_ns) ? (made.collecting_ns / 1e9).toFixed(1) + " s" : "");
    put("environment", dl);
  }
})();
