// A source of frames that steps kernels, with sliders, live charts, a section, ghosts, and particles that can be dragged.
"use strict";
const ENERGY = "live energy", ERROR = "live constraint", HIDDEN = "live hidden constraint";
const element = (parent, kind, className = "", text = "") => Object.assign(parent.appendChild(document.createElement(kind)), { className, textContent: text });

class KernelFrames {
  constructor(machines) {
    const { live } = data;
    Object.assign(this, { machines, live: true, options: live, pace: 20, recorded: 10, longest: 600, wide: live.shape[live.shape.length - 1] || 1 });
    this.section = live.section ? new Crossings(live.section) : null;
    this.values = live.sliders.map((s) => s.value);
    this.lead = machines[0];
    this.makePanel();
    if (!drawing) draw([this.preview()]);
    if (drawing) this.makeFigures();
    this.makeCharts();
    this.restart();
  }

  // ---- the motion

  restart() {
    this.say("");
    for (const m of this.machines) {
      m.kernel.reset();
      if (this.changed() && this.apply(m, m.kernel)) this.say(`${m.name}: no consistent state for these values near the start`);
    }
    this.renew(true);
  }

  changed() { return this.values.some((v, i) => v !== this.options.sliders[i].value); }

  apply(m, kernel) { // the values of all sliders; returns the status of the projection
    let moved = false;
    this.options.sliders.forEach((s, i) => {
      const field = m.field(s.name)(kernel);
      if (!field || !s.kernels.includes(this.machines.indexOf(m)) || field[s.index] === this.values[i]) return;
      field[s.index] = this.values[i];
      moved = moved || s.name !== "dt";
    });
    return moved ? m.settle(kernel) : kernel.set();
  }

  renew(scatter) { // energy errors are relative to the energy from now on
    for (const m of this.machines) { m.stopped = 0; m.energy = m.observe(ENERGY); }
    this.dead = 0; this.goal = state.t = this.lead.kernel.t; this.remark = "";
    if (scatter) this.scatter();
    if (this.section) this.section.clear();
    for (const h of this.histories || []) h.history.clear();
    for (const trail of this.trails || []) trail.clear();
    this.sample();
    this.redraw(true);
  }

  scatter() { // start ghosts from the given states, or from the current state with random changes
    const { ensemble } = this.options, m = this.lead, size = m.kernel.q.length;
    this.random = randoms(1);
    m.ghosts.forEach((ghost, i) => {
      const part = (x) => x.subarray(i * size, (i + 1) * size);
      this.beside(ghost, i, ensemble.q ? part(ensemble.q) : null, ensemble.q ? part(ensemble.p) : null);
    });
  }

  beside(ghost, i, q, p) { // a ghost at this state, or near that of the first method
    const m = this.lead;
    m.copy(ghost);
    if (q) ghost.set({ q, p });
    else for (let k = 0; k < ghost.q.length; k++) ghost.q[k] += this.options.ensemble.spread * this.random();
    if (ghost.key) ghost.key[ghost.key.length - 1] += i + 1;
    ghost.gone = m.settle(ghost) !== 0;
  }

  start() { this.goal = this.lead.kernel.t; }

  advance(seconds) {
    if (this.drag && this.drag.held) return this.drag.pull();
    const begun = performance.now(), running = this.machines.filter((m) => !m.stopped);
    this.goal += Math.min(seconds, 0.1) * state.speed * this.options.rate;
    running.forEach((m, i) => {
      const visit = this.section && m === this.lead ? () => this.section.visit(m, m.kernel, 0) : null;
      const status = m.run(m.kernel, this.goal, begun + (BUDGET * (i + 1)) / (running.length + (m.ghosts.length ? 1 : 0)), visit);
      if (status) this.stop(m, status);
    });
    const alive = running.filter((m) => !m.stopped);
    if (!alive.length) return play(false);
    const reached = Math.min(...alive.map((m) => m.kernel.t)), late = this.goal - reached > 2 * Math.abs(this.lead.kernel.dt);
    this.remark = late ? " (as fast as this computer can)" : "";
    if (late) this.goal = reached;
    this.advanceGhosts(begun + 1.6 * BUDGET);
    state.t = (alive.includes(this.lead) ? this.lead : alive[0]).kernel.t;
    this.sample();
  }

