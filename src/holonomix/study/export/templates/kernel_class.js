const types = {
  float64: Float64Array, float32: Float32Array, bool: Uint8Array, int64: BigInt64Array, uint64: BigUint64Array,
  int32: Int32Array, uint32: Uint32Array, int16: Int16Array, uint16: Uint16Array, int8: Int8Array, uint8: Uint8Array,
};

class Kernel {
  constructor(code, layout, base = code.__heap_base.value) {
    this.code = code;
    this.layout = layout;
    this.base = base;
    const missing = this.base + layout.size - code.memory.buffer.byteLength;
    if (missing > 0) code.memory.grow(Math.ceil(missing / 65536));
    this.params = Object.create(null); // a name such as toString is no parameter unless there is one
    this.observables = Object.create(null);
    for (const [name, field] of Object.entries(layout.fields)) {
      const count = field.shape.reduce((a, b) => a * b, 1);
      const array = new types[field.type](code.memory.buffer, this.base + field.offset, count);
      array.bool = field.type === "bool";
      if (name.startsWith("params.")) this.params[name.slice(7)] = array;
      else if (name.startsWith("obs.")) this.observables[name.slice(4)] = array;
      else if (field.shape.length === 0) Object.defineProperty(this, name, {get: () => Number(array[0]), enumerable: true});
      else this[name] = array;
      if (field.shape.length === 0) this["_" + name] = array;
    }
    this.reset();
  }

  call(part, ...rest) { return this.code[`${this.layout.name}_${part}`](this.base, ...rest); }

  /** Back to the start, step size and parameters that were exported. */
  reset() { this.call("init"); return this; }

  /** Change any of q, p, t, dt, params and key, and begin there. Values that are not named stay. Returns the status. */
  set({q, p, t, dt, params = {}, key, ...others} = {}) {
    for (const name of Object.keys(others)) {
      const known = name in this.params ? `params: {${name}: ...}` : "q, p, t, dt, params and key";
      throw new Error(`set does not take ${name}; it takes ${known}`);
    }
    if (q !== undefined) fill("q", this.q, q);
    if (p !== undefined) fill("p", this.p, p);
    if (t !== undefined) fill("t", this._t, t);
    if (dt !== undefined) fill("dt", this._dt, dt);
    if (key !== undefined) fill("key", this.key, key);
    for (const [name, value] of Object.entries(params)) {
      if (!(name in this.params)) throw new Error(`no parameter ${name}; there are: ${Object.keys(this.params).join(", ")}`);
      fill(name, this.params[name], value);
    }
    return this.call("start");
  }

  /** Move q and p to the nearest consistent state, and begin there. Returns the status; if it is not 0 nothing moved. */
  project() {
    if (!this.code[`${this.layout.name}_project`]) throw new Error(`no projection: ${this.layout.noProjection}`);
    const status = this.call("project");
    return status || this.call("start");
  }

  /** Take steps; returns the status, 0 for success. */
  step(count = 1) { return this.call("step", BigInt(count)); }
}

function fill(name, array, value) {
  const numbers = typeof value === "object" ? Array.from(value ?? []).flat(Infinity) : [value];
  if (numbers.length !== array.length) throw new Error(`${name} needs ${array.length} numbers, not ${numbers.length}`);
  for (const x of numbers) if (!["number", "bigint", "boolean"].includes(typeof x)) throw new Error(`${name} needs numbers, not ${typeof x}`);
  const wide = array instanceof BigInt64Array || array instanceof BigUint64Array;
  array.set(numbers.map(array.bool ? Boolean : wide ? BigInt : Number));
}
