// Tabs beside the charts over time: phase portrait, section, spectrum, tables, and the map of an ensemble.
"use strict";
const HEAT = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const heat = (s) => {
  const x = Math.min(Math.max(s, 0), 1) * (HEAT.length - 1), k = Math.min(Math.floor(x), HEAT.length - 2), f = x - k;
  return `rgb(${HEAT[k].map((a, i) => Math.round(a + f * (HEAT[k + 1][i] - a))).join(",")})`;
};
const short = (v) => (v !== 0 && (Math.abs(v) >= 1e4 || Math.abs(v) < 1e-3) ? v.toExponential(1) : String(+v.toPrecision(4)));
const extent = (lists) => {
  let low = Infinity, high = -Infinity;
  for (const list of lists) for (const v of list) if (Number.isFinite(v)) { if (v < low) low = v; if (v > high) high = v; }
  return low <= high ? [low, high] : [0, 1];
};
function ticks(low, high, most) {
  const raw = (high - low) / most || 1, size = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find((k) => k * size >= raw) * size, out = [];
  const digits = Math.max(0, Math.min(8, Math.ceil(-Math.log10(step) - 1e-9))), top = Math.max(Math.abs(low), Math.abs(high));
  const places = Math.max(0, Math.min(8, Math.ceil(Math.log10(top / step) - 1e-9))); // so that neighbors differ
  const text = (v) => (v !== 0 && (top >= 1e5 || top < 1e-3) ? v.toExponential(places) : v.toFixed(digits)).replace(/^-(0\.?0*)$/, "$1");
  for (let k = Math.ceil(low / step); k * step <= high + 1e-9 * step; k++) out.push([k * step, text(k * step)]);
  return out;
}

class Plane { // a canvas with axes: curves, points or colored squares
  constructor(parent) {
    this.canvas = parent.appendChild(document.createElement("canvas"));
    this.canvas.className = "plane";
  }

  frame(xRange, yRange, names, log = false) {
    const css = getComputedStyle(document.documentElement), ratio = window.devicePixelRatio || 1;
    const w = Math.max(240, this.canvas.parentElement.clientWidth - 16), h = Math.min(460, Math.round(0.78 * w));
    Object.assign(this.canvas, { width: w * ratio, height: h * ratio });
    Object.assign(this.canvas.style, { width: `${w}px`, height: `${h}px` });
    const g = (this.g = this.canvas.getContext("2d")), pad = { l: 62, r: 12, t: 10, b: 40 };
    g.scale(ratio, ratio);
    const widened = ([a, b]) => (a === b ? [a - 0.5 * (Math.abs(a) || 1), b + 0.5 * (Math.abs(b) || 1)] : [a - 0.03 * (b - a), b + 0.03 * (b - a)]);
    const [x0, x1] = widened(xRange), [y0, y1] = log ? yRange : widened(yRange);
    this.x = (v) => pad.l + ((v - x0) / (x1 - x0)) * (w - pad.l - pad.r);
    this.y = (v) => h - pad.b - ((v - y0) / (y1 - y0)) * (h - pad.t - pad.b);
    g.font = "11px system-ui"; g.lineWidth = 0.6;
    g.strokeStyle = css.getPropertyValue("--line"); g.fillStyle = css.getPropertyValue("--soft");
    g.textAlign = "center";
    for (const [v, text] of ticks(x0, x1, w / 90)) { g.beginPath(); g.moveTo(this.x(v), pad.t); g.lineTo(this.x(v), h - pad.b); g.stroke(); g.fillText(text, this.x(v), h - pad.b + 14); }
    g.textAlign = "right";
    for (const [v, text] of ticks(y0, y1, h / 50)) { if (log && Math.abs(v - Math.round(v)) > 1e-6) continue; g.beginPath(); g.moveTo(pad.l, this.y(v)); g.lineTo(w - pad.r, this.y(v)); g.stroke(); g.fillText(log ? `1e${Math.round(v)}` : text, pad.l - 5, this.y(v) + 4); }
    g.textAlign = "center"; g.fillStyle = css.getPropertyValue("--text");
    g.fillText(names[0], (w + pad.l) / 2, h - 6);
    g.save(); g.translate(12, h / 2); g.rotate(-Math.PI / 2); g.fillText(names[1], 0, 0); g.restore();
    return g;
  }

  curve(xs, ys, color) {
    const g = this.g; g.strokeStyle = color; g.lineWidth = 1.1; g.beginPath();
    let pen = false;
    for (let i = 0; i < xs.length; i++) { if (!Number.isFinite(xs[i]) || !Number.isFinite(ys[i])) { pen = false; continue; } g[pen ? "lineTo" : "moveTo"](this.x(xs[i]), this.y(ys[i])); pen = true; }
    g.stroke();
  }

