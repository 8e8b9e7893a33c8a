// Charts over time with a cursor that is shared by all and can be dragged in any of them.
"use strict";
// At most about six powers of ten that lie in a range.
const powersOfTen = (low, high) => {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9), every = Math.max(1, Math.ceil((last - first) / 6));
  const powers = [];
  for (let k = Math.ceil(first / every) * every; k <= last; k += every) powers.push(10 ** k);
  return powers;
};

class Chart {
  constructor(parent, chart, windows, seek) {
    this.chart = chart; this.windows = windows; this.seek = seek;
    const box = parent.appendChild(document.createElement("div"));
    box.className = "chart";
    box.appendChild(document.createElement("h2")).textContent = chart.title;
    const names = box.appendChild(document.createElement("div"));
    names.className = "names";
    chart.series.forEach((s, i) => {
      const name = names.appendChild(document.createElement("span"));
      name.textContent = s.name;
      name.style.setProperty("--series", PALETTE[i % PALETTE.length]);
    });
    this.box = box.appendChild(document.createElement("div"));
    this.whole = true;
    this.make();
    new ResizeObserver(() => this.plot.setSize({ width: this.width(), height: 150 })).observe(box);
  }

  width() { return Math.max(240, this.box.clientWidth || this.box.parentElement.clientWidth - 8); }

  columns() { // [t, ...] and the options of its series: an envelope has a low and a high edge
    const { chart } = this, options = [{}], bands = [], data = [this.whole ? chart.t : chart.windowT];
    const positive = (x) => (chart.log ? Array.from(x, (v) => (v > 0 ? v : null)) : Array.from(x, (v) => (Number.isFinite(v) ? v : null)));
    chart.series.forEach((s, i) => {
      const stroke = PALETTE[i % PALETTE.length], plain = { stroke, width: 1.2, points: { show: false } };
      if (this.whole && s.low) {
        data.push(positive(s.high), positive(s.low));
        options.push(plain, plain);
        bands.push({ series: [options.length - 2, options.length - 1], fill: stroke + "55" });
      } else {
        data.push(positive(this.whole ? s.values : s.window));
        options.push({ ...plain, spanGaps: Boolean(chart.live) });
      }
    });
    return { data, options, bands };
  }

  make() {
    const style = getComputedStyle(document.documentElement), soft = style.getPropertyValue("--soft").trim(), line = style.getPropertyValue("--line").trim();
    const { data, options, bands } = this.columns();
    const axis = { stroke: soft, grid: { stroke: line, width: 0.6 }, ticks: { stroke: line, width: 0.6 }, font: "11px system-ui" };
    const decades = this.chart.log ? { splits: (u, index, low, high) => powersOfTen(low, high), filter: (u, values) => values } : {}; // uPlot's own splits never end below about 1e-23
    const digits = (v) => (v[1] > v[0] && !this.chart.log ? Math.max(0, Math.min(6, Math.ceil(Math.log10(Math.max(...v.map(Math.abs)) / (v[1] - v[0])) - 1e-9))) : 0); // so that neighbors differ
    const number = (u, values) => values.map((v) => (v === null ? "" : Math.abs(v) >= 1e4 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(digits(values)) : String(+v.toPrecision(6))));
    if (this.plot) this.plot.destroy();
    this.plot = new uPlot({
      width: this.width(), height: 150, legend: { show: false }, series: options, bands,
      scales: { x: { time: false }, y: this.chart.log ? { distr: 3 } : {} },
      axes: [{ ...axis, size: 28 }, { ...axis, ...decades, size: 58, values: number }],
      hooks: { draw: [() => this.place()] },
      cursor: { points: { show: false }, y: false, drag: { x: false, y: false } },
    }, data, this.box);
    const over = this.plot.over;
    this.line = over.appendChild(document.createElement("div"));
    this.line.className = "cursor";
    this.line.hidden = Boolean(this.chart.live);
    if (this.whole && this.windows.length && this.chart.enveloped) this.shades = this.windows.map((w) => {
      const shade = over.appendChild(document.createElement("div"));
      shade.className = "window";
      return { w, shade };
    }); else this.shades = [];
    const pick = (event) => { if (event.buttons & 1) this.seek(this.plot.posToVal(event.clientX - over.getBoundingClientRect().left, "x")); };
    over.style.touchAction = "none";
    over.addEventListener("pointerdown", pick);
    over.addEventListener("pointermove", pick);
  }

  renew() { this.plot.setData(this.columns().data); } // when there are more rows

  mark(t) { this.t = t; this.place(); }

  place() { // also after every layout, since positions in pixels change with it
    if (!this.plot || !this.line || this.chart.live || this.t === undefined) return;
    const x = this.plot.valToPos(this.t, "x");
    this.line.style.transform = `translateX(${x}px)`;
    for (const { w, shade } of this.shades) {
      const a = this.plot.valToPos(w.t[0], "x"), b = this.plot.valToPos(w.t[w.count - 1], "x");
      shade.style.left = `${a}px`; shade.style.width = `${Math.max(3, b - a)}px`;
    }
  }
}
