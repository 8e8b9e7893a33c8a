// The page: decode the data, keep the time, and show the frames of a source: of a saved run, or of a kernel.
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

let drawing = null, source = null;
function draw(windows) {
  if (!data.scene) { by("stage").remove(); return; }
  try { drawing = new Drawing(by("stage"), data, windows); } catch (error) {
    const note = by("stage").appendChild(document.createElement("p"));
    note.className = "note"; note.textContent = "The picture needs WebGL, which this browser does not support; the charts do not.";
    console.warn(error);
  }
}

const state = { t: data.windows[0].t[0], playing: false, speed: 1, loop: true, trail: 0 };
const probe = location.hash.includes("probe");

function show() {
  source.show();
  by("clock").textContent = `t = ${+state.t.toPrecision(7)}${source.remark || ""}`;
  if (drawing && probe) document.documentElement.dataset.points = JSON.stringify(Array.from(drawing.points));
  document.documentElement.dataset.time = String(state.t);
}

function seek(t) { source.seek(t); show(); }

function play(on) {
  state.playing = on;
  by("play").textContent = on ? "Pause" : "Play";
  if (!on) return;
  source.start();
  last = performance.now();
  requestAnimationFrame(tick);
}

let last = 0, drawn = 0;
function tick(now) {
  if (!state.playing) return;
  if (drawing) drawing.pace(now - last, source.pace);
  source.advance(Math.max(0, now - last) / 1000);
  last = now;
  show();
  document.documentElement.dataset.frames = String(++drawn);
  requestAnimationFrame(tick);
}

function download(name, url) { const link = document.createElement("a"); link.href = url; link.download = name; link.click(); }

function record() { // record one pass through the window, or some seconds of a kernel, as WebM
  const stream = drawing.renderer.domElement.captureStream(30), recorder = new MediaRecorder(stream), parts = [];
  recorder.ondataavailable = (event) => parts.push(event.data);
  recorder.onstop = () => download("run.webm", URL.createObjectURL(new Blob(parts, { type: "video/webm" })));
  const { loop } = state, until = source.recorded ? performance.now() + 1000 * source.recorded : Infinity;
  state.loop = false;
  if (!source.recorded) seek(source.window.t[0]);
  recorder.start(); play(true);
  const wait = setInterval(() => { if (!state.playing || performance.now() > until) { clearInterval(wait); recorder.stop(); state.loop = loop; } }, 100);
}

function setTrail(share) { state.trail = Math.round(share ** 2 * source.longest); by("trail").value = String(100 * share); }

function use(chosen) { // switch to this source of frames
  if (source) { play(false); source.leave(); }
  source = chosen;
  document.documentElement.dataset.source = source.live ? "live" : "stored";
  setTrail(Math.min(1, Math.sqrt(400 / source.longest)));
}

function begin() {
  by("play").onclick = () => play(!state.playing);
  by("speed").onchange = (event) => { state.speed = Number(event.target.value); };
  by("trail").oninput = (event) => { setTrail(event.target.value / 100); show(); };
  by("dark").onclick = () => { document.documentElement.classList.toggle("dark"); source.recolor(); if (drawing) drawing.tint(); show(); };
  by("home").onclick = () => { if (drawing) { drawing.reset(); show(); } };
  by("png").onclick = () => { show(); download("frame.png", drawing.renderer.domElement.toDataURL("image/png")); };
  by("webm").onclick = record;
  if (!drawing) for (const id of ["home", "png", "webm"]) by(id).remove();
  if (drawing && !window.MediaRecorder) by("webm").remove();
  addEventListener("keydown", (event) => {
    if (["INPUT", "SELECT"].includes(event.target.tagName) && event.key !== " ") return;
    const common = { " ": () => play(!state.playing), d: () => by("dark").click(), f: () => by("home") && by("home").click() };
    const action = { ...common, ...source.keys(event) }[event.key];
    if (action && !(event.key === " " && event.target.tagName === "BUTTON")) { event.preventDefault(); action(); }
  });
  const idle = () => { if (drawing && drawing.moved && !state.playing) drawing.render(); requestAnimationFrame(idle); };
  requestAnimationFrame(idle);
}

if (!data.live || data.live.beside) {
  draw(data.windows);
  const stored = new StoredFrames(data, drawing, state);
  use(stored);
  if (data.windows[0].count < 2) document.querySelector(".bar").hidden = true;
  begin();
  const wanted = /[#&]t=([-+.\deE]+)/.exec(location.hash);
  seek(wanted ? Number(wanted[1]) : data.reload ? data.t1 : state.t);
  if (location.hash.includes("autoplay")) play(true);
  if (data.reload) setTimeout(() => { if (!state.playing) location.reload(); }, 1000 * data.reload);
}
if (data.live) goLive();
