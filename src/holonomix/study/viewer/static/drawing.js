// Drawing: the objects of a scene at one configuration, with three.js. Points are rows of q; index -k is anchors[k - 1].
"use strict";
const PALETTE = ["#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#65a30d", "#475569", "#b45309"];

function inSoftware() { // without a graphics card, smooth edges would cost most of the frames
  const gl = document.createElement("canvas").getContext("webgl2"), info = gl && gl.getExtension("WEBGL_debug_renderer_info");
  return Boolean(info) && /swiftshader|llvmpipe|software/i.test(gl.getParameter(info.UNMASKED_RENDERER_WEBGL));
}

const UP = new THREE.Vector3(0, 1, 0);

function tube(path, steps, radius, sides = 6) { // around the points path(0) .. path(1), which are arrays
  const place = [], faces = [], a = new THREE.Vector3(), b = new THREE.Vector3(), u = new THREE.Vector3(), v = new THREE.Vector3();
  for (let i = 0; i <= steps; i++) {
    a.set(...path(i / steps)); b.set(...path((i + 0.5) / steps)).sub(a);
    u.set(...path((i + 0.5) / steps)).cross(b).normalize(); v.crossVectors(b, u).normalize();
    for (let j = 0; j <= sides; j++) {
      const t = (2 * Math.PI * j) / sides, c = radius * Math.cos(t), s = radius * Math.sin(t), k = i * (sides + 1) + j;
      place.push(a.x + c * u.x + s * v.x, a.y + c * u.y + s * v.y, a.z + c * u.z + s * v.z);
      if (i < steps && j < sides) faces.push(k, k + sides + 1, k + 1, k + 1, k + sides + 1, k + sides + 2);
    }
  }
  const geometry = new THREE.BufferGeometry();
  geometry.setAttribute("position", new THREE.BufferAttribute(new Float32Array(place), 3));
  geometry.setIndex(faces); geometry.computeVertexNormals();
  return geometry;
}
const around = (s) => [Math.cos(2 * Math.PI * s), Math.sin(2 * Math.PI * s), 0];
function coil() { // a spring of radius and height 1 along y, made for a height of 16, so that the wire stays round
  const wire = (s) => { const t = Math.min(Math.max((s - 0.1) / 0.8, 0), 1), r = Math.min(1, 40 * t * (1 - t)), a = around(7 * t); return [r * a[0] + 1e-3, 16 * (s - 0.5), r * a[1]]; };
  return tube(wire, 112, 0.2, 5).scale(1, 1 / 16, 1);
}

class Drawing {
  constructor(stage, data) {
    this.stage = stage; this.data = data; this.dim = data.dimension; this.scene = data.scene;
    this.anchors = this.scene.anchors.map((a) => this.lift(a));
    this.points = new Float32Array(3 * data.points);
    this.flat = this.dim === 2;
    this.spare = { a: new THREE.Vector3(), b: new THREE.Vector3(), c: new THREE.Vector3(), along: new THREE.Vector3(), scale: new THREE.Vector3(), turn: new THREE.Quaternion(), m: new THREE.Matrix4() };
    this.measure();
    const slow = (this.slow = inSoftware());
    this.renderer = new THREE.WebGLRenderer({ antialias: !slow, stencil: false });
    this.ratio = Math.min(window.devicePixelRatio || 1, slow ? 1 : 1.5);
    this.renderer.setPixelRatio(this.ratio);
    this.tint();
    stage.prepend(this.renderer.domElement);
    this.world = new THREE.Scene();
    this.world.add(new THREE.HemisphereLight(0xffffff, 0x8088a0, 2.2));
    this.sun = new THREE.DirectionalLight(0xffffff, 1.6);
    this.world.add(this.sun);
    this.makeCamera();
    this.makeParticles(); this.makeBars(); this.makeFrames(); this.makePlanes(); this.makeGuides(); this.makeTriad(); this.makeTrails(); this.makeOverview(); this.makeArrows();
    new ResizeObserver(() => this.resize()).observe(stage);
    this.resize();
  }