  dots(xs, ys, color, r = 1.2) { const g = this.g; g.fillStyle = color; for (let i = 0; i < xs.length; i++) g.fillRect(this.x(xs[i]) - r, this.y(ys[i]) - r, 2 * r, 2 * r); }
}

// From each value of a coordinate to the edges of its cell, halfway to its neighbors.
const cells = (list) => {
  const u = [...new Set(list)].sort((a, b) => a - b), found = new Map();
  u.forEach((x, i) => {
    const left = i ? x - u[i - 1] : u.length > 1 ? u[1] - x : 1, right = i + 1 < u.length ? u[i + 1] - x : u.length > 1 ? x - u[i - 1] : 1;
    found.set(x, [x - left / 2, x + right / 2]);
  });
  return found;
};

class Portraits {
  constructor(tabs, panel, charts, data) {
    this.panel = panel; this.charts = charts; this.data = data; this.pages = new Map(); this.tabs = tabs;
    const p = data.portraits;
    if (data.charts.length) this.add("Time", null);
    if (data.map) this.add("Map", () => this.map());
    if (p) this.add("Phase", () => this.phase());
    if (p && p.sections.some((s) => s.count)) this.add("Section", () => this.section());
    if (p && p.spectrum) this.add("Spectrum", () => this.spectrum());
    if (data.tables.length) this.add(data.tables.length > 1 ? "Certificate" : "Kept", () => this.tables());
    if (this.pages.size) this.choose([...this.pages.keys()][0]); else tabs.hidden = true;
  }

  add(name, make) {
    const button = this.tabs.appendChild(document.createElement("button"));
    button.textContent = name; button.setAttribute("role", "tab"); button.onclick = () => this.choose(name);
    this.pages.set(name, { button, make });
    this.tabs.hidden = this.pages.size < 2;
  }

  choose(name) {
    this.name = name; this.redraw = null;
    for (const [key, page] of this.pages) page.button.setAttribute("aria-selected", String(key === name));
    const { make } = this.pages.get(name);
    this.charts.hidden = make !== null; this.panel.hidden = make === null;
    this.panel.replaceChildren();
    if (make) { make(); this.refresh(); }
  }

  refresh() { if (this.redraw) this.redraw(); }

  mark(t) { if (this.name === "Phase" && !this.panel.hidden) { this.t = t; this.place(); } }

  select(label, names, value, change) {
    this.bar = this.bar && this.bar.isConnected ? this.bar : this.panel.appendChild(Object.assign(document.createElement("div"), { className: "bar" }));
    const box = this.bar.appendChild(document.createElement("label")), select = document.createElement("select");
    box.append(label, select);
    names.forEach((name, k) => select.appendChild(Object.assign(document.createElement("option"), { value: String(k), textContent: name })));
    select.value = String(value);
    select.onchange = () => { change(Number(select.value)); this.refresh(); };
  }

  phase() {
    const p = this.data.portraits, n = p.names.length, all = [...p.names.map((s) => s[0]), ...p.names.map((s) => s[1])];
    const column = (k) => (k < n ? p.phase.q[k] : p.phase.p[k - n]);
    let a = 0, b = n;
    this.select("across", all, a, (k) => { a = k; });
    this.select("up", all, b, (k) => { b = k; });
    const box = this.panel.appendChild(Object.assign(document.createElement("div"), { className: "chart" })), plane = new Plane(box);
    const dot = box.appendChild(Object.assign(document.createElement("div"), { className: "dot" }));
    this.redraw = () => {
      const xs = column(a), ys = column(b);
      plane.frame(extent([xs]), extent([ys]), [all[a], all[b]]);
      if (p.phase.joined) plane.curve(xs, ys, PALETTE[0]); else plane.dots(xs, ys, PALETTE[0]);
      this.place();
    };
    this.place = () => {
      if (this.t === undefined || !plane.x) return;
      const i = rowBefore({ t: p.phase.t, count: p.phase.t.length }, this.t), near = Math.abs(p.phase.t[i] - this.t) <= 2 * Math.abs(p.phase.t[1] - p.phase.t[0]);
      dot.hidden = !near;
      dot.style.transform = `translate(${plane.canvas.offsetLeft + plane.x(column(a)[i]) - 4}px, ${plane.canvas.offsetTop + plane.y(column(b)[i]) - 4}px)`;
    };
    this.t = state.t;
  }

