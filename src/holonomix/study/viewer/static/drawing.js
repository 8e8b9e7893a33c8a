// Drawing: camera, light and what is drawn beside the figures. A source of frames fills the points and the trails.
"use strict";
function inSoftware() { // without a graphics card, smooth edges would cost most of the frames
  const gl = document.createElement("canvas").getContext("webgl2"), info = gl && gl.getExtension("WEBGL_debug_renderer_info");
  return Boolean(info) && /swiftshader|llvmpipe|software/i.test(gl.getParameter(info.UNMASKED_RENDERER_WEBGL));
}

class Trail { // the path of a point, of which a range of rows is shown
  constructor(parent, path, color, joined) {
    const geometry = new THREE.BufferGeometry();
    this.places = new THREE.BufferAttribute(path, 3);
    geometry.setAttribute("position", this.places);
    this.line = joined ? new THREE.Line(geometry, new THREE.LineBasicMaterial({ color, transparent: true, opacity: 0.75 }))
      : new THREE.Points(geometry, new THREE.PointsMaterial({ color, size: 2.5, sizeAttenuation: false }));
    this.line.frustumCulled = false;
    this.line.visible = false;
    parent.add(this.line);
  }

  range(first, count) {
    this.line.visible = count > 1;
    this.line.geometry.setDrawRange(first, count);
  }
}

class Drawing {
  constructor(stage, data, windows) { // the picture must fit the rows in `windows`
    this.stage = stage; this.data = data; this.dim = data.dimension; this.scene = data.scene;
    this.anchors = this.scene.anchors.map((a) => lift(a));
    this.points = new Float32Array(3 * data.points);
    this.flat = this.dim === 2;
    this.spare = { a: new THREE.Vector3(), b: new THREE.Vector3(), c: new THREE.Vector3(), m: new THREE.Matrix4() };
    this.measure(windows);
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
    this.figure = new Figure(this, this.points);
    this.figures = [this.figure];
    this.makePlanes(); this.makeTriad(); this.makeOverview(); this.makeArrows();
    new ResizeObserver(() => this.resize()).observe(stage);
    this.resize();
  }

