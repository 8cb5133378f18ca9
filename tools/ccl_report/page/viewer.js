"use strict";

const colors = {
  "operation": "#4a7ab5", "not ended": "#c03a2b", "queued": "#e0a030", "launch": "#8298b0",
  "send": "#7a5ab5", "receive": "#2f8f9a", "wait": "#e0a030",
  "waits for the launch before": "#c4c4c4", "waits for the first data": "#e3b505",
  "moves data": "#559955", "after the last data": "#a9c9a9",
};
const colorOf = slice => colors[slice.name] || colors[slice.cat] || "#888888";
const keys = [["operation", "operation"], ["not ended", "operation that has not ended"],
  ["queued", "waits: for its stream, or to send"], ["launch", "lanes of a channel"],
  ["waits for the launch before", "wait for the launch before"],
  ["waits for the first data", "wait for the first data"], ["moves data", "data moves"],
  ["after the last data", "after the last data"], ["send", "step that is sent"],
  ["receive", "step that is received"]];

const left = 260, axis = 22, lineHeight = 16, gap = 4, headHeight = 22;
const byId = id => document.getElementById(id);
const view = byId("view"), canvas = byId("lines"), room = byId("room"), tip = byId("tip");
const pen = canvas.getContext("2d");
let model = modelOf({traceEvents: []}), lines = [], height = 0;
let from = 0, to = 1, selected = null, wanted = "";

const width = () => canvas.clientWidth - left;
const x = us => left + (us - from) / (to - from) * width();
const timeAt = px => from + (px - left) / width() * (to - from);

// Places processes and tracks below each other.
function place() {
  lines = [];
  height = 0;
  for (const process of model.processes) {
    lines.push({process, y: height, height: headHeight});
    height += headHeight;
    if (!process.open) continue;
    for (const track of process.tracks) {
      const its = Math.max(track.levels.length, 1) * lineHeight + gap;
      track.y = height;
      lines.push({track, y: height, height: its});
      height += its;
    }
  }
  room.style.height = Math.max(height + axis - view.clientHeight + 20, 0) + "px";
}

function drawAxis() {
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, canvas.clientWidth, axis);
  const least = (to - from) / Math.max(width() / 110, 1);
  const power = Math.pow(10, Math.floor(Math.log10(least)));
  const step = power * [1, 2, 5, 10].find(by => power * by >= least);
  for (let t = Math.ceil(from / step) * step; t < to; t += step) {
    pen.fillStyle = "#e4e4e4";
    pen.fillRect(x(t), axis, 1, canvas.clientHeight);
    pen.fillStyle = "#555";
    pen.fillText(say(t), x(t) + 3, 14);
  }
}

function drawSlice(slice, y) {
  const begin = Math.max(x(slice.from), left), end = Math.min(x(slice.to), canvas.clientWidth);
  const wide = Math.max(end - begin, 1);
  const hit = wanted === "" || slice.name.toLowerCase().includes(wanted);
  pen.globalAlpha = hit ? 1 : 0.2;
  pen.fillStyle = colorOf(slice);
  pen.fillRect(begin, y, wide, lineHeight - 2);
  if (wide > 40) {
    pen.fillStyle = "#fff";
    pen.save();
    pen.beginPath();
    pen.rect(begin, y, wide - 2, lineHeight);
    pen.clip();
    pen.fillText(slice.name, begin + 3, y + 11);
    pen.restore();
  }
  pen.globalAlpha = 1;
  if (slice === selected) {
    pen.strokeStyle = "#000";
    pen.lineWidth = 2;
    pen.strokeRect(begin, y, wide, lineHeight - 2);
  }
}

// Draws the slices of a level that are in view. Of several on one pixel it draws the longest of the
// first few.
function drawLevel(level, y) {
  const pixel = (to - from) / width(), few = 8;
  for (let n = firstAfter(level, from); n < level.length && level[n].from < to;) {
    const next = Math.max(firstAfter(level, level[n].from + pixel), n + 1);
    let longest = level[n];
    for (const slice of level.slice(n + 1, Math.min(next, n + few))) {
      if (slice.to - slice.from > longest.to - longest.from) longest = slice;
    }
    drawSlice(longest, y);
    n = next;
  }
}

