// The page of one or more logs: curves by Chart.js, which is put into the file, and the table of log_report.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "cli/log_report.h"
#include "profiler/report/html.h"
#include "profiler/report/page_files.h"

namespace cli {
namespace {

using nlohmann::ordered_json;

// More points than a screen has columns only make the page slow; each point is then the mean of its steps.
constexpr size_t kMostPoints = 1500;

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">
<title>stepscope training log</title>
<style>
)";

constexpr const char* kBody = R"(
</style>
</head>
<body>
<header>
<h1>Training log</h1>
<button type="button" id="theme" class="tool">Dark</button>
</header>
<main>
<noscript><p>The curves are drawn by a script inside this file; scripts are switched off. The data is at the end of the file, as JSON.</p></noscript>
<ul id="logs"></ul>
<section aria-labelledby="h-loss"><h2 id="h-loss">Loss</h2>
<p><label><input type="checkbox" id="log-scale"> logarithmic</label></p><div id="loss"></div></section>
<section aria-labelledby="h-accuracy" id="s-accuracy"><h2 id="h-accuracy">Accuracy on the evaluation set</h2><div id="accuracy"></div></section>
<section aria-labelledby="h-norm"><h2 id="h-norm">Gradient norm</h2><div id="norm"></div></section>
<section aria-labelledby="h-rate"><h2 id="h-rate">Learning rate</h2><div id="rate"></div></section>
<section aria-labelledby="h-ms"><h2 id="h-ms">Time of a step, ms</h2><div id="ms"></div></section>
</main>
<footer>Made by <span>stepscope report</span>. Each point of a long run is the mean of its neighbours; the file that --csv writes has every step.</footer>
<script type="application/json" id="data">)";

constexpr const char* kScript = R"(
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const palette = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a5a00", "#6a51a3"];
  let charts = [];
  const list = document.getElementById("logs");
  for (const log of data.logs) {
    const item = document.createElement("li");
    const name = document.createElement("b");
    name.textContent = log.name;
    item.append(name, ": " + log.what + ". " + log.facts);
    for (const note of log.notes) {
      const line = document.createElement("div");
      line.className = "faint";
      line.textContent = note;
      item.append(line);
    }
    list.append(item);
  }
  const line = (label, points, i, extra) => Object.assign({ label, data: points.map(([x, y]) => ({ x, y })), borderColor: palette[i % palette.length],
    backgroundColor: palette[i % palette.length], borderWidth: 1.5, pointRadius: points.length < 2 ? 3 : 0, pointHitRadius: 6 }, extra);
  function draw(id, title, sets, scale) {
    const place = document.getElementById(id);
    place.replaceChildren();
    const shown = sets.filter((s) => s.data.length > 0);
    if (shown.length === 0 || typeof Chart === "undefined") {
      place.textContent = shown.length === 0 ? "Nothing of it was logged." : "This build of stepscope has no chart library (Debian package libjs-chart.js).";
      return;
    }
    const box = document.createElement("div");
    box.className = "chart";
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", title + " over the steps");
    box.append(canvas);
    place.append(box);
    charts.push(new Chart(canvas, { type: "line", data: { datasets: shown }, options: { animation: false, maintainAspectRatio: false, parsing: false, normalized: true,
      interaction: { mode: "nearest", axis: "x", intersect: false },
      scales: { x: { type: "linear", title: { display: true, text: "step" } }, y: { type: scale || "linear", title: { display: true, text: title } } } } }));
  }
  function drawAll() {
    for (const c of charts) c.destroy();
    charts = [];
    if (typeof Chart !== "undefined") {
      Chart.defaults.color = color("--text");
      Chart.defaults.borderColor = color("--line");
      Chart.defaults.font.size = 13;
    }
    const many = data.logs.length > 1;
    const name = (log, what) => many ? log.name + " " + what : what;
    const each = (what, key) => data.logs.map((log, i) => line(name(log, what), log[key], i));
    const validation = data.logs.map((log, i) => line(name(log, "validation"), log.validation, i + (many ? 0 : 1), { borderDash: [6, 4], pointRadius: 3 }));
    const scale = document.getElementById("log-scale").checked ? "logarithmic" : "linear";
    draw("loss", "loss", each("training", "loss").concat(validation), scale);
    const right = data.logs.map((log, i) => line(name(log, "accuracy"), log.accuracy, i, { pointRadius: 3 }));
    document.getElementById("s-accuracy").hidden = right.every((s) => s.data.length === 0);
    draw("accuracy", "accuracy", right);
    draw("norm", "norm", each("gradient norm", "norm"));
    draw("rate", "rate", each("learning rate", "rate"));
    draw("ms", "ms", each("ms", "ms"));
  }
  const root = document.documentElement, theme = document.getElementById("theme");
  theme.addEventListener("click", () => {
    const dark = root.dataset.theme !== "dark";
    root.dataset.theme = dark ? "dark" : "light";
    theme.textContent = dark ? "Light" : "Dark";
    drawAll();
  });
  document.getElementById("log-scale").addEventListener("change", drawAll);
  drawAll();
})();
)";

ordered_json points(const std::vector<LogInterval>& intervals, std::optional<double> LogInterval::*member) {
  ordered_json out = ordered_json::array();
  for (const LogInterval& i : intervals)
    if (i.*member) out.push_back({i.to, *(i.*member)});
  return out;
}
ordered_json points(const std::vector<gpt2::LoggedValue>& values) {
  ordered_json out = ordered_json::array();
  for (const gpt2::LoggedValue& v : values) out.push_back({v.step, v.value});
  return out;
}

}  // namespace

std::string log_html_text(const std::vector<gpt2::RunLog>& logs) {
  const auto intervals = log_intervals(logs, kMostPoints);
  const auto summaries = log_summaries(logs);
  ordered_json all = ordered_json::array();
  for (size_t l = 0; l < logs.size(); ++l) {
    const LogSummary& s = summaries[l];
    std::string facts = fmt::format("{} steps; {}", s.steps, s.state);
    if (s.final_loss) facts += fmt::format("; final loss {:.6f}", *s.final_loss);
    if (s.lowest_validation) facts += fmt::format("; lowest validation loss {:.6f}", *s.lowest_validation);
    if (s.tokens_per_s) facts += fmt::format("; {:.0f} tokens/s", *s.tokens_per_s);
    all.push_back({{"name", s.name},
                   {"what", s.what},
                   {"facts", facts},
                   {"notes", s.notes},
                   {"loss", points(intervals[l], &LogInterval::loss)},
                   {"norm", points(intervals[l], &LogInterval::grad_norm)},
                   {"rate", points(intervals[l], &LogInterval::learning_rate)},
                   {"ms", points(intervals[l], &LogInterval::ms)},
                   {"validation", points(logs[l].validations)},
                   {"accuracy", points(logs[l].accuracies)}});
  }
  const std::string data = stepscope::json_text(ordered_json{{"logs", all}}, -1);
  std::string out = kHead;
  out += profiler::page::css();
  out += kBody + profiler::for_script_element(data) + "</script>\n";
  if (!profiler::page::charts().empty()) out += "<script>" + std::string(profiler::page::charts()) + "</script>\n";
  return out + "<script>" + kScript + "</script>\n</body>\n</html>\n";
}

}  // namespace cli
