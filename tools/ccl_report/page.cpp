#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <string_view>

#include "timeline.hpp"

namespace report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view head = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>ccl_report</title>
<style>
body { font: 14px system-ui, sans-serif; margin: 1em; color: #222; background: #fff; }
pre { background: #f4f4f4; padding: .7em; overflow: auto; max-height: 16em; }
#line { width: 100%; display: block; border: 1px solid #ccc; cursor: grab; }
#tip { position: fixed; display: none; background: #222; color: #fff; padding: .4em .6em;
  border-radius: 4px; font-size: 12px; white-space: pre; pointer-events: none; }
.key span { display: inline-block; width: 1em; height: 1em; margin: 0 .3em 0 1em;
  vertical-align: -2px; }
</style></head><body>
<h1>Operations of all ranks</h1>
<p>The wheel zooms, a drag moves, a double click shows all.
<span class="key"><span style="background:#4a7ab5"></span>done
<span style="background:#e0a030"></span>queued
<span style="background:#c03a2b"></span>not ended</span></p>
<canvas id="line"></canvas><div id="tip"></div>
<h2>Report</h2><pre id="text"></pre>
<script>
const data = )";

constexpr std::string_view tail = R"(;
const rowHeight = 26, left = 150, axis = 22;
const canvas = document.getElementById("line"), tip = document.getElementById("tip");
const pen = canvas.getContext("2d");
document.getElementById("text").textContent = data.text;
let end = 1;
for (const row of data.rows) for (const s of row.slices) end = Math.max(end, s.ended);
let from = 0, to = end * 1.02;
const width = () => canvas.clientWidth - left;
const x = us => left + (us - from) / (to - from) * width();
const us = px => from + (px - left) / width() * (to - from);
const say = t => t >= 1e6 ? (t / 1e6).toFixed(3) + " s" : t >= 1e3 ? (t / 1e3).toFixed(3) + " ms"
  : t.toFixed(3) + " us";
function bar(a, b, y, height, color) {
  const begin = Math.max(x(a), left), stop = Math.min(x(b), canvas.clientWidth);
  if (stop < left || begin > canvas.clientWidth) return;
  pen.fillStyle = color;
  pen.fillRect(begin, y, Math.max(stop - begin, 1), height);
}
function draw() {
  const ratio = window.devicePixelRatio || 1;
  const height = axis + data.rows.length * rowHeight;
  canvas.style.height = height + "px";
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = height * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, canvas.clientWidth, height);
  pen.font = "12px system-ui, sans-serif";
  const step = Math.pow(10, Math.floor(Math.log10((to - from) / 4)));
  for (let t = Math.ceil(from / step) * step; t < to; t += step) {
    pen.fillStyle = "#eee";
    pen.fillRect(x(t), axis, 1, height);
    pen.fillStyle = "#666";
    pen.fillText(say(t), x(t) + 3, 14);
  }
  data.rows.forEach((row, n) => {
    const y = axis + n * rowHeight;
    for (const s of row.slices) {
      bar(s.queued, s.started < 0 ? s.ended : s.started, y + 16, 5, "#e0a030");
      if (s.started < 0) continue;
      bar(s.started, s.ended, y + 4, 11, s.open ? "#c03a2b" : "#4a7ab5");
    }
    pen.clearRect(0, y, left - 4, rowHeight);
    pen.fillStyle = "#222";
    pen.fillText("rank " + row.rank + " " + row.name, 4, y + 15);
  });
}
function at(event) {
  const box = canvas.getBoundingClientRect(), t = us(event.clientX - box.left);
  const row = data.rows[Math.floor((event.clientY - box.top - axis) / rowHeight)];
  if (!row || event.clientX - box.left < left) return null;
  const near = (to - from) / width() * 2;
  for (const s of row.slices) if (t >= s.queued - near && t <= s.ended + near) return [row, s];
  return null;
}
canvas.onwheel = event => {
  event.preventDefault();
  const t = us(event.clientX - canvas.getBoundingClientRect().left);
  const by = event.deltaY < 0 ? 0.8 : 1.25;
  from = t - (t - from) * by;
  to = t + (to - t) * by;
  draw();
};
let held = null;
canvas.onmousedown = event => { held = event.clientX; };
window.onmouseup = () => { held = null; };
canvas.ondblclick = () => { from = 0; to = end * 1.02; draw(); };
canvas.onmousemove = event => {
  if (held !== null) {
    const by = (held - event.clientX) / width() * (to - from);
    from += by;
    to += by;
    held = event.clientX;
    draw();
  }
  const found = at(event);
  tip.style.display = found ? "block" : "none";
  if (!found) return;
  const [row, s] = found;
  tip.textContent = "rank " + row.rank + " on " + row.host + "\n" + s.text + "\n" +
    (s.started < 0 ? "not begun, called " + say(s.ended - s.queued) + " before the record"
      : (s.open ? "runs for " : "took ") + say(s.ended - s.started) + ", queued for " +
        say(s.started - s.queued)) + "\nfrom " + say(s.queued);
  tip.style.left = Math.min(event.clientX + 12, window.innerWidth - 320) + "px";
  tip.style.top = event.clientY + 14 + "px";
};
window.onresize = draw;
draw();
</script></body></html>
)";

std::string text_of(const ccl::Operation& op) {
  std::string text =
      op.number == 0 ? fmt::format("call {}", op.call) : fmt::format("operation {}", op.number);
  text += fmt::format(" {}", op.what);
  if (op.count >= 0 && op.type[0] != 0) text += fmt::format(", {} {}", op.count, op.type);
  if (op.redop[0] != 0) text += fmt::format(", {}", op.redop);
  return text + fmt::format(": {}", ccl::name(op.state));
}

/// Returns a line on the phases of the operation's first channel, or nothing.
std::string phases_text(const Row& row, const ccl::Operation& op) {
  for (const Phases& phases : row.phases) {
    if (phases.of.channel != 0 || phases.of.call != op.call ||
        phases.of.composition != op.composition) {
      continue;
    }
    return fmt::format(
        "\nwaits for the launch before {:.3f} us, for the first data {:.3f} us, moves data {:.3f} "
        "us, "
        "then {:.3f} us",
        phases.ready_us - phases.begun_us, phases.first_data_us - phases.ready_us,
        phases.last_data_us - phases.first_data_us, phases.ended_us - phases.last_data_us);
  }
  return {};
}

/// JSON in a script: no text of a record ends the script.
std::string in_script(const Json& data) {
  std::string text = data.dump(-1, ' ', true, Json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find('<', at)) != text.npos;) text.replace(at, 1, "\\u003c");
  return text;
}

}  // namespace

std::string page_of(const std::vector<Row>& rows, const std::string& text) {
  Json data{{"text", text}, {"rows", Json::array()}};
  for (const Row& row : rows) {
    Json slices = Json::array();
    for (const Slice& slice : row.slices) {
      slices.push_back({{"text", text_of(slice.operation) + phases_text(row, slice.operation)},
                        {"queued", slice.queued_us},
                        {"started", slice.operation.started_ns == 0 ? -1 : slice.started_us},
                        {"ended", slice.ended_us},
                        {"open", slice.operation.ended_ns == 0}});
    }
    data["rows"].push_back({{"rank", row.rank},
                            {"name", row.name},
                            {"host", row.host},
                            {"slices", std::move(slices)}});
  }
  return fmt::format("{}{}{}", head, in_script(data), tail);
}

}  // namespace report