function drawArrow(top) {
  if (selected === null || selected.arrow === null) return;
  const {other, sends} = selected.arrow;
  const ends = sends ? [selected, other] : [other, selected];
  if (!ends[0].track.process.open || !ends[1].track.process.open) return;
  const point = slice => [x(slice.from),
    axis + slice.track.y - top + slice.depth * lineHeight + lineHeight / 2];
  const [[ax, ay], [bx, by]] = ends.map(point);
  pen.strokeStyle = "#000";
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(ax, ay);
  pen.lineTo(bx, by);
  pen.stroke();
  const angle = Math.atan2(by - ay, bx - ax);
  pen.beginPath();
  pen.moveTo(bx, by);
  for (const turn of [0.4, -0.4]) {
    pen.lineTo(bx - 9 * Math.cos(angle + turn), by - 9 * Math.sin(angle + turn));
  }
  pen.fillStyle = "#000";
  pen.fill();
}

function draw() {
  const ratio = window.devicePixelRatio || 1, tall = view.clientHeight, top = view.scrollTop;
  canvas.style.height = tall + "px";
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = tall * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, canvas.clientWidth, tall);
  pen.font = "11px system-ui, sans-serif";
  drawAxis();
  pen.save();
  pen.beginPath();
  pen.rect(0, axis, canvas.clientWidth, tall);
  pen.clip();
  const seen = lines.filter(line => line.y + line.height > top && line.y < top + tall);
  for (const line of seen) {
    const y = axis + line.y - top;
    if (line.track) line.track.levels.forEach((level, d) => drawLevel(level, y + d * lineHeight));
  }
  for (const line of seen) {
    const y = axis + line.y - top;
    pen.fillStyle = line.process ? "#eef1f5" : "#fff";
    pen.fillRect(0, y, line.process ? canvas.clientWidth : left - 2, line.height);
    pen.fillStyle = "#222";
    if (line.process) {
      pen.font = "bold 12px system-ui, sans-serif";
      pen.fillText((line.process.open ? "\u25be " : "\u25b8 ") + line.process.name, 6, y + 15);
      pen.font = "11px system-ui, sans-serif";
    } else {
      pen.fillText(line.track.name, 18, y + 12, left - 24);
    }
  }
  drawArrow(top);
  pen.restore();
}

// The line and the slice at a place of the canvas. Near slices count, as they may be thin.
function at(event) {
  const box = canvas.getBoundingClientRect(), px = event.clientX - box.left;
  const py = event.clientY - box.top - axis + view.scrollTop;
  const line = lines.find(one => py >= one.y && py < one.y + one.height);
  if (!line || event.clientY - box.top < axis) return {};
  if (!line.track || px < left) return {line};
  const level = line.track.levels[Math.floor((py - line.y) / lineHeight)] || [];
  const near = (to - from) / width() * 3, time = timeAt(px);
  const slice = level[firstAfter(level, time - near)];
  return {line, slice: slice && slice.from <= time + near ? slice : undefined};
}

function textOf(slice) {
  let text = slice.track.process.name + "\n" + slice.track.name + "\n" + slice.name + ", " +
    say(slice.to - slice.from) + " from " + say(slice.from);
  if (slice.args.bytes !== undefined) text += "\n" + sayBytes(slice.args.bytes);
  return text;
}

const cell = (row, text, kind = "td") => {
  const made = document.createElement(kind);
  made.textContent = text;
  row.appendChild(made);
};
function table(into, head, rows) {
  into.textContent = "";
  if (rows.length === 0) {
    into.textContent = "None were noted.";
    return;
  }
  const made = document.createElement("table");
  for (const [n, texts] of [head, ...rows].entries()) {
    const row = document.createElement("tr");
    for (const text of texts) cell(row, text, n === 0 && head.length > 0 ? "th" : "td");
    if (texts.length > 0) made.appendChild(row);
  }
  into.appendChild(made);
}

function select(slice) {
  selected = slice;
  if (slice !== null) {
    const rows = [["name", slice.name], ["rank", slice.track.process.name],
      ["track", slice.track.name], ["from", say(slice.from)], ["took", say(slice.to - slice.from)]];
    for (const [name, value] of Object.entries(slice.args)) rows.push([name, String(value)]);
    if (slice.arrow !== null) {
      const {other, sends} = slice.arrow;
      rows.push([sends ? "arrives at" : "was sent by", other.track.process.name]);
      const ends = sends ? [slice, other] : [other, slice];
      rows.push(["from its begin to its arrival", say(ends[1].to - ends[0].from)]);
    }
    table(byId("selected"), [], rows);
  }
  draw();
}