  advanceGhosts(deadline) {
    const m = this.lead, count = m.ghosts.length;
    for (let k = 0; k < count; k++) {
      const i = ((this.turn || 0) + k) % count, ghost = m.ghosts[i];
      if (ghost.gone) continue;
      if (m.run(ghost, m.kernel.t, deadline, this.section ? () => this.section.visit(m, ghost, i + 1) : null)) { ghost.gone = true; this.dead++; }
      if (performance.now() > deadline) { this.turn = i; return; } // next frame begins with the others
    }
  }

  stop(m, status) {
    m.stopped = status;
    this.say(`${m.name} stopped at t = ${+m.kernel.t.toPrecision(6)}: ${this.options.words[status] || `status ${status}`}. Reset, or change a slider.`);
  }

  say(text) { this.message.textContent = text; this.message.hidden = !text; document.documentElement.dataset.message = text; }

  slide(i, value) { // set a slider; the state is projected onto the new manifold, in smaller parts if that fails
    const s = this.options.sliders[i], old = this.values[i], blocks = this.machines.map((m) => m.block(m.kernel).slice());
    for (const parts of [1, 4, 16, 64]) {
      let failed = false;
      for (let k = 1; k <= parts && !failed; k++) {
        this.values[i] = k === parts ? value : old + ((value - old) * k) / parts;
        failed = this.machines.some((m) => this.apply(m, m.kernel) !== 0);
      }
      if (!failed) {
        this.lead.ghosts.forEach((ghost, k) => { if (ghost.gone || this.apply(this.lead, ghost)) this.beside(ghost, k); });
        this.say("");
        if (s.name !== "dt") this.renew(false); else { this.goal = this.lead.kernel.t; for (const m of this.machines) m.stopped = 0; }
        return true;
      }
      this.machines.forEach((m, k) => m.block(m.kernel).set(blocks[k]));
    }
    this.values[i] = old;
    this.say(`no consistent state with ${s.label} = ${+value.toPrecision(4)} near this one; ${s.label} stays ${+old.toPrecision(4)}`);
    return false;
  }

  sync() { // other methods continue from the state of the first
    const { q, p, t } = this.lead.kernel;
    for (const m of this.machines.slice(1)) m.kernel.set({ q, p, t });
  }

  // ---- the picture

  fill(kernel, out) {
    const { dimension: d, points: n } = data, q = kernel.q, { wide } = this;
    const near = (x) => Math.max(-1e9, Math.min(1e9, x)); // keep a drifting method within finite coordinates
    const layout = data.scene ? data.scene.layout : "";
    if (layout === "angles") this.arms(kernel).forEach((length, k) => {
      out[3 * k] = (k ? out[3 * k - 3] : 0) + length * Math.sin(q[k]);
      out[3 * k + 1] = (k ? out[3 * k - 2] : 0) - length * Math.cos(q[k]);
    });
    else if (layout === "rotation") for (let k = 0; k < 3; k++) for (let c = 0; c < 3; c++) out[3 * k + c] = near(q[3 * c + k]);
    else for (let k = 0; k < n; k++) for (let c = 0; c < d; c++) out[3 * k + c] = near(q[k * wide + c]);
  }

  arms(kernel) { // the lengths of rods in a row, which may have sliders
    const { arms } = data.scene, { lengths } = kernel.params;
    return lengths && lengths.length === arms.length ? Array.from(lengths) : arms;
  }

  preview() { // rows of a short run, for the size of the picture
    const { kernel } = this.lead, d = data.dimension, rows = [], point = new Float32Array(3 * data.points), until = performance.now() + 300;
    const total = Math.min(6000, this.options.steps), every = Math.max(1, Math.round(total / 400));
    for (let n = 0; n <= total; n += every) {
      this.fill(kernel, point);
      rows.push(Float32Array.from({ length: d * data.points }, (_, i) => point[3 * Math.floor(i / d) + (i % d)]));
      if (kernel.step(every) || performance.now() > until) break;
    }
    const x = new Float32Array(rows.length * d * data.points);
    rows.forEach((row, i) => x.set(row, i * row.length));
    return { count: rows.length, t: rows.map((_, i) => i), x };
  }

