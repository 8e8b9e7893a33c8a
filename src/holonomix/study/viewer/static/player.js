// The page: decode the data, keep the time, and move drawing and charts with it. Motion is uniform in time.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);
const decoded = (text, type) => new type(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
for (const w of data.windows) { w.t = decoded(w.t, Float64Array); w.x = decoded(w.x, Float32Array); if (w.f) w.f = decoded(w.f, Int16Array); }
if (data.overview) data.overview = decoded(data.overview, Float32Array);
for (const c of data.charts) {
  c.t = c.t ? decoded(c.t, Float64Array) : data.windows[0].t;
  c.windowT = c.windowT ? decoded(c.windowT, Float64Array) : c.t;
  for (const s of c.series) for (const key of ["values", "low", "high", "window"]) if (s[key]) s[key] = decoded(s[key], Float32Array);
}
if (data.portraits) {
  const p = data.portraits, floats = (list) => list.map((x) => decoded(x, Float32Array));
  p.phase.t = p.phase.t ? decoded(p.phase.t, Float64Array) : data.windows[0].t;
  for (const part of [p.phase, ...p.sections]) { part.q = floats(part.q); part.p = floats(part.p); }
  if (p.spectrum) { p.spectrum.w = decoded(p.spectrum.w, Float32Array); p.spectrum.a = floats(p.spectrum.a); }
}
if (data.map) for (const part of [data.map.x, data.map.y, ...data.map.values]) if (part) part.values = decoded(part.values, Float32Array);
if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.classList.add("dark");

let drawing = null;
if (data.scene) {
  try { drawing = new Drawing(by("stage"), data); } catch (error) {
    const note = by("stage").appendChild(document.createElement("p"));
    note.className = "note"; note.textContent = "The picture needs WebGL, which this browser does not support; the charts do not.";
    console.warn(error);
  }
} else by("stage").remove();

const state = { window: 0, t: data.windows[0].t[0], playing: false, speed: 1, loop: true, trail: 0 };
const current = () => data.windows[state.window];
const span = () => current().t[current().count - 1] - current().t[0];
state.trail = Math.min(400, current().count);

function rowBefore(w, t) { // the last row not after t; times may also fall (a run backwards)
  const sign = w.t[w.count - 1] < w.t[0] ? -1 : 1;
  let a = 0, b = w.count - 1;
  while (a < b) { const m = (a + b + 1) >> 1; if (sign * w.t[m] <= sign * t) a = m; else b = m - 1; }
  return a;
}

function fill(w, row, t) { // positions at t: cubic between neighboring rows where they are close, else the nearest row
  const n = data.points, d = data.dimension, out = drawing.points;
  const at = (r, i) => w.x[Math.min(Math.max(r, 0), w.count - 1) * n * d + i];
  const h = row + 1 < w.count ? w.t[row + 1] - w.t[row] : 0, s = h ? Math.min(Math.max((t - w.t[row]) / h, 0), 1) : 0;
  const nearest = s > 0.5 ? row + 1 : row, time = (r) => w.t[Math.min(Math.max(r, 0), w.count - 1)];
  const s2 = s * s, s3 = s2 * s, exact = !data.joined || s < 1e-9 || s > 1 - 1e-9;
  const before = time(row + 1) - time(row - 1) || 1, after = time(row + 2) - time(row) || 1;
  for (let k = 0; k < n; k++) for (let c = 0; c < d; c++) {
    const i = k * d + c;
    if (exact) { out[3 * k + c] = at(nearest, i); continue; }
    const a = at(row, i), b = at(row + 1, i), va = (h * (b - at(row - 1, i))) / before, vb = (h * (at(row + 2, i) - a)) / after;
    out[3 * k + c] = (2 * s3 - 3 * s2 + 1) * a + (s3 - 2 * s2 + s) * va + (3 * s2 - 2 * s3) * b + (s3 - s2) * vb;
  }
  return nearest;
}

function show() {
  const w = current(), row = rowBefore(w, state.t);
  const nearest = drawing ? fill(w, row, state.t) : row;
  if (drawing) drawing.show(state.window, data.joined ? row : nearest, state.trail, nearest);
  if (!by("charts").hidden) charts.forEach((c) => c.mark(state.t));
  portraits.mark(state.t);
  by("time").value = String(span() ? ((state.t - w.t[0]) / span()) * 1000 : 0);
  by("clock").textContent = `t = ${+state.t.toPrecision(7)}`;
  if (drawing && probe) document.documentElement.dataset.points = JSON.stringify(Array.from(drawing.points));
  document.documentElement.dataset.time = String(state.t);
}

function seek(t) { // to this time, or to the nearest one of which there are frames
  const sign = data.t1 < data.t0 ? -1 : 1;
  const distance = (w) => Math.max(0, sign * (w.t[0] - t), sign * (t - w.t[w.count - 1]));
  let best = state.window;
  data.windows.forEach((w, k) => { if (distance(w) < distance(data.windows[best])) best = k; });
  state.window = best;
  const w = current(), ends = [w.t[0], w.t[w.count - 1]];
  state.t = Math.min(Math.max(t, Math.min(...ends)), Math.max(...ends));
  if (by("window")) by("window").value = String(best);
  show();
}

function seekRow(row) { const w = current(); seek(w.t[Math.min(Math.max(row, 0), w.count - 1)]); }

function play(on) {
  state.playing = on;
  by("play").textContent = on ? "Pause" : "Play";
  const end = current().t[current().count - 1];
  if (on && state.t === end) seek(current().t[0]);
  if (on) { last = performance.now(); requestAnimationFrame(tick); }
}

let last = 0, drawn = 0;
function tick(now) {
  if (!state.playing) return;
  const w = current(), a = w.t[0], b = w.t[w.count - 1], sign = b < a ? -1 : 1;
  let t = state.t + ((((now - last) / 1000) * span()) / 15) * state.speed; // the window takes 15 seconds at speed 1
  drawing && drawing.pace(now - last);
  last = now;
  if (sign * t > sign * b) { if (state.loop) t = a; else { t = b; play(false); } }
  state.t = t;
  show();
  document.documentElement.dataset.frames = String(++drawn);
  requestAnimationFrame(tick);
}

function download(name, url) { const link = document.createElement("a"); link.href = url; link.download = name; link.click(); }

function record() { // one pass through the window as WebM
  const stream = drawing.renderer.domElement.captureStream(30), recorder = new MediaRecorder(stream), parts = [];
  recorder.ondataavailable = (event) => parts.push(event.data);
  recorder.onstop = () => download("run.webm", URL.createObjectURL(new Blob(parts, { type: "video/webm" })));
  const loop = state.loop;
  state.loop = false; seekRow(0); recorder.start(); play(true);
  const wait = setInterval(() => { if (!state.playing) { clearInterval(wait); recorder.stop(); state.loop = loop; } }, 100);
}

const probe = location.hash.includes("probe");
const charts = data.charts.map((c) => new Chart(by("charts"), c, data.windows, (t) => seek(t)));
const portraits = new Portraits(by("tabs"), by("portrait"), by("charts"), data);
new ResizeObserver(() => portraits.refresh()).observe(by("portrait").parentElement);
by("play").onclick = () => play(!state.playing);
by("time").oninput = (event) => { const w = current(); seek(w.t[0] + (span() * event.target.value) / 1000); };
by("speed").onchange = (event) => { state.speed = Number(event.target.value); };
by("trail").oninput = (event) => { state.trail = Math.round((event.target.value / 100) ** 2 * current().count); show(); };
by("loop").onclick = () => { state.loop = !state.loop; by("loop").setAttribute("aria-pressed", String(state.loop)); };
by("dark").onclick = () => { document.documentElement.classList.toggle("dark"); charts.forEach((c) => c.make()); portraits.refresh(); if (drawing) drawing.tint(); show(); };
by("forces").onclick = () => { drawing.forced = !drawing.forced; by("forces").setAttribute("aria-pressed", String(drawing.forced)); show(); };
if (!drawing || !data.largestForce) by("forces").remove();
if (data.windows[0].count < 2) document.querySelector(".bar").hidden = true;
by("home").onclick = () => { if (drawing) { drawing.reset(); show(); } };
by("png").onclick = () => { show(); download("frame.png", drawing.renderer.domElement.toDataURL("image/png")); };
by("webm").onclick = record;
if (!drawing) for (const id of ["home", "png", "webm"]) by(id).remove();
if (drawing && !window.MediaRecorder) by("webm").remove();
if (data.windows.length > 1) {
  data.windows.forEach((w, k) => { const o = by("window").appendChild(document.createElement("option")); o.value = String(k); o.textContent = `t = ${+w.t[0].toPrecision(4)} .. ${+w.t[w.count - 1].toPrecision(4)}`; });
  by("window").onchange = (event) => { state.window = Number(event.target.value); seekRow(0); };
  by("whole").onclick = () => { charts.forEach((c) => { c.whole = !c.whole; c.make(); }); by("whole").textContent = charts[0] && charts[0].whole ? "Charts: whole run" : "Charts: windows"; show(); };
} else { by("window").parentElement.remove(); by("whole").remove(); }
if (drawing && drawing.cloud) by("cloud").onclick = () => { drawing.cloud.visible = !drawing.cloud.visible; show(); }; else by("cloud").remove();
addEventListener("keydown", (event) => {
  if (["INPUT", "SELECT"].includes(event.target.tagName) && event.key !== " ") return;
  const row = rowBefore(current(), state.t), step = event.shiftKey ? 10 : 1;
  const action = {
    " ": () => play(!state.playing), ArrowRight: () => seekRow(row + step), ArrowLeft: () => seekRow(row - step), Home: () => seekRow(0),
    End: () => seekRow(current().count - 1), l: () => by("loop").click(), d: () => by("dark").click(), f: () => by("home").click(),
    a: () => { if (by("forces")) by("forces").click(); },
  }[event.key];
  if (action && !(event.key === " " && event.target.tagName === "BUTTON")) { event.preventDefault(); action(); }
});
function idle() { if (drawing && drawing.moved && !state.playing) drawing.render(); requestAnimationFrame(idle); }
requestAnimationFrame(idle);
by("trail").value = String(100 * Math.sqrt(state.trail / current().count));
const wanted = /[#&]t=([-+.\deE]+)/.exec(location.hash);
seek(wanted ? Number(wanted[1]) : data.reload ? data.t1 : state.t);
if (data.reload) setTimeout(() => { if (!state.playing) location.reload(); }, 1000 * data.reload);
if (location.hash.includes("autoplay")) play(true);