  section() {
    const p = this.data.portraits, n = p.names.length;
    let cut = Math.max(0, p.sections.findIndex((s) => s.count)), shown = n > 2 ? (cut + 2) % n : n - 1;
    this.select("where", p.names.map((s, k) => `${s[0]} rises through ${short(p.sections[k].level)}`), cut, (k) => { cut = k; });
    this.select("show", p.names.map((s) => s.join(", ")), shown, (k) => { shown = k; });
    const box = this.panel.appendChild(Object.assign(document.createElement("div"), { className: "chart" })), plane = new Plane(box);
    const note = box.appendChild(Object.assign(document.createElement("p"), { className: "note" }));
    this.redraw = () => {
      const s = p.sections[cut], xs = s.q[shown], ys = s.p[shown];
      plane.frame(extent([xs]), extent([ys]), p.names[shown]);
      plane.dots(xs, ys, PALETTE[1], s.count < 300 ? 2.2 : 1.4);
      note.textContent = `${s.count} crossings, linear between rows`;
    };
  }

  spectrum() {
    const p = this.data.portraits, s = p.spectrum, box = this.panel.appendChild(Object.assign(document.createElement("div"), { className: "chart" }));
    const names = box.appendChild(Object.assign(document.createElement("div"), { className: "names" }));
    p.names.forEach((name, k) => { const span = names.appendChild(document.createElement("span")); span.textContent = name[0]; span.style.setProperty("--series", PALETTE[k % PALETTE.length]); });
    const plane = new Plane(box), logs = s.a.map((a) => Array.from(a, (v) => (v > 0 ? Math.log10(v) : NaN)));
    this.redraw = () => {
      const top = Math.ceil(extent(logs)[1]), low = Math.max(Math.floor(extent(logs)[0]), top - 8);
      plane.frame(extent([s.w]), [low, top], ["angular frequency", "amplitude"], true);
      logs.forEach((y, k) => plane.curve(s.w, y.map((v) => Math.max(v, low)), PALETTE[k % PALETTE.length]));
    };
  }

  map() {
    const m = this.data.map;
    let which = 0;
    if (m.values.length > 1) this.select("value", m.values.map((v) => v.name), 0, (k) => { which = k; });
    const box = this.panel.appendChild(Object.assign(document.createElement("div"), { className: "chart" })), plane = new Plane(box);
    const note = box.appendChild(Object.assign(document.createElement("p"), { className: "note" }));
    this.redraw = () => {
      const v = m.values[which], [low, high] = extent([v.values]);
      if (!m.y) { plane.frame(extent([m.x.values]), [low, high], [m.x.name, v.name]); plane.dots(m.x.values, v.values, PALETTE[0], 1.6); note.textContent = ""; return; }
      const across = cells(m.x.values), up = cells(m.y.values), grid = across.size * up.size <= 4 * m.x.values.length;
      const whole = (list, found) => { // include all cells of a grid
        const [a, b] = extent([list]);
        return grid ? [found.get(a)[0], found.get(b)[1]] : [a, b];
      };
      const g = plane.frame(whole(m.x.values, across), whole(m.y.values, up), [m.x.name, m.y.name]);
      const [[x0, x1], [y0, y1]] = [extent([m.x.values]), extent([m.y.values])];
      const side = Math.max(4, Math.min(12, 0.8 * Math.sqrt(Math.abs((plane.x(x1) - plane.x(x0)) * (plane.y(y1) - plane.y(y0))) / m.x.values.length))); // of a scattered value
      v.values.forEach((value, i) => {
        const x = m.x.values[i], y = m.y.values[i];
        const [left, right] = grid ? across.get(x).map((e) => plane.x(e)) : [plane.x(x) - side / 2, plane.x(x) + side / 2];
        const [bottom, top] = grid ? up.get(y).map((e) => plane.y(e)) : [plane.y(y) + side / 2, plane.y(y) - side / 2];
        g.fillStyle = Number.isFinite(value) ? heat((value - low) / (high - low || 1)) : "#8888";
        g.fillRect(left - 0.3, top - 0.3, right - left + 0.6, bottom - top + 0.6);
      });
      note.textContent = `${v.name}: ${short(low)} (dark) to ${short(high)} (bright); gray: no value`;
    };
  }

  tables() {
    for (const t of this.data.tables) {
      const box = this.panel.appendChild(Object.assign(document.createElement("div"), { className: "chart" }));
      box.appendChild(document.createElement("h2")).textContent = t.title;
      const table = box.appendChild(document.createElement("table"));
      const line = (cells, kind) => { const row = table.appendChild(document.createElement("tr")); cells.forEach((c) => { row.appendChild(document.createElement(kind)).textContent = c; }); return row; };
      line(t.head, "th");
      for (const cells of t.rows) line(cells, "td").className = cells.includes("FAILED") ? "failed" : "";
    }
  }
}