  lift(a) { return [a[0] || 0, a[1] || 0, a[2] || 0]; }

  measure() { // the box of everything that is shown
    const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity], d = this.dim;
    const take = (x) => { for (let i = 0; i < 3; i++) if (Number.isFinite(x[i])) { low[i] = Math.min(low[i], x[i]); high[i] = Math.max(high[i], x[i]); } };
    const ends = new Set(); // directors are no places
    for (const f of this.scene.frames) f.directors.forEach((k) => ends.add(k));
    for (const w of this.data.windows)
      for (let i = 0; i < w.count * this.data.points; i++)
        if (!ends.has(i % this.data.points)) take([w.x[d * i], w.x[d * i + 1], d === 3 ? w.x[d * i + 2] : 0]);
    this.anchors.forEach(take);
    for (const f of this.scene.frames) { // the corners of every body
      const corners = f.shapes.flatMap((s) => this.corners(s)), still = f.center < 0 && !f.directors.length;
      for (const w of this.data.windows) for (let row = 0; row < w.count && (row === 0 || !still); row += Math.max(1, Math.floor(w.count / 150))) {
        const at = (k) => (k < 0 ? this.anchors[-k - 1] || [0, 0, 0] : [0, 1, 2].map((c) => (c < d ? w.x[(row * this.data.points + k) * d + c] : 0)));
        const m = still ? new THREE.Matrix4() : this.pose(f, at), v = new THREE.Vector3();
        for (const corner of corners) take(v.set(...corner).applyMatrix4(m).toArray());
      }
    }
    for (const g of this.scene.guides || []) if (!g.frame) for (const line of g.lines) for (let i = 0; i + d <= line.length; i += d) take(this.lift(line.slice(i, i + d)));
    if (!Number.isFinite(low[0])) { low.fill(0); high.fill(0); }
    this.center = low.map((x, i) => (x + high[i]) / 2);
    this.alone = !(Math.max(...high.map((x, i) => x - low[i])) > 0); // one point that does not move
    this.size = Math.max(...high.map((x, i) => x - low[i]), 0) || 1;
    this.low = low; this.high = high;
    const first = this.data.windows[0].x;
    for (let i = 0; i < this.points.length; i++) this.points[i] = i % 3 < d ? first[Math.floor(i / 3) * d + (i % 3)] : 0;
    const lengths = this.scene.bonds.map((b) => { return this.at(b.a).distanceTo(this.at(b.b)); });
    this.unit = Math.min(this.size, 10 * Math.min(Infinity, ...lengths.filter((x) => x > 0))); // what marks are scaled by
  }

  corners(s) { // of a box around a shape, in the coordinates of its body
    const n = s.size, d = this.dim, r = s.rotation, k = r.length === 9 ? 3 : 2, out = [];
    if (s.kind === "line") { for (let i = 0; i + d <= n.length; i += d) out.push(this.lift(n.slice(i, i + d))); return out; }
    const wide = { sphere: [n[0], n[0], n[0]], ring: [n[0] + n[1] / 2, n[0] + n[1] / 2, n[1] / 2], cylinder: [n[0], n[0], (n[1] || 0) / 2], capsule: [n[0], n[0], n[0] + (n[1] || 0) / 2], rod: [n[0] / 2, (n[1] || 0) / 2, (n[1] || 0) / 2] }[s.kind] || [0, 1, 2].map((i) => (n[i] || 0) / 2);
    for (let c = 0; c < 8; c++) {
      const x = wide.map((v, i) => ((c >> i) & 1 ? v : -v));
      out.push([0, 1, 2].map((i) => (s.position[i] || 0) + (i < k ? x.slice(0, k).reduce((sum, v, j) => sum + r[i * k + j] * v, 0) : 0)));
    }
    return out;
  }

  pose(f, at) { // the matrix of a body from its center and directors; missing directors follow from the others
    const d = f.directors.map(at), x = at(f.center);
    if (this.flat) d[1] = d[1] || [-d[0][1], d[0][0], 0];
    if (!d[1]) { const u = new THREE.Quaternion().setFromUnitVectors(new THREE.Vector3(1, 0, 0), new THREE.Vector3(...d[0]).normalize()); d[1] = new THREE.Vector3(0, 1, 0).applyQuaternion(u).toArray(); }
    if (!d[2]) d[2] = new THREE.Vector3(...d[0]).cross(new THREE.Vector3(...d[1])).toArray();
    return new THREE.Matrix4().set(d[0][0], d[1][0], d[2][0], x[0], d[0][1], d[1][1], d[2][1], x[1], d[0][2], d[1][2], d[2][2], x[2], 0, 0, 0, 1);
  }

  distance(aspect) { // from which a camera in space sees all corners of the box
    const f = this.from, up = this.camera.up, r = new THREE.Vector3().crossVectors(up, f).normalize(), u = new THREE.Vector3().crossVectors(f, r);
    const tall = Math.tan((35 * Math.PI) / 360), c = new THREE.Vector3();
    let far = 0.5 * this.size;
    for (let k = 0; k < 8; k++) {
      c.set(...[0, 1, 2].map((i) => ((k >> i) & 1 ? 0.5 : -0.5) * ((this.high[i] - this.low[i]) || 0)));
      far = Math.max(far, c.dot(f) + Math.max(Math.abs(c.dot(u)) / tall, Math.abs(c.dot(r)) / (tall * aspect)) * 1.1);
    }
    return far + 0.12 * this.size; // marks at the border have a size
  }

  makeCamera() {
    const up = this.flat ? 1 : this.scene.up < 0 ? 2 : this.scene.up, d = 2.0 * this.size;
    const c = new THREE.Vector3(...this.center);
    this.camera = this.flat ? new THREE.OrthographicCamera(-1, 1, 1, -1, -50 * d, 50 * d) : new THREE.PerspectiveCamera(35, 1, d / 500, 60 * d);
    const axes = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    this.camera.up.set(...axes[up]);
    const side = axes[(up + 1) % 3], front = axes[(up + 2) % 3];
    const rise = 0.35 + 0.8 * Math.max(0, 1 - (2 * (this.high[up] - this.low[up])) / this.size); // what lies flat is seen from above
    const from = this.flat ? [0, 0, 1] : [0, 1, 2].map((i) => 0.75 * front[i] - 0.45 * side[i] + rise * axes[up][i]);
    const norm = Math.hypot(...from);
    this.from = new THREE.Vector3(...from.map((x) => x / norm));
    this.home = c.clone().addScaledVector(this.from, d);
    this.target = c;
    this.camera.position.copy(this.home);
    this.controls = new THREE.OrbitControls(this.camera, this.renderer.domElement);
    this.controls.enableRotate = !this.flat;
    this.controls.enableDamping = false;
    this.controls.target.copy(c);
    this.controls.addEventListener("change", () => { this.moved = true; });
    this.controls.update();
  }

  reset() {
    this.camera.position.copy(this.home); this.camera.zoom = 1; this.controls.target.copy(this.target);
    this.camera.updateProjectionMatrix(); this.controls.update(); this.moved = true;
  }

  resize() {
    const w = this.stage.clientWidth || 1, h = this.stage.clientHeight || 1, aspect = w / h;
    this.renderer.setSize(w, h);
    if (this.flat) {
      const wide = this.high[0] - this.low[0], tall = this.high[1] - this.low[1], pad = 0.08 * this.size;
      const half = Math.max(tall / 2 + pad, (wide / 2 + pad) / aspect, (this.alone ? 0.6 : 0.05) * this.size);
      Object.assign(this.camera, { left: -half * aspect, right: half * aspect, top: half, bottom: -half });
    } else {
      this.camera.aspect = aspect;
      const untouched = this.camera.position.distanceTo(this.home) < 1e-9 * this.size;
      this.home.copy(this.target).addScaledVector(this.from, this.distance(aspect));
      if (untouched) { this.camera.position.copy(this.home); this.controls.update(); }
    }
    this.camera.updateProjectionMatrix();
    this.moved = true;
  }

  instanced(geometry, color, count) {
    const mesh = new THREE.InstancedMesh(geometry, new THREE.MeshLambertMaterial({ color }), count);
    mesh.frustumCulled = false;
    this.world.add(mesh);
    return mesh;
  }

  makeParticles() {
    const crowd = Math.min(1, Math.cbrt(30 / Math.max(this.data.points, 1)));
    this.groups = this.scene.particles.map((g, k) => {
      const radius = g.radius || 0.022 * this.unit * crowd;
      const fine = this.data.points > 30 ? [10, 7] : [18, 12], ball = new THREE.SphereGeometry(radius, ...fine);
      return { indices: g.indices, mesh: this.instanced(ball, g.color || (k ? PALETTE[k % PALETTE.length] : "#334155"), g.indices.length) };
    });
    if (this.anchors.length) {
      const s = 0.035 * this.unit, mesh = this.instanced(new THREE.BoxGeometry(s, s, s), "#8891a3", this.anchors.length);
      this.anchors.forEach((a, i) => mesh.setMatrixAt(i, new THREE.Matrix4().makeTranslation(...a)));
    }
  }

  makeBars() { // bonds and polylines: cylinders from point to point
    const radius = { bar: 0.008, spring: 0.02, damper: 0.005, line: 0.011, ground: 0.006 }, color = { bar: "#64748b", spring: "#d97706", damper: "#7c3aed", line: "#2563eb", ground: "#b4bccb" };
    const kinds = new Map();
    const add = (a, b, kind, own, atA = [], atB = []) => {
      const key = kind + own;
      if (!kinds.has(key)) kinds.set(key, { pairs: [], radius: (radius[kind] || 0.008) * this.unit, color: own || color[kind] || "#64748b" });
      kinds.get(key).pairs.push([a, b, atA, atB]); kinds.get(key).coil = kind === "spring";
    };
    for (const b of this.scene.bonds) add(b.a, b.b, b.kind, b.color, b.at_a, b.at_b);
    for (const p of this.scene.polylines) {
      const n = p.indices.length;
      for (let i = 0; i + (p.closed ? 0 : 1) < n; i++) add(p.indices[i], p.indices[(i + 1) % n], "line", p.color);
    }
    const crowd = Math.min(1, Math.cbrt(60 / Math.max(this.scene.bonds.length, 1)));
    this.bars = [...kinds.values()].map((k) => ({ ...k, radius: k.radius * crowd, mesh: this.instanced(k.coil ? coil() : new THREE.CylinderGeometry(1, 1, 1, 10), k.color, k.pairs.length) }));
  }

  makeFrames() {
    this.bodies = this.scene.frames.map((f, k) => {
      const group = new THREE.Group(), color = f.color || PALETTE[k % PALETTE.length];
      group.matrixAutoUpdate = false;
      for (const s of f.shapes) group.add(this.shape(s, s.color || color));
      for (const j of this.scene.joints) if (j.frame === f.name) {
        const ball = new THREE.Mesh(new THREE.SphereGeometry(0.014 * this.size, 14, 10), new THREE.MeshLambertMaterial({ color: "#334155" }));
        ball.position.set(...this.lift(j.position));
        group.add(ball);
      }
      this.world.add(group);
      return { frame: f, group };
    });
  }

  shape(s, color) {
    const material = new THREE.MeshLambertMaterial({ color }), thin = 0.012 * this.size, n = s.size;
    if (s.kind === "line") {
      const group = new THREE.Group(), d = this.dim;
      for (let i = 0; i + 2 * d <= n.length; i += d) {
        const mesh = new THREE.Mesh(new THREE.CylinderGeometry(thin, thin, 1, 10), material);
        this.between(new THREE.Vector3(...this.lift(n.slice(i, i + d))), new THREE.Vector3(...this.lift(n.slice(i + d, i + 2 * d))), 1).decompose(mesh.position, mesh.quaternion, mesh.scale);
        mesh.scale.set(1, mesh.scale.y, 1);
        group.add(mesh);
      }
      return group;
    }
    const turned = (g) => g.rotateX(Math.PI / 2); // three.js has cylinders along y, we along z
    const make = {
      box: () => new THREE.BoxGeometry(n[0], n[1] ?? thin, n[2] ?? thin),
      plate: () => new THREE.BoxGeometry(n[0], n[1] ?? thin, n[2] || thin),
      rod: () => new THREE.BoxGeometry(n[0], n[1] || thin, n[1] || thin),
      sphere: () => new THREE.SphereGeometry(n[0], 24, 16),
      cylinder: () => turned(new THREE.CylinderGeometry(n[0], n[0], n[1] ?? thin, 28)),
      ring: () => tube((t) => around(t).map((x) => n[0] * x), 64, n[1] / 2, 8),
      capsule: () => turned(new THREE.CapsuleGeometry(n[0], n[1] ?? thin, 8, 20)),
    }[s.kind] || (() => new THREE.SphereGeometry(thin, 12, 8));
    const mesh = new THREE.Mesh(make(), material), r = s.rotation;
    const m = r.length === 9 ? [r[0], r[1], r[2], 0, r[3], r[4], r[5], 0, r[6], r[7], r[8], 0, 0, 0, 0, 1] : [r[0], r[1], 0, 0, r[2], r[3], 0, 0, 0, 0, 1, 0, 0, 0, 0, 1];
    mesh.applyMatrix4(new THREE.Matrix4().set(...m));
    mesh.position.add(new THREE.Vector3(...this.lift(s.position)));
    return mesh;
  }

  makePlanes() { // in space a grid: translucent faces over the whole picture would cost most of the time without a graphics card
    for (const p of this.scene.planes) {
      const n = new THREE.Vector3(...this.lift(p.normal)).normalize(), at = new THREE.Vector3(...this.lift(p.point));
      const c = new THREE.Vector3(...this.center), side = 1.1 * this.size;
      const place = c.sub(n.clone().multiplyScalar(c.clone().sub(at).dot(n)));
      let mesh;
      if (this.flat) {
        mesh = new THREE.Mesh(new THREE.PlaneGeometry(side, 0.01 * this.size), new THREE.MeshLambertMaterial({ color: "#94a3b8", side: THREE.DoubleSide }));
        mesh.rotation.z = Math.atan2(n.y, n.x) + Math.PI / 2;
      } else {
        const cells = 6, path = []; // one line there and back along every grid line, first one way, then the other
        const corner = (u, v) => path.push((u / cells - 0.5) * side, (v / cells - 0.5) * side, 0);
        for (let i = 0; i <= cells; i++) for (const j of i % 2 ? [cells, 0] : [0, cells]) corner(i, j);
        for (let i = cells; i >= 0; i--) for (const j of i % 2 ? [0, cells] : [cells, 0]) corner(j, i); // from where that ended
        const geometry = new THREE.BufferGeometry();
        geometry.setAttribute("position", new THREE.BufferAttribute(new Float32Array(path), 3));
        mesh = new THREE.Line(geometry, new THREE.LineBasicMaterial({ color: "#b8c0cd" }));
        mesh.quaternion.setFromUnitVectors(new THREE.Vector3(0, 0, 1), n);
      }
      mesh.position.copy(place);
      this.world.add(mesh);
    }
  }

  makeGuides() { // rails, curves and lines on surfaces
    for (const g of this.scene.guides || []) {
      const body = this.bodies.find((x) => x.frame.name === g.frame), parent = body ? body.group : this.world, d = this.dim;
      for (const line of g.lines) {
        const path = [];
        for (let i = 0; i + d <= line.length; i += d) path.push(...this.lift(line.slice(i, i + d)));
        const geometry = new THREE.BufferGeometry();
        geometry.setAttribute("position", new THREE.BufferAttribute(new Float32Array(path), 3));
        const mesh = new THREE.Line(geometry, new THREE.LineBasicMaterial({ color: g.kind === "surface" ? "#a9b4c6" : "#8891a3" }));
        mesh.frustumCulled = false;
        parent.add(mesh);
      }
    }
  }

  makeTriad() { // the directions of the axes, in a corner
    const svg = (this.triad = document.createElementNS("http://www.w3.org/2000/svg", "svg"));
    svg.setAttribute("viewBox", "-32 -32 64 64"); svg.setAttribute("class", "triad"); svg.setAttribute("aria-hidden", "true");
    this.arms = ["x", "y", "z"].slice(0, this.dim).map((name, i) => {
      const line = svg.appendChild(document.createElementNS(svg.namespaceURI, "line")), text = svg.appendChild(document.createElementNS(svg.namespaceURI, "text"));
      line.setAttribute("stroke", ["#dc2626", "#059669", "#2563eb"][i]); text.textContent = name;
      return { line, text, axis: new THREE.Vector3(...[0, 1, 2].map((k) => (k === i ? 1 : 0))) };
    });
    this.stage.append(svg);
  }

  turnTriad() {
    const back = this.camera.quaternion.clone().invert(), v = new THREE.Vector3();
    for (const { line, text, axis } of this.arms) {
      v.copy(axis).applyQuaternion(back);
      line.setAttribute("x2", 20 * v.x); line.setAttribute("y2", -20 * v.y);
      text.setAttribute("x", 27 * v.x); text.setAttribute("y", 3 - 27 * v.y);
    }
  }

  makeTrails() { // one line per window and tracked point, of which a range is shown
    this.trails = this.data.windows.map((w) => this.data.tracked.map((k, i) => {
      const path = new Float32Array(3 * w.count), d = this.dim;
      for (let row = 0; row < w.count; row++) for (let c = 0; c < d; c++) path[3 * row + c] = w.x[(row * this.data.points + k) * d + c];
      const geometry = new THREE.BufferGeometry();
      geometry.setAttribute("position", new THREE.BufferAttribute(path, 3));
      const color = PALETTE[i % PALETTE.length];
      const line = this.data.joined ? new THREE.Line(geometry, new THREE.LineBasicMaterial({ color, transparent: true, opacity: 0.75 }))
        : new THREE.Points(geometry, new THREE.PointsMaterial({ color, size: 2.5, sizeAttenuation: false }));
      line.frustumCulled = false;
      line.visible = false;
      this.world.add(line);
      return line;
    }));
  }

  makeOverview() { // points of the whole run, never joined
    const o = this.data.overview;
    if (!o) return;
    const d = this.dim, x = new Float32Array((o.length / d) * 3);
    for (let i = 0; i < o.length / d; i++) for (let c = 0; c < d; c++) x[3 * i + c] = o[d * i + c];
    const geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.BufferAttribute(x, 3));
    this.cloud = new THREE.Points(geometry, new THREE.PointsMaterial({ color: "#8891a3", size: 1.3, sizeAttenuation: false, transparent: true, opacity: 0.55 }));
    this.cloud.frustumCulled = false;
    this.world.add(this.cloud);
  }

  at(k, out = new THREE.Vector3()) {
    if (k < 0) { const a = this.anchors[-k - 1]; return a ? out.set(a[0], a[1], a[2]) : out.set(0, 0, 0); }
    return out.set(this.points[3 * k], this.points[3 * k + 1], this.points[3 * k + 2]);
  }

  end(k, offset, out) { // of a bond: a point, or a place in the body about that point; bodies are placed by now
    const body = offset && offset.length ? this.bodies.find((x) => x.frame.center === k) : undefined;
    return body ? out.set(...this.lift(offset)).applyMatrix4(body.group.matrix) : this.at(k, out);
  }

  between(a, b, radius, out = new THREE.Matrix4()) { // a cylinder of height 1 along y, from a to b
    const { along, turn, scale } = this.spare;
    along.subVectors(b, a);
    const length = along.length() || 1e-9;
    turn.setFromUnitVectors(UP, along.divideScalar(length));
    return out.compose(along.multiplyScalar(length / 2).add(a), turn, scale.set(radius, length, radius));
  }

  makeArrows() { // constraint forces: a shaft and a tip at every point
    if (!this.data.largestForce) return;
    const color = "#e11d48", n = this.data.points;
    this.arrows = { shaft: this.instanced(new THREE.CylinderGeometry(1, 1, 1, 8), color, n), tip: this.instanced(new THREE.CylinderGeometry(0, 1, 1, 10), color, n) };
    this.arrows.shaft.visible = this.arrows.tip.visible = false;
  }

  showArrows(window_, row) {
    const f = this.data.windows[window_].f, on = Boolean(this.forced && f), { shaft, tip } = this.arrows;
    shaft.visible = tip.visible = on;
    if (!on) return;
    const d = this.dim, n = this.data.points, { a, b, c, m } = this.spare, scale = (0.3 * this.size) / 32767, r = 0.006 * this.unit;
    for (let k = 0; k < n; k++) {
      const i = (row * n + k) * d, force = b.set(f[i], f[i + 1], d === 3 ? f[i + 2] : 0).multiplyScalar(scale), size = force.length();
      const head = Math.min(5 * r, 0.4 * size);
      this.at(k, a);
      c.copy(a).addScaledVector(force, size ? 1 - head / size : 0);
      shaft.setMatrixAt(k, this.between(a, c, size > 0.2 * r ? r : 0, m));
      tip.setMatrixAt(k, this.between(c, b.add(a), size > 0.2 * r ? 0.5 * head : 0, m));
    }
    shaft.instanceMatrix.needsUpdate = tip.instanceMatrix.needsUpdate = true;
  }

  show(window_, row, trail, nearest) { // `points` is set by now
    const { a, b, m } = this.spare;
    for (const g of this.groups) {
      g.indices.forEach((k, i) => { this.at(k, a); g.mesh.setMatrixAt(i, m.makeTranslation(a.x, a.y, a.z)); });
      g.mesh.instanceMatrix.needsUpdate = true;
    }
    for (const { frame, group } of this.bodies) {
      if (frame.center < 0 && !frame.directors.length) continue;
      group.matrix.copy(this.pose(frame, (k) => this.at(k, a).toArray()));
    }
    for (const bar of this.bars) {
      bar.pairs.forEach(([i, j, atI, atJ], k) => bar.mesh.setMatrixAt(k, this.between(this.end(i, atI, a), this.end(j, atJ, b), bar.radius, m)));
      bar.mesh.instanceMatrix.needsUpdate = true;
    }
    this.trails.forEach((lines, w) => lines.forEach((line) => {
      const first = Math.max(0, row - trail);
      line.visible = w === window_ && trail > 0;
      line.geometry.setDrawRange(first, row - first + 1);
    }));
    if (this.arrows) this.showArrows(window_, nearest);
    this.render();
  }

  pace(milliseconds) { // without a graphics card: fewer pixels where frames take too long
    if (!this.slow || milliseconds > 500) return;
    this.mean = 0.9 * (this.mean ?? milliseconds) + 0.1 * milliseconds;
    this.paced = (this.paced || 0) + 1;
    if (this.mean < 42 || this.paced < 20 || this.ratio <= 0.5) return;
    this.ratio = Math.max(0.5, 0.75 * this.ratio); this.mean = this.paced = undefined;
    this.renderer.setPixelRatio(this.ratio); this.resize();
  }

  tint() { this.renderer.setClearColor(getComputedStyle(document.documentElement).getPropertyValue("--panel").trim()); }

  render() {
    this.sun.position.copy(this.camera.position).addScaledVector(this.camera.up, this.size);
    this.renderer.render(this.world, this.camera);
    this.turnTriad();
    this.moved = false;
  }
}
