// Frames of a saved run: the windows of rows in the page, as a source of frames for the player.
"use strict";
function rowBefore(w, t) { // the last row not after t; times may also fall (a run backwards)
  const sign = w.t[w.count - 1] < w.t[0] ? -1 : 1;
  let a = 0, b = w.count - 1;
  while (a < b) { const m = (a + b + 1) >> 1; if (sign * w.t[m] <= sign * t) a = m; else b = m - 1; }
  return a;
}

class StoredFrames {
  constructor(data, drawing, state) {
    Object.assign(this, { data, drawing, state });
    state.window = 0;
    this.charts = data.charts.map((c) => new Chart(by("charts"), c, data.windows, (t) => seek(t)));
    this.portraits = new Portraits(by("tabs"), by("portrait"), by("charts"), data);
    if (drawing) this.trails = data.windows.map((w) => data.tracked.map((k, i) => {
      const path = new Float32Array(3 * w.count), d = data.dimension;
      for (let row = 0; row < w.count; row++) for (let c = 0; c < d; c++) path[3 * row + c] = w.x[(row * data.points + k) * d + c];
      return new Trail(drawing.figure.group, path, PALETTE[i % PALETTE.length], data.joined);
    }));
    new ResizeObserver(() => this.portraits.refresh()).observe(by("portrait").parentElement);
    this.controls();
  }

  get window() { return this.data.windows[this.state.window]; }
  get span() { const w = this.window; return w.t[w.count - 1] - w.t[0]; }
  get longest() { return this.window.count; } // the longest trail

  fill(row, t) { // positions at t: cubic between neighboring rows where they are close, else the nearest row
    const { data } = this, w = this.window, n = data.points, d = data.dimension, out = this.drawing.points;
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

  show() {
    const { state, drawing, data } = this, w = this.window, row = rowBefore(w, state.t);
    if (drawing) {
      const nearest = this.fill(row, state.t), last = data.joined ? row : nearest, first = Math.max(0, last - state.trail);
      this.trails.forEach((lines, k) => lines.forEach((line) => line.range(first, k === state.window && state.trail > 0 ? last - first + 1 : 0)));
      drawing.showArrows(w.f, nearest);
      drawing.show();
    }
    if (!by("charts").hidden) this.charts.forEach((c) => c.mark(state.t));
    this.portraits.mark(state.t);
    by("time").value = String(this.span ? ((state.t - w.t[0]) / this.span) * 1000 : 0);
  }

  seek(t) { // go to this time, or to the nearest time with frames
    const { data, state } = this, sign = data.t1 < data.t0 ? -1 : 1;
    const distance = (w) => Math.max(0, sign * (w.t[0] - t), sign * (t - w.t[w.count - 1]));
    let best = state.window;
    data.windows.forEach((w, k) => { if (distance(w) < distance(data.windows[best])) best = k; });
    state.window = best;
    const w = this.window, ends = [w.t[0], w.t[w.count - 1]];
    state.t = Math.min(Math.max(t, Math.min(...ends)), Math.max(...ends));
    if (by("window")) by("window").value = String(best);
  }

  start() { // start playing, from the beginning if at the end
    if (this.state.t === this.window.t[this.window.count - 1]) seek(this.window.t[0]);
  }

  advance(seconds) { // the window takes 15 seconds at speed 1
    const { state } = this, w = this.window, a = w.t[0], b = w.t[w.count - 1], sign = b < a ? -1 : 1;
    let t = state.t + ((seconds * this.span) / 15) * state.speed;
    if (sign * t > sign * b) { if (state.loop) t = a; else { t = b; play(false); } }
    state.t = t;
  }

  recolor() { this.charts.forEach((c) => c.make()); this.portraits.refresh(); }

  leave() { for (const lines of this.trails || []) for (const line of lines) line.range(0, 0); }

  keys(event) {
    const row = rowBefore(this.window, this.state.t), step = event.shiftKey ? 10 : 1, last = this.window.count - 1;
    const to = (k) => () => seek(this.window.t[Math.min(Math.max(k, 0), last)]);
    return { ArrowRight: to(row + step), ArrowLeft: to(row - step), Home: to(0), End: to(last), l: () => by("loop").click(), a: () => by("forces") && by("forces").click() };
  }

  controls() {
    const { data, state, drawing } = this;
    by("time").oninput = (event) => seek(this.window.t[0] + (this.span * event.target.value) / 1000);
    by("loop").onclick = () => { state.loop = !state.loop; by("loop").setAttribute("aria-pressed", String(state.loop)); };
    by("forces").onclick = () => { drawing.forced = !drawing.forced; by("forces").setAttribute("aria-pressed", String(drawing.forced)); show(); };
    if (!drawing || !data.largestForce) by("forces").remove();
    if (data.windows.length > 1) {
      data.windows.forEach((w, k) => { const o = by("window").appendChild(document.createElement("option")); o.value = String(k); o.textContent = `t = ${+w.t[0].toPrecision(4)} .. ${+w.t[w.count - 1].toPrecision(4)}`; });
      by("window").onchange = (event) => { state.window = Number(event.target.value); seek(this.window.t[0]); };
      by("whole").onclick = () => { this.charts.forEach((c) => { c.whole = !c.whole; c.make(); }); by("whole").textContent = this.charts[0] && this.charts[0].whole ? "Charts: whole run" : "Charts: windows"; show(); };
    } else { by("window").parentElement.remove(); by("whole").remove(); }
    if (drawing && drawing.cloud) by("cloud").onclick = () => { drawing.cloud.visible = !drawing.cloud.visible; show(); }; else by("cloud").remove();
  }
}
