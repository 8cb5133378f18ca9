"use strict";

// A trace in the JSON format of Chrome's tracing, as processes with tracks. The slices of a track lie
// within each other: those of one depth do not overlap, and are sorted by their begin.
function modelOf(trace) {
  const processes = new Map(), byTrack = new Map(), arrows = new Map();
  const processOf = pid => {
    if (!processes.has(pid)) {
      processes.set(pid, {name: "process " + pid, order: pid, tracks: [], open: true});
    }
    return processes.get(pid);
  };
  const trackOf = event => {
    const key = event.pid + "/" + event.tid;
    if (!byTrack.has(key)) {
      const process = processOf(event.pid);
      const track = {name: "track " + event.tid, order: event.tid, all: [], levels: [], process};
      byTrack.set(key, track);
      process.tracks.push(track);
    }
    return byTrack.get(key);
  };
  const model = {processes: [], slices: 0, begin: 0, end: 1};
  for (const event of trace.traceEvents || trace) {
    if (event.ph === "M") {
      if (event.name === "process_name") processOf(event.pid).name = event.args.name;
      if (event.name === "process_sort_index") processOf(event.pid).order = event.args.sort_index;
      if (event.name === "thread_name") trackOf(event).name = event.args.name;
      if (event.name === "thread_sort_index") trackOf(event).order = event.args.sort_index;
    } else if (event.ph === "X") {
      const track = trackOf(event);
      track.all.push({name: event.name, cat: event.cat || "", from: event.ts,
        to: event.ts + (event.dur || 0), args: event.args || {}, track, arrow: null});
    } else if (event.ph === "s" || event.ph === "f") {
      if (!arrows.has(event.id)) arrows.set(event.id, {});
      arrows.get(event.id)[event.ph] = event;
    }
  }
  for (const track of byTrack.values()) {
    track.all.sort((a, b) => a.from - b.from || b.to - a.to);
    const within = [];
    for (const slice of track.all) {
      while (within.length > 0 && within[within.length - 1].to <= slice.from) within.pop();
      slice.depth = within.length;
      within.push(slice);
      (track.levels[slice.depth] = track.levels[slice.depth] || []).push(slice);
      model.end = Math.max(model.end, slice.to);
      ++model.slices;
    }
  }
  // A wait ends where the step that an arrow leads from begins.
  const endOf = event => {
    const track = event && byTrack.get(event.pid + "/" + event.tid);
    if (!track) return null;
    if (!track.byBegin) {
      track.byBegin = new Map(
        track.all.filter(slice => slice.cat !== "wait").map(slice => [slice.from, slice]));
    }
    return track.byBegin.get(event.ts);
  };
  for (const {s, f} of arrows.values()) {
    const from = endOf(s), to = endOf(f);
    if (!from || !to) continue;
    from.arrow = {other: to, sends: true};
    to.arrow = {other: from, sends: false};
  }
  model.processes = [...processes.values()].sort((a, b) => a.order - b.order);
  for (const process of model.processes) process.tracks.sort((a, b) => a.order - b.order);
  return model;
}

// Index of the first slice of a level that ends after a time.
function firstAfter(level, time) {
  let low = 0, high = level.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (level[middle].to > time) high = middle; else low = middle + 1;
  }
  return low;
}

const say = us => Math.abs(us) >= 1e6 ? (us / 1e6).toFixed(3) + " s"
  : Math.abs(us) >= 1e3 ? (us / 1e3).toFixed(3) + " ms" : us.toFixed(3) + " us";
const sayBytes = bytes => bytes >= 1 << 20 ? (bytes / (1 << 20)).toFixed(1) + " MiB"
  : bytes >= 1024 ? (bytes / 1024).toFixed(1) + " KiB" : bytes + " bytes";

// Mean phases of the launches of each operation.
function phasesOf(model) {
  const names = ["waits for the launch before", "waits for the first data", "moves data",
    "after the last data"];
  const rows = new Map();
  for (const process of model.processes) {
    for (const track of process.tracks) {
      for (const launch of track.levels[0] || []) {
        if (launch.cat !== "launch") continue;
        if (!rows.has(launch.name)) rows.set(launch.name, {launches: 0, us: names.map(() => 0)});
        const row = rows.get(launch.name);
        ++row.launches;
        const inner = track.levels[1] || [];
        for (let n = firstAfter(inner, launch.from); n < inner.length; ++n) {
          if (inner[n].from >= launch.to) break;
          const which = names.indexOf(inner[n].name);
          if (which >= 0) row.us[which] += inner[n].to - inner[n].from;
        }
      }
    }
  }
  return {names, rows};
}

// Steps over each network and direction of a process: bytes, time with a step on its way, waits.
function networksOf(model) {
  const rows = new Map();
  for (const process of model.processes) {
    for (const track of process.tracks) {
      for (const slice of track.all) {
        if (slice.cat !== "send" && slice.cat !== "receive" && slice.cat !== "wait") continue;
        const sends = slice.cat !== "receive";
        const key = process.name + (sends ? ": sends over " : ": receives over ") +
          slice.args.network;
        if (!rows.has(key)) rows.set(key, {steps: 0, bytes: 0, waited: 0, times: []});
        const row = rows.get(key);
        if (slice.cat === "wait") {
          row.waited += slice.to - slice.from;
          continue;
        }
        ++row.steps;
        row.bytes += slice.args.bytes;
        row.times.push([slice.from, slice.to]);
      }
    }
  }
  for (const row of rows.values()) {
    row.times.sort((a, b) => a[0] - b[0]);
    row.busy = 0;
    let end = -Infinity;
    for (const [from, to] of row.times) {
      row.busy += Math.max(to - Math.max(from, end), 0);
      end = Math.max(end, to);
    }
  }
  return rows;
}