  makeFigures() {
    drawing.figures = [drawing.figure, ...this.machines.slice(1).map((_, i) => new Figure(drawing, new Float32Array(drawing.points.length), PALETTE[i + 1]))];
    drawing.figures.slice(1).forEach((figure) => figure.group.position.set(...drawing.beside));
    this.trails = drawing.figures.flatMap((figure, i) => data.tracked.map((k, j) => new LiveTrail(figure, k, PALETTE[this.machines.length > 1 ? i : j % PALETTE.length], this.longest)));
    if (this.lead.ghosts.length) this.ghosts = new Ghosts(drawing, this.lead.ghosts.length);
    this.drag = new Drag(this, drawing);
  }

  show() {
    if (drawing) {
      this.machines.forEach((m, i) => this.fill(m.kernel, drawing.figures[i].points));
      if (this.shown !== state.t) for (const trail of this.trails) trail.add();
      for (const trail of this.trails) trail.show(state.trail);
      if (this.ghosts) this.ghosts.show(this, this.lead.ghosts);
      drawing.show();
    }
    this.shown = state.t;
    this.redraw(false);
  }

  seek() {} // a kernel only runs forward

  leave() {
    for (const trail of this.trails || []) trail.show(0);
    if (drawing) drawing.figures.slice(1).forEach((figure) => { figure.group.visible = false; });
    if (this.ghosts) this.ghosts.group.visible = false;
  }

  keys() { return { r: () => this.reset.click() }; }

  // ---- charts and panel

  makeCharts() {
    const box = element(document.querySelector("main"), "section", "live"), tabs = element(box, "div", "tabs"), charts = element(box, "div"), panel = element(box, "div", "portrait");
    this.histories = [];
    const add = (title, log, series) => {
      const history = new History(series.length), chart = { title, log, live: true, enveloped: false, t: history.t, windowT: history.t, series: series.map((s, i) => ({ name: s.name, values: history.v[i] })) };
      this.histories.push({ history, series, chart: new Chart(charts, chart, [], () => {}) });
    };
    const all = this.machines.map((m) => ({ m, name: m.name }));
    add(this.options.energy, false, all.map(({ m, name }) => ({ name, read: () => m.observe(ENERGY) - m.energy })));
    const bound = all.filter(({ m }) => m.info.constrained);
    if (bound.length) {
      const series = bound.map(({ m, name }) => ({ name: bound.length > 1 ? `|g|, ${name}` : "|g|", read: () => m.observe(ERROR) }));
      if (bound.length === 1) series.push({ name: "|G M^-1 p|", read: () => bound[0].m.observe(HIDDEN) });
      add("constraint error", true, series);
    }
    for (const name of this.options.observables) {
      const places = Array.from({ length: this.lead.kernel.observables[name].length }, (_, i) => i).slice(0, 6);
      add(name, false, places.map((i) => ({ name: places.length > 1 ? `${name}[${i}]` : name, read: () => this.lead.observe(name, this.lead.kernel, i) })));
    }
    if (!data.scene) {
      const places = Array.from({ length: Math.min(6, this.lead.kernel.q.length) }, (_, i) => i);
      add("coordinates", false, places.map((i) => ({ name: this.options.coordinates[i] || `q[${i}]`, read: () => this.lead.kernel.q[i] })));
    }
    this.portraits = new Portraits(tabs, panel, charts, { charts: this.histories, tables: [] });
    if (this.section) { this.portraits.add("Section", () => this.makeSection(panel)); this.portraits.choose("Section"); }
    new ResizeObserver(() => this.portraits.refresh()).observe(box);
  }

  makeSection(panel) {
    const box = element(panel, "div", "chart"), plane = new Plane(box), note = element(box, "p", "note"), s = this.section;
    let drawn = 0, range = null;
    this.portraits.redraw = () => { range = null; this.drawSection(); };
    this.drawSection = () => {
      const outside = (list, [a, b]) => { for (let i = drawn; i < s.seen; i++) if (!(list[i % 60000] >= a && list[i % 60000] <= b)) return true; return false; };
      if (!range || s.seen < drawn || outside(s.x, range[0]) || outside(s.y, range[1])) {
        const wider = ([a, b]) => [a - 0.1 * (b - a), b + 0.1 * (b - a)];
        range = [wider(extent([s.x])), wider(extent([s.y]))];
        plane.frame(range[0], range[1], s.names.slice(1));
        drawn = Math.max(0, s.seen - 60000);
      }
      for (; drawn < s.seen; drawn++) plane.dots([s.x[drawn % 60000]], [s.y[drawn % 60000]], PALETTE[s.orbit[drawn % 60000] % PALETTE.length], 1);
      note.textContent = `${s.seen} crossings where ${s.names[0]} rises through 0`;
    };
  }

