// Ghosts, trails that grow, and dragging: a grabbed point follows the pointer as far as the constraints let it.
"use strict";
function tipScale() { // scale for a body about a fixed point: paths show the end of its axle, outside of its shapes
  if (data.scene.layout !== "rotation") return 1;
  const ends = data.scene.frames.flatMap((f) => f.shapes.filter((s) => s.kind === "line").map((s) => Math.hypot(...s.size.slice(-3))));
  return Math.max(1, ...ends);
}

class LiveTrail { // the last rows of a point, stored twice so that they are always contiguous
  constructor(figure, k, color, size) {
    Object.assign(this, { figure, k, size, count: 0, scale: tipScale() });
    this.path = new Float32Array(6 * size);
    this.trail = new Trail(figure.group, this.path, color, true);
  }

  clear() { this.count = 0; }

  add() {
    const i = this.count++ % this.size;
    for (const at of [i, i + this.size]) for (let c = 0; c < 3; c++) this.path[3 * at + c] = this.scale * this.figure.points[3 * this.k + c];
    this.trail.places.needsUpdate = true;
  }

  show(rows) {
    const end = ((this.count - 1) % this.size) + this.size + 1, count = Math.min(rows, this.count, this.size);
    this.trail.range(end - count, this.count ? count : 0);
  }
}

class Ghosts { // many copies as dots and thin bars
  constructor(drawing, count) {
    this.group = new THREE.Group();
    drawing.figure.group.add(this.group);
    const { tracked } = data, { bonds } = data.scene, colors = new Float32Array(3 * count * tracked.length), color = new THREE.Color();
    this.points = new Float32Array(3 * data.points);
    this.places = new THREE.BufferAttribute(new Float32Array(3 * count * tracked.length), 3);
    for (let i = 0; i < count; i++) tracked.forEach((_, j) => color.setHSL((0.75 * i) / count, 0.75, 0.5).toArray(colors, 3 * (i * tracked.length + j)));
    const geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", this.places);
    geometry.setAttribute("color", new THREE.BufferAttribute(colors, 3));
    this.dots = new THREE.Points(geometry, new THREE.PointsMaterial({ vertexColors: true, size: 3, sizeAttenuation: false }));
    this.dots.frustumCulled = false;
    this.group.add(this.dots);
    this.bonds = bonds.filter((b) => b.kind !== "ground" && !(b.at_a || []).length && !(b.at_b || []).length);
    if (this.bonds.length * count > (drawing.slow ? 200 : 1200)) this.bonds = []; // dots only
    const bars = new THREE.InstancedMesh(new THREE.CylinderGeometry(1, 1, 1, 3, 1, true), new THREE.MeshLambertMaterial({ color: "#94a3b8" }), Math.max(1, this.bonds.length * count));
    this.bars = Object.assign(bars, { frustumCulled: false, visible: this.bonds.length > 0 });
    this.group.add(bars);
    this.scale = tipScale(); this.far = 1e4 * drawing.size;
    this.thick = 0.0016 * drawing.size; this.figure = drawing.figure;
    this.a = new THREE.Vector3(); this.b = new THREE.Vector3(); this.m = new THREE.Matrix4();
  }

  show(source, kernels) {
    const { tracked } = data, { points, places, a, b } = this;
    this.group.visible = true;
    kernels.forEach((kernel, i) => {
      source.fill(kernel, points);
      tracked.forEach((k, j) => { for (let c = 0; c < 3; c++) places.array[3 * (i * tracked.length + j) + c] = kernel.gone ? this.far : this.scale * points[3 * k + c]; });
      this.bonds.forEach((bond, j) => {
        pointAt(points, this.figure.anchors, bond.a, a); pointAt(points, this.figure.anchors, bond.b, b);
        this.bars.setMatrixAt(i * this.bonds.length + j, this.figure.between(a, b, kernel.gone ? 0 : this.thick, this.m));
      });
    });
    places.needsUpdate = true;
    this.bars.instanceMatrix.needsUpdate = true;
  }
}