  measure(windows) { // the box of everything that is shown
    const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity], d = this.dim;
    const take = (x) => { for (let i = 0; i < 3; i++) if (Number.isFinite(x[i])) { low[i] = Math.min(low[i], x[i]); high[i] = Math.max(high[i], x[i]); } };
    const ends = new Set(); // directors are no places
    for (const f of this.scene.frames) f.directors.forEach((k) => ends.add(k));
    for (const w of windows)
      for (let i = 0; i < w.count * this.data.points; i++)
        if (!ends.has(i % this.data.points)) take([w.x[d * i], w.x[d * i + 1], d === 3 ? w.x[d * i + 2] : 0]);
    this.anchors.forEach(take);
    for (const f of this.scene.frames) { // the corners of every body
      const corners = f.shapes.flatMap((s) => this.corners(s)), still = f.center < 0 && !f.directors.length;
      for (const w of windows) for (let row = 0; row < w.count && (row === 0 || !still); row += Math.max(1, Math.floor(w.count / 150))) {
        const at = (k) => (k < 0 ? this.anchors[-k - 1] || [0, 0, 0] : [0, 1, 2].map((c) => (c < d ? w.x[(row * this.data.points + k) * d + c] : 0)));
        const m = still ? new THREE.Matrix4() : pose(f, at, this.flat), v = new THREE.Vector3();
        for (const corner of corners) take(v.set(...corner).applyMatrix4(m).toArray());
      }
    }
    for (const g of this.scene.guides || []) if (!g.frame) for (const line of g.lines) for (let i = 0; i + d <= line.length; i += d) take(lift(line.slice(i, i + d)));
    if (!Number.isFinite(low[0])) { low.fill(0); high.fill(0); }
    this.center = low.map((x, i) => (x + high[i]) / 2);
    this.alone = !(Math.max(...high.map((x, i) => x - low[i])) > 0); // one point that does not move
    this.size = Math.max(...high.map((x, i) => x - low[i]), 0) || 1;
    const up = this.flat ? 1 : this.scene.up < 0 ? 2 : this.scene.up, side = this.flat ? 0 : (up + 1) % 3;
    this.beside = [0, 0, 0]; // where a second figure stands
    this.beside[side] = 1.1 * Math.max(high[side] - low[side], 0.2 * this.size);
    if ((this.data.live?.kernels.length || 0) > 1) high.forEach((x, i) => { high[i] += this.beside[i]; this.center[i] += 0.5 * this.beside[i]; });
    this.low = low; this.high = high;
    const first = windows[0].x;
    for (let i = 0; i < this.points.length; i++) this.points[i] = i % 3 < d ? first[Math.floor(i / 3) * d + (i % 3)] : 0;
    const lengths = this.scene.bonds.map((b) => { return pointAt(this.points, this.anchors, b.a).distanceTo(pointAt(this.points, this.anchors, b.b)); });
    this.unit = Math.min(this.size, 10 * Math.min(Infinity, ...lengths.filter((x) => x > 0))); // what marks are scaled by
  }

  corners(s) { // of a box around a shape, in the coordinates of its body
    const n = s.size, d = this.dim, r = s.rotation, k = r.length === 9 ? 3 : 2, out = [];
    if (s.kind === "line") { for (let i = 0; i + d <= n.length; i += d) out.push(lift(n.slice(i, i + d))); return out; }
    const wide = { sphere: [n[0], n[0], n[0]], ring: [n[0] + n[1] / 2, n[0] + n[1] / 2, n[1] / 2], cylinder: [n[0], n[0], (n[1] || 0) / 2], capsule: [n[0], n[0], n[0] + (n[1] || 0) / 2], rod: [n[0] / 2, (n[1] || 0) / 2, (n[1] || 0) / 2] }[s.kind] || [0, 1, 2].map((i) => (n[i] || 0) / 2);
    for (let c = 0; c < 8; c++) {
      const x = wide.map((v, i) => ((c >> i) & 1 ? v : -v));
      out.push([0, 1, 2].map((i) => (s.position[i] || 0) + (i < k ? x.slice(0, k).reduce((sum, v, j) => sum + r[i * k + j] * v, 0) : 0)));
    }
    return out;
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
    const rise = 0.35 + 0.8 * Math.max(0, 1 - (2 * (this.high[up] - this.low[up])) / this.size); // flat scenes are seen from above
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

  makePlanes() { // in space a grid: translucent faces over the whole picture would cost most of the time without a graphics card
    for (const p of this.scene.planes) {
      const n = new THREE.Vector3(...lift(p.normal)).normalize(), at = new THREE.Vector3(...lift(p.point));
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

  makeArrows() { // constraint forces: a shaft and a tip at every point
    if (!this.data.largestForce) return;
    const color = "#e11d48", n = this.data.points, make = (...x) => this.figure.instanced(...x);
    this.arrows = { shaft: make(new THREE.CylinderGeometry(1, 1, 1, 8), color, n), tip: make(new THREE.CylinderGeometry(0, 1, 1, 10), color, n) };
    this.arrows.shaft.visible = this.arrows.tip.visible = false;
  }

  showArrows(f, row) { // forces relative to the largest of all rows
    if (!this.arrows) return;
    const on = Boolean(this.forced && f), { shaft, tip } = this.arrows;
    shaft.visible = tip.visible = on;
    if (!on) return;
    const d = this.dim, n = this.data.points, { a, b, c, m } = this.spare, scale = (0.3 * this.size) / 32767, r = 0.006 * this.unit;
    for (let k = 0; k < n; k++) {
      const i = (row * n + k) * d, force = b.set(f[i], f[i + 1], d === 3 ? f[i + 2] : 0).multiplyScalar(scale), size = force.length();
      const head = Math.min(5 * r, 0.4 * size);
      this.figure.at(k, a);
      c.copy(a).addScaledVector(force, size ? 1 - head / size : 0);
      shaft.setMatrixAt(k, this.figure.between(a, c, size > 0.2 * r ? r : 0, m));
      tip.setMatrixAt(k, this.figure.between(c, b.add(a), size > 0.2 * r ? 0.5 * head : 0, m));
    }
    shaft.instanceMatrix.needsUpdate = tip.instanceMatrix.needsUpdate = true;
  }

  show() { // called after the points of the figures are set
    for (const figure of this.figures) if (figure.group.visible) figure.show();
    this.render();
  }

  pace(milliseconds, goal = 42) { // without a graphics card: reduce pixels if frames take too long
    if (!this.slow || milliseconds > 500) return;
    this.mean = 0.9 * (this.mean ?? milliseconds) + 0.1 * milliseconds;
    this.paced = (this.paced || 0) + 1;
    if (this.mean < goal || this.paced < 20 || this.ratio <= 0.5) return;
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
