// Frames from compiled steps that run in this page: one machine per method, each with the blocks of its ghosts.
"use strict";
const BUDGET = 10; // milliseconds per frame that steps may take

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

class Machine {
  static async load(info, copies) {
    const { instance } = await WebAssembly.instantiate(await inflated(info.code), { env: Math });
    return new Machine(info, instance.exports, copies);
  }

  constructor(info, code, copies) {
    const { layout } = info, base = code.__heap_base.value, missing = base + (copies + 1) * layout.size - code.memory.buffer.byteLength;
    if (missing > 0) code.memory.grow(Math.ceil(missing / 65536)); // before views of the memory are made
    Object.assign(this, { info, name: info.method, chunk: 1, projects: `${layout.name}_project` in code, memory: code.memory, size: layout.size });
    this.kernel = new Kernel(code, layout, base);
    this.ghosts = Array.from({ length: copies }, (_, i) => new Kernel(code, layout, base + (i + 1) * layout.size));
    this.start = { q: Float64Array.from(this.kernel.q), p: Float64Array.from(this.kernel.p) };
    this.stopped = 0;
  }

  block(kernel) { return new Uint8Array(this.memory.buffer, kernel.base, this.size); }

  copy(kernel) { this.block(kernel).set(this.block(this.kernel)); }

  field(name) { // the field of a parameter or of the step
    return (kernel) => (name === "dt" ? kernel._dt : kernel.params[name]);
  }

  settle(kernel) { return this.projects ? kernel.project() : kernel.set(); } // move to the nearest consistent state

  /** Step to the time `goal`, or as far as the time budget allows. `visit` sees every step. Returns the status. */
  run(kernel, goal, deadline, visit) {
    for (;;) {
      const dt = kernel.dt, left = (goal - kernel.t) / dt;
      if (!(left > 0.5)) return 0;
      const count = visit || this.info.adaptive ? 1 : Math.max(1, Math.min(Math.round(left), this.chunk)), before = performance.now();
      const status = kernel.step(count);
      if (status) return status;
      if (visit) visit();
      const now = performance.now();
      if (!visit && count === this.chunk) this.chunk = Math.max(1, Math.min(4096, now - before < 1 ? 2 * this.chunk : now - before > 3 ? this.chunk >> 1 : this.chunk));
      if (now > deadline) return 0;
    }
  }

  observe(name, kernel = this.kernel, i = 0) { // a 64-bit integer is a BigInt
    const values = kernel.observables[name];
    return values && i < values.length ? Number(values[i]) : NaN;
  }
}

class History { // quantities since the start; when full, it drops every second sample and keeps the larger errors
  constructor(count) { this.count = count; this.t = []; this.v = Array.from({ length: count }, () => []); this.clear(); }

  clear() { this.t.length = 0; this.v.forEach((v) => { v.length = 0; }); this.stride = 1; this.waiting = 0; this.next = new Array(this.count).fill(0); }

  add(t, values) {
    values.forEach((x, i) => { if (this.waiting === 0 || !(Math.abs(x) <= Math.abs(this.next[i]))) this.next[i] = x; });
    if (++this.waiting < this.stride) return;
    this.waiting = 0;
    this.t.push(t);
    this.v.forEach((v, i) => v.push(this.next[i]));
    if (this.t.length < 1000) return;
    const half = (list, keep) => { for (let k = 0; k < 500; k++) list[k] = keep(list[2 * k], list[2 * k + 1]); list.length = 500; };
    half(this.t, (a, b) => b);
    this.v.forEach((v) => half(v, (a, b) => (Math.abs(a) > Math.abs(b) ? a : b)));
    this.stride *= 2;
  }
}

class Crossings { // points of a section: where one observable rises through zero, two others, linear between steps
  constructor(names) { this.names = names; this.clear(); }

  clear() { this.x = []; this.y = []; this.orbit = []; this.before = new Map(); this.seen = 0; }

  visit(machine, kernel, orbit) {
    const now = this.names.map((name) => machine.observe(name, kernel)), old = this.before.get(orbit);
    this.before.set(orbit, now);
    if (!old || !(old[0] < 0 && now[0] >= 0)) return;
    const s = old[0] / (old[0] - now[0]), mix = (i) => old[i] + s * (now[i] - old[i]), place = this.seen++ % 60000;
    this.x[place] = mix(1); this.y[place] = mix(2); this.orbit[place] = orbit;
  }
}

function randoms(seed) { // normal random numbers, the same at every start
  const uniform = () => { seed = (seed + 0x6d2b79f5) | 0; let x = Math.imul(seed ^ (seed >>> 15), 1 | seed); x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x; return (((x ^ (x >>> 14)) >>> 0) + 0.5) / 4294967296; };
  return () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
}