  sample() {
    if (!this.histories) return;
    const t = this.lead.kernel.t;
    for (const { history, series } of this.histories) if (history.t[history.t.length - 1] !== t) history.add(t, series.map((s) => s.read()));
  }

  redraw(now) { // one chart at a time, because charts are the slowest part
    if (!this.portraits) return;
    this.frame = (this.frame || 0) + 1;
    if (this.portraits.name !== "Time") { if (this.drawSection && (now || this.frame % 10 === 0)) this.drawSection(); }
    else this.histories.forEach((h, i) => { if (now || this.frame % (6 * this.histories.length) === 6 * i) h.chart.renew(); });
    if (!now && this.frame % 12) return;
    this.machines.forEach((m, i) => {
      const number = (x) => (Number.isFinite(x) ? (x === 0 ? "0" : x.toExponential(1)) : "-"), parts = [`${this.options.energy} ${number(m.observe(ENERGY) - m.energy)}`];
      if (m.info.constrained) parts.push(`constraint error ${number(m.observe(ERROR))}`);
      if (m.stopped) parts.push("stopped");
      if (i === 0 && m.ghosts.length) parts.push(`${m.ghosts.length - m.ghosts.filter((g) => g.gone).length} ghosts`);
      this.numbers[i].textContent = `${m.name}: ${parts.join(", ")}`;
    });
  }

  recolor() { for (const h of this.histories) h.chart.make(); this.portraits.refresh(); }

  makePanel() {
    const bar = document.querySelector(".bar"), panel = (this.panel = element(bar.parentElement, "div", "live panel"));
    this.reset = element(bar, "button", "live", "Reset");
    by("play").after(this.reset);
    this.reset.title = "r"; this.reset.onclick = () => { this.restart(); show(); };
    if (this.machines.length > 1 && data.scene) {
      const over = element(bar, "button", "live", "Overlay");
      over.onclick = () => {
        this.over = !this.over; over.setAttribute("aria-pressed", String(this.over));
        drawing.figures.slice(1).forEach((f) => f.group.position.set(...(this.over ? [0, 0, 0] : drawing.beside)));
        show();
      };
    }
    this.message = element(panel, "p", "message"); this.message.setAttribute("role", "status");
    const names = element(panel, "div", "names");
    this.numbers = this.machines.map((m, i) => { const span = element(names, "span"); span.style.setProperty("--series", PALETTE[i]); return span; });
    this.options.sliders.forEach((s, i) => {
      const label = element(panel, "label", "slider"), name = element(label, "span", "", s.label), input = element(label, "input"), value = element(label, "output", "", String(+s.value.toPrecision(4)));
      Object.assign(input, { type: "range", min: s.low, max: s.high, step: "any", value: s.value, name: s.label });
      name.title = `${s.low} .. ${s.high}`;
      input.oninput = () => { this.slide(i, Number(input.value)); input.value = String(this.values[i]); value.textContent = String(+this.values[i].toPrecision(4)); show(); };
    });
    if (data.scene) element(panel, "p", "hint", "Drag a particle or a body; it stays on the constraints and starts from rest.");
  }
}

async function goLive() {
  const { live } = data;
  try {
    if (live.ensemble.q && typeof live.ensemble.q === "string") for (const key of ["q", "p"]) live.ensemble[key] = decoded(live.ensemble[key], Float64Array);
    const machines = await Promise.all(live.kernels.map((info, i) => Machine.load(info, i ? 0 : live.ensemble.count)));
    if (live.beside) {
      const stored = source, button = element(document.querySelector(".bar"), "button", "", "Live");
      let kernel = null;
      button.onclick = () => {
        if (source === stored) { kernel = kernel || new KernelFrames(machines); use(kernel); state.t = kernel.lead.kernel.t; show(); play(true); }
        else { use(stored); seek(stored.window.t[0]); }
        button.setAttribute("aria-pressed", String(source !== stored));
      };
      return;
    }
    use(new KernelFrames(machines));
    begin();
    show();
    if (!location.hash.includes("still")) play(true);
  } catch (error) {
    console.error(error);
    element(document.querySelector("header"), "p", "message", `The kernel does not start in this browser: ${error.message || error}`);
  }
}