class Drag {
  constructor(source, drawing) {
    Object.assign(this, { source, drawing, held: null, pointer: new THREE.Vector3() });
    const { stage } = drawing, canvas = drawing.renderer.domElement;
    stage.addEventListener("pointerdown", (event) => {
      const found = event.target === canvas && this.active() && this.nearest(event, event.pointerType === "touch" ? 34 : 18);
      if (!found) return;
      event.stopPropagation(); event.preventDefault(); // do not move the camera
      this.grab(found, event);
      canvas.setPointerCapture(event.pointerId);
    }, { capture: true });
    canvas.addEventListener("pointermove", (event) => { if (this.held) this.move(event); });
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => this.release());
  }

  active() { return source === this.source; }

  handles() { // draggable points: particles, corners of lines, and marks of bodies
    const { scene } = data, out = [], { figures } = this.drawing;
    for (const figure of figures) {
      for (const g of [...scene.particles, ...scene.polylines]) for (const k of g.indices) out.push({ figure, k });
      for (const body of figure.bodies) {
        const f = body.frame, d = data.dimension;
        if (f.center < 0 && !f.directors.length) continue;
        const marks = f.center >= 0 ? [[0, 0, 0]] : [];
        for (const s of f.shapes) {
          marks.push(lift(s.position));
          if (s.kind === "line") for (let i = 0; i + d <= s.size.length; i += d) marks.push(lift(s.size.slice(i, i + d)));
        }
        for (const j of scene.joints) if (j.frame === f.name) marks.push(lift(j.position));
        for (const r of marks) out.push({ figure, body, r });
      }
    }
    return out;
  }

  place(h) { // the position of a handle in the picture
    const at = h.body ? new THREE.Vector3(...h.r).applyMatrix4(h.body.group.matrix) : h.figure.at(h.k);
    return at.add(h.figure.group.position);
  }

  toScreen(at) {
    const box = this.drawing.renderer.domElement.getBoundingClientRect(), v = at.clone().project(this.drawing.camera);
    return [box.left + ((v.x + 1) / 2) * box.width, box.top + ((1 - v.y) / 2) * box.height, v.z];
  }

  nearest(event, reach) {
    let best = null, least = reach;
    for (const h of this.handles()) {
      const [x, y] = this.toScreen(this.place(h)), apart = Math.hypot(x - event.clientX, y - event.clientY);
      if (apart < least) { least = apart; best = h; }
    }
    return best;
  }

  grab(handle, event) {
    this.held = handle;
    this.depth = this.toScreen(this.place(handle))[2];
    this.move(event);
    const follow = () => { if (!this.held) return; if (!state.playing) { this.pull(); show(); } requestAnimationFrame(follow); };
    requestAnimationFrame(follow);
  }

  move(event) {
    const box = this.drawing.renderer.domElement.getBoundingClientRect();
    this.pointer.set(((event.clientX - box.left) / box.width) * 2 - 1, 1 - ((event.clientY - box.top) / box.height) * 2, this.depth).unproject(this.drawing.camera);
    if (this.held) this.pointer.sub(this.held.figure.group.position);
  }

  pull() { // moves toward the pointer, each projected onto the manifold; halved if that fails
    const { source, held } = this, { lead } = source, { kernel } = lead, figure = this.drawing.figure;
    if (!held) return;
    const body = held.body && figure.bodies[held.figure.bodies.indexOf(held.body)], longest = 0.1 * this.drawing.size;
    for (let n = 0, part = 1; n < 4 && part > 0.05; n++) {
      const old = lead.block(kernel).slice();
      source.fill(kernel, figure.points); figure.show();
      const at = body ? new THREE.Vector3(...held.r).applyMatrix4(body.group.matrix) : figure.at(held.k);
      const way = this.pointer.clone().sub(at);
      if (way.length() > longest) way.setLength(longest);
      way.multiplyScalar(part);
      kernel.p.fill(0);
      if (body) this.turn(kernel.q, body.frame, held.r, way.toArray()); else this.shift(kernel.q, held.k, way.toArray(), 1);
      if (lead.settle(kernel)) { lead.block(kernel).set(old); part /= 2; }
    }
    source.sync();
  }

  shift(q, k, way, weight) {
    const { dimension: d } = data;
    if (data.scene.layout === "angles") { // the last rod turns to the pointer
      const { points } = this.drawing.figure, arm = [0, 1].map((c) => points[3 * k + c] - (k ? points[3 * k - 3 + c] : 0)), to = arm.map((x, c) => x + way[c]);
      q[k] += Math.atan2(arm[0] * to[1] - arm[1] * to[0], arm[0] * to[0] + arm[1] * to[1]);
    } else if (data.scene.layout === "rotation") for (let c = 0; c < 3; c++) q[3 * c + k] += weight * way[c];
    else for (let c = 0; c < d; c++) q[k * this.source.wide + c] += weight * way[c];
  }

  turn(q, frame, r, way) { // x = center + r_1 d_1 + ...: the smallest change that moves x by `way`
    const { center, directors } = frame, turned = data.dimension === 2 && directors.length === 1 ? r[1] : 0;
    const weights = directors.map((_, i) => r[i]), total = (center >= 0 ? 1 : 0) + weights.reduce((a, b) => a + b * b, turned * turned) || 1;
    if (center >= 0) this.shift(q, center, way, 1 / total);
    directors.forEach((k, i) => this.shift(q, k, way, weights[i] / total));
    if (turned) this.shift(q, directors[0], [way[1], -way[0], 0], turned / total);
  }

  release() {
    if (!this.held) return;
    this.held = null;
    const { source } = this;
    source.lead.kernel.p.fill(0);
    source.lead.settle(source.lead.kernel);
    source.sync();
    source.say("");
    source.renew(!source.options.ensemble.q);
    show();
  }
}