function summarize() {
  const {names, rows} = phasesOf(model);
  table(byId("phases"), ["operation", "launches of a channel", ...names],
    [...rows].map(([name, row]) => [name, row.launches,
      ...row.us.map(us => say(us / row.launches))]));
  table(byId("networks"), ["rank and network", "steps", "bytes", "while steps move",
    "mean wait to send"], [...networksOf(model)].map(([name, row]) => [name, row.steps,
      sayBytes(row.bytes),
      row.busy > 0 ? (row.bytes / row.busy / 1e3).toFixed(3) + " GB/s" : "",
      row.steps > 0 && row.waited > 0 ? say(row.waited / row.steps) : ""]));
}

function showAll() {
  const margin = (model.end - model.begin) * 0.01;
  from = model.begin - margin;
  to = model.end + margin;
  draw();
}

function show(trace) {
  model = modelOf(trace);
  selected = null;
  place();
  summarize();
  showAll();
  document.body.dataset.slices = model.slices;
}

function zoom(time, by) {
  from = time - (time - from) * by;
  to = time + (to - time) * by;
  draw();
}
function move(part) {
  const by = (to - from) * part;
  from += by;
  to += by;
  draw();
}

canvas.onwheel = event => {
  event.preventDefault();
  if (event.shiftKey) return move(event.deltaY > 0 ? 0.1 : -0.1);
  zoom(timeAt(event.clientX - canvas.getBoundingClientRect().left), event.deltaY < 0 ? 0.8 : 1.25);
};
let held = null, moved = false;
canvas.onmousedown = event => {
  held = [event.clientX, event.clientY];
  moved = false;
};
window.onmouseup = () => { held = null; };
canvas.onmousemove = event => {
  if (held !== null) {
    const dx = held[0] - event.clientX, dy = held[1] - event.clientY;
    if (Math.abs(dx) + Math.abs(dy) > 2 || moved) {
      moved = true;
      held = [event.clientX, event.clientY];
      view.scrollTop += dy;
      move(dx / width());
    }
  }
  const {slice} = at(event);
  tip.style.display = slice ? "block" : "none";
  if (!slice) return;
  tip.textContent = textOf(slice);
  tip.style.left = Math.min(event.clientX + 12, window.innerWidth - 360) + "px";
  tip.style.top = event.clientY + 14 + "px";
};
canvas.onmouseleave = () => { tip.style.display = "none"; };
canvas.onclick = event => {
  if (moved) return;
  const {line, slice} = at(event);
  if (line && line.process) {
    line.process.open = !line.process.open;
    place();
    draw();
  } else if (slice) {
    select(slice);
  }
};
canvas.ondblclick = showAll;
view.onscroll = draw;
window.onresize = () => {
  place();
  draw();
};
window.onkeydown = event => {
  if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey) return;
  const middle = (from + to) / 2;
  const does = {w: () => zoom(middle, 0.7), s: () => zoom(middle, 1.4), a: () => move(-0.2),
    d: () => move(0.2), 0: showAll, f: () => {
      if (selected === null) return;
      const margin = Math.max(selected.to - selected.from, 0.01);
      from = selected.from - margin;
      to = selected.to + margin;
      draw();
    }}[event.key.toLowerCase()];
  if (does) does();
};
byId("all").onclick = showAll;
byId("find").oninput = event => {
  wanted = event.target.value.trim().toLowerCase();
  let found = 0;
  for (const process of model.processes) {
    for (const track of process.tracks) {
      for (const slice of track.all) found += slice.name.toLowerCase().includes(wanted) ? 1 : 0;
    }
  }
  byId("found").textContent = wanted === "" ? "" : found + " found";
  draw();
};
byId("file").onchange = async event => {
  const file = event.target.files[0];
  if (!file) return;
  try {
    show(JSON.parse(await file.text()));
    byId("text").textContent = file.name;
  } catch (error) {
    byId("text").textContent = file.name + " is no trace: " + error.message;
  }
};

for (const [name, text] of keys) {
  const item = document.createElement("span"), color = document.createElement("i");
  color.style.background = colors[name];
  item.append(color, text);
  byId("key").appendChild(item);
}
byId("text").textContent = JSON.parse(byId("report").textContent);
show(JSON.parse(byId("trace").textContent));
