// A figure: the objects of a scene at one configuration, as three.js meshes in one group. Points are rows of q.
"use strict";
const PALETTE = ["#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#65a30d", "#475569", "#b45309"];
const UP = new THREE.Vector3(0, 1, 0);
const lift = (a) => [a[0] || 0, a[1] || 0, a[2] || 0];

function pointAt(points, anchors, k, out = new THREE.Vector3()) { // index -k is anchors[k - 1]
  if (k < 0) { const a = anchors[-k - 1]; return a ? out.set(a[0], a[1], a[2]) : out.set(0, 0, 0); }
  return out.set(points[3 * k], points[3 * k + 1], points[3 * k + 2]);
}

function pose(f, at, flat) { // the matrix of a body from its center and directors; missing directors follow from the others
  const d = f.directors.map(at), x = at(f.center);
  if (flat) d[1] = d[1] || [-d[0][1], d[0][0], 0];
  if (!d[1]) { const u = new THREE.Quaternion().setFromUnitVectors(new THREE.Vector3(1, 0, 0), new THREE.Vector3(...d[0]).normalize()); d[1] = new THREE.Vector3(0, 1, 0).applyQuaternion(u).toArray(); }
  if (!d[2]) d[2] = new THREE.Vector3(...d[0]).cross(new THREE.Vector3(...d[1])).toArray();
  return new THREE.Matrix4().set(d[0][0], d[1][0], d[2][0], x[0], d[0][1], d[1][1], d[2][1], x[1], d[0][2], d[1][2], d[2][2], x[2], 0, 0, 0, 1);
}

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

class Figure {
  constructor(drawing, points, tint = "") {
    Object.assign(this, { points, tint, scene: drawing.scene, dim: drawing.dim, flat: drawing.flat, size: drawing.size, unit: drawing.unit, anchors: drawing.anchors, count: drawing.data.points });
    this.spare = { a: new THREE.Vector3(), b: new THREE.Vector3(), along: new THREE.Vector3(), scale: new THREE.Vector3(), turn: new THREE.Quaternion(), m: new THREE.Matrix4() };
    this.group = new THREE.Group();
    drawing.world.add(this.group);
    this.makeParticles(); this.makeBars(); this.makeFrames(); this.makeGuides();
  }

  at(k, out = new THREE.Vector3()) { return pointAt(this.points, this.anchors, k, out); }

  instanced(geometry, color, count) {
    const mesh = new THREE.InstancedMesh(geometry, new THREE.MeshLambertMaterial({ color: this.tint || color }), count);
    mesh.frustumCulled = false;
    this.group.add(mesh);
    return mesh;
  }

  makeParticles() {
    const crowd = Math.min(1, Math.cbrt(30 / Math.max(this.count, 1)));
    this.groups = this.scene.particles.map((g, k) => {
      const radius = g.radius || 0.022 * this.unit * crowd;
      const fine = this.count > 30 ? [10, 7] : [18, 12], ball = new THREE.SphereGeometry(radius, ...fine);
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
        ball.position.set(...lift(j.position));
        group.add(ball);
      }
      this.group.add(group);
      return { frame: f, group };
    });
  }

  shape(s, color) {
    const material = new THREE.MeshLambertMaterial({ color: this.tint || color }), thin = 0.012 * this.size, n = s.size;
    if (s.kind === "line") {
      const group = new THREE.Group(), d = this.dim;
      for (let i = 0; i + 2 * d <= n.length; i += d) {
        const mesh = new THREE.Mesh(new THREE.CylinderGeometry(thin, thin, 1, 10), material);
        this.between(new THREE.Vector3(...lift(n.slice(i, i + d))), new THREE.Vector3(...lift(n.slice(i + d, i + 2 * d))), 1).decompose(mesh.position, mesh.quaternion, mesh.scale);
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
    mesh.position.add(new THREE.Vector3(...lift(s.position)));
    return mesh;
  }

  makeGuides() { // rails, curves and lines on surfaces
    for (const g of this.scene.guides || []) {
      const body = this.bodies.find((x) => x.frame.name === g.frame), parent = body ? body.group : this.group, d = this.dim;
      for (const line of g.lines) {
        const path = [];
        for (let i = 0; i + d <= line.length; i += d) path.push(...lift(line.slice(i, i + d)));
        const geometry = new THREE.BufferGeometry();
        geometry.setAttribute("position", new THREE.BufferAttribute(new Float32Array(path), 3));
        const mesh = new THREE.Line(geometry, new THREE.LineBasicMaterial({ color: g.kind === "surface" ? "#a9b4c6" : "#8891a3" }));
        mesh.frustumCulled = false;
        parent.add(mesh);
      }
    }
  }

  end(k, offset, out) { // the end of a bond: a point, or a position in the body about it; called after bodies are placed
    const body = offset && offset.length ? this.bodies.find((x) => x.frame.center === k) : undefined;
    return body ? out.set(...lift(offset)).applyMatrix4(body.group.matrix) : this.at(k, out);
  }

  between(a, b, radius, out = new THREE.Matrix4()) { // a cylinder of height 1 along y, from a to b
    const { along, turn, scale } = this.spare;
    along.subVectors(b, a);
    const length = along.length() || 1e-9;
    turn.setFromUnitVectors(UP, along.divideScalar(length));
    return out.compose(along.multiplyScalar(length / 2).add(a), turn, scale.set(radius, length, radius));
  }

  show() { // called after `points` is set
    const { a, b, m } = this.spare;
    for (const g of this.groups) {
      g.indices.forEach((k, i) => { this.at(k, a); g.mesh.setMatrixAt(i, m.makeTranslation(a.x, a.y, a.z)); });
      g.mesh.instanceMatrix.needsUpdate = true;
    }
    for (const { frame, group } of this.bodies) {
      if (frame.center < 0 && !frame.directors.length) continue;
      group.matrix.copy(pose(frame, (k) => this.at(k, a).toArray(), this.flat));
    }
    for (const bar of this.bars) {
      bar.pairs.forEach(([i, j, atI, atJ], k) => bar.mesh.setMatrixAt(k, this.between(this.end(i, atI, a), this.end(j, atJ, b), bar.radius, m)));
      bar.mesh.instanceMatrix.needsUpdate = true;
    }
  }
}
