// node page_test.js PAGE: runs the page's scripts with a document that only remembers, and prints what
// they have made of the trace. For machines without a browser; page_test.py reads it.
"use strict";
const fs = require("fs"), vm = require("vm");

class Element {
  constructor() {
    Object.assign(this, {style: {}, dataset: {}, children: [], clientWidth: 1000, clientHeight: 700,
      scrollTop: 0, textContent: "", value: ""});
  }
  appendChild(child) { this.children.push(child); }
  append(...children) { this.children.push(...children); }
  getBoundingClientRect() { return {left: 0, top: 0}; }
  getContext() {
    return new Proxy(pen, {get: (its, name) => name in its ? its[name] : () => {}});
  }
  // Text of a table, a line for each row.
  get innerText() {
    const text = of => of.children.length === 0 ? of.textContent : of.children.map(text).join("\t");
    return this.children.map(made => made.children.map(text).join("\n")).join("");
  }
}
const drawn = [];
const pen = {fillText: text => drawn.push(text)};

const page = fs.readFileSync(process.argv[2], "utf8"), elements = new Map();
const document = {
  body: new Element(),
  createElement: () => new Element(),
  getElementById: id => {
    if (!elements.has(id)) elements.set(id, new Element());
    return elements.get(id);
  },
};
const context = vm.createContext({document, window: {innerWidth: 1000, innerHeight: 800},
  HTMLInputElement: class {}, console});
for (const [, id, text] of page.matchAll(/<script type="application\/json" id="(\w+)">(.*?)<\/script>/gs)) {
  document.getElementById(id).textContent = text;
}
for (const [, script] of page.matchAll(/<script>\n(.*?)<\/script>/gs)) vm.runInContext(script, context);

const run = code => vm.runInContext(code, context);
const result = {slices: Number(document.body.dataset.slices), drawn: drawn.length};
run(`var step = model.processes[0].tracks.flatMap(t => t.all).find(s => s.cat === "send");
  var whole = to - from`);
run(`canvas.onwheel({preventDefault() {}, shiftKey: false, deltaY: -100, clientX: x(step.from)})`);
result.zoomed = run("(to - from) / whole");
run(`window.onkeydown({target: null, key: "0"})`);
result.all = run("(to - from) / whole");
run(`var there = {clientX: x((step.from + step.to) / 2), clientY: axis + step.track.y + 6};
  canvas.onmousemove(there);
  canvas.onclick(there)`);
result.tip = run("tip.textContent");
result.selected = document.getElementById("selected").innerText;
run("var before = height; canvas.onclick({clientX: 20, clientY: axis + 5})");
result.folded = run("height < before && !model.processes[0].open");
run(`byId("find").oninput({target: {value: "MOVES"}})`);
result.found = document.getElementById("found").textContent;
result.phases = document.getElementById("phases").innerText;
result.networks = document.getElementById("networks").innerText;
result.report = document.getElementById("text").textContent;
console.log(JSON.stringify(result));
