// A world in 3D: its meshes at the clock's frame, through its own camera or any other.

import * as THREE from "three";
import { OrbitControls } from "../vendor/three/OrbitControls.js";
import { MeshStream } from "./meshstream.js";

const UP = new THREE.Vector3(0, 0, 1);
export const links = new Set();

export function colour(id) { return new THREE.Color().setHSL((id * 0.618033988749895) % 1, 0.4, 0.62); }

class World {
  constructor(stream, tint) {
    this.stream = stream; this.group = new THREE.Group(); this.parts = new Map(); this.hidden = new Set(); this.tint = tint; this.drawn = -1;
  }
  // Show a frame; false while it is still on its way.
  show(frame) {
    if (!this.stream.ready(frame)) return false;
    for (const item of this.stream.at(frame)) {
      let part = this.parts.get(item.id);
      const there = item.positions && item.faces && item.faces.rows > 0;
      if (!there) { if (part) part.mesh.visible = false; continue; }
      if (!part) this.parts.set(item.id, part = this.make(item.id));
      part.mesh.visible = !this.hidden.has(item.id);
      if (part.positions !== item.positions.number || part.faces !== item.faces.number) this.update(part, item);
    }
    this.drawn = frame;
    return true;
  }
  make(id) {
    const material = new THREE.MeshLambertMaterial({ color: this.tint ? new THREE.Color(this.tint) : colour(id), side: THREE.DoubleSide, flatShading: true, transparent: Boolean(this.tint), opacity: this.tint ? 0.45 : 1, depthWrite: !this.tint });
    const mesh = new THREE.Mesh(new THREE.BufferGeometry(), material);
    mesh.frustumCulled = false; mesh.matrixAutoUpdate = false;
    this.group.add(mesh);
    return { mesh, positions: -1, faces: -1 };
  }
  update(part, { positions, faces }) {
    const old = part.mesh.geometry.getAttribute("position");
    if (old && old.array.length === positions.array.length && part.faces === faces.number) {
      old.array.set(positions.array); old.needsUpdate = true;
    } else {
      part.mesh.geometry.dispose();
      const geometry = new THREE.BufferGeometry();
      geometry.setAttribute("position", new THREE.BufferAttribute(positions.array.slice(), 3).setUsage(THREE.DynamicDrawUsage));
      geometry.setIndex(new THREE.BufferAttribute(faces.array, 1));
      part.mesh.geometry = geometry;
    }
    // Steps of the object's own box: the mesh's matrix makes metres of them.
    const [x, y, z] = positions.scale.map((step) => step || 1e-9);
    part.mesh.matrix.makeScale(x, y, z).setPosition(...positions.low);
    part.mesh.matrixWorldNeedsUpdate = true;
    Object.assign(part, { positions: positions.number, faces: faces.number, low: positions.low, high: positions.low.map((low, axis) => low + positions.scale[axis] * 65535) });
  }
  box() {
    const box = new THREE.Box3();
    for (const part of this.parts.values()) if (part.mesh.visible && part.low) { box.expandByPoint(new THREE.Vector3(...part.low)); box.expandByPoint(new THREE.Vector3(...part.high)); }
    return box;
  }
  dispose() { for (const part of this.parts.values()) { part.mesh.geometry.dispose(); part.mesh.material.dispose(); } }
}

export class Scene {
  constructor(canvas, clock, say) {
    Object.assign(this, { canvas, clock, say, wanted: 0, dirty: true, own: true, worlds: [], gone: false });
    this.renderer = new THREE.WebGLRenderer({ canvas, antialias: true });
    this.renderer.setPixelRatio(Math.min(devicePixelRatio, 2));
    this.scene = new THREE.Scene();
    this.scene.add(new THREE.HemisphereLight(0xffffff, 0x667066, 2.2));
    this.sun = new THREE.DirectionalLight(0xffffff, 1.6); this.sun.position.set(1, -2, 3); this.scene.add(this.sun);
    this.camera = new THREE.PerspectiveCamera(45, 16 / 9, 0.01, 1000); this.camera.up.copy(UP);
    this.controls = new OrbitControls(this.camera, canvas);
    this.controls.addEventListener("start", () => { if (this.own) this.leave(); });
    this.controls.addEventListener("change", () => { this.dirty = true; if (!this.own) this.share(); });
    this.observer = new ResizeObserver(() => this.resize()); this.observer.observe(canvas.parentElement);
    this.theme = () => { this.scene.background = new THREE.Color(document.documentElement.dataset.theme === "dark" ? "#20262a" : "#eef1f2"); this.dirty = true; };
    document.addEventListener("theme", this.theme); this.theme();
    links.add(this);
    this.loop = this.loop.bind(this); requestAnimationFrame(this.loop);
  }
  async open(world) {
    const stream = await new MeshStream(world).open();
    if (this.gone) return;
    this.main = new World(stream, null); this.worlds.push(this.main); this.scene.add(this.main.group);
    this.clock.extend(stream.frames, null);
    this.clock.on((frame) => { this.wanted = Math.min(frame, stream.frames - 1); this.pull(); });
    await stream.need(0);
    this.caseCamera();
  }
  // The reference's meshes, brought into this world's frame by the scorer's registration.
  async overlay(world, alignment) {
    const stream = await new MeshStream(world).open();
    if (this.gone) return null;
    const shown = new World(stream, "#4d7fb3");
    const toWorld = placement(alignment, this.main.stream.camera, stream.camera);
    if (!toWorld) return null;
    shown.group.matrixAutoUpdate = false; shown.group.matrix.copy(toWorld); shown.group.matrixWorldNeedsUpdate = true;
    this.over = shown; this.worlds.push(shown); this.scene.add(shown.group); this.pull();
    return shown;
  }
  removeOverlay() {
    if (!this.over) return;
    this.scene.remove(this.over.group); this.over.dispose();
    this.worlds = this.worlds.filter((world) => world !== this.over); this.over = null; this.dirty = true;
  }
  pull() {
    this.dirty = true;
    for (const world of this.worlds) world.stream.need(Math.min(this.wanted, world.stream.frames - 1)).then(() => { this.dirty = true; }, (error) => this.say(error.message));
  }
  caseCamera() {
    const given = this.main?.stream.camera;
    this.own = Boolean(given);
    this.dirty = true;
    if (!given) this.frameAll();
    this.onmode?.(this.own);
  }
  frameAll() {
    this.own = false;
    this.main.show(this.main.stream.ready(this.wanted) ? this.wanted : 0);
    const box = this.main.box(), centre = box.getCenter(new THREE.Vector3()), size = Math.max(1e-3, box.getSize(new THREE.Vector3()).length());
    this.controls.target.copy(centre);
    this.camera.position.copy(centre).add(new THREE.Vector3(0.8, -0.9, 0.5).normalize().multiplyScalar(size));
    this.sharing = true; this.free(); this.sharing = false;
    this.onmode?.(false);
  }
  // From the case's camera to a free one at the same place.
  leave() {
    this.own = false;
    const extrinsic = matrix(this.main.stream.camera.extrinsic), eye = new THREE.Vector3().setFromMatrixPosition(extrinsic);
    const forward = new THREE.Vector3(0, 0, 1).transformDirection(extrinsic), centre = this.main.box().getCenter(new THREE.Vector3());
    const depth = Math.max(0.1, forward.dot(centre.clone().sub(eye)));
    this.depth = depth;
    this.camera.position.copy(eye);
    this.controls.target.copy(eye).addScaledVector(forward, depth);
    const given = this.main.stream.camera.intrinsics, height = 2 * given[1][2];
    this.camera.fov = THREE.MathUtils.radToDeg(2 * Math.atan(height / 2 / given[1][1]));
    this.free(); this.onmode?.(false);
  }
  free() {
    const far = this.camera.position.distanceTo(this.controls.target);
    this.camera.near = far / 500; this.camera.far = far * 200;
    this.camera.matrixAutoUpdate = true; this.camera.updateProjectionMatrix(); this.controls.update(); this.dirty = true;
  }
  // The same view of the other worlds: their units and places differ, so it goes through the cameras' axes.
  share() {
    if (!this.linked || this.sharing) return;
    for (const other of links) {
      if (other === this || !other.linked || !other.main) continue;
      other.sharing = true;
      if (other.own) other.leave();
      const [from, to] = [this.main.stream.camera, other.main.stream.camera], ratio = (other.depth ?? 1) / (this.depth ?? 1);
      const move = from && to ? matrix(to.extrinsic).multiply(new THREE.Matrix4().makeScale(ratio, ratio, ratio)).multiply(matrix(from.extrinsic).invert()) : new THREE.Matrix4();
      other.camera.position.copy(this.camera.position).applyMatrix4(move);
      other.controls.target.copy(this.controls.target).applyMatrix4(move);
      other.camera.fov = this.camera.fov; other.free();
      other.onmode?.(false); other.sharing = false;
    }
  }
  lookThrough() {
    const { intrinsics, extrinsic } = this.main.stream.camera, width = 2 * intrinsics[0][2], height = 2 * intrinsics[1][2];
    const near = 0.01, far = 1000, view = this.canvas.clientWidth / Math.max(1, this.canvas.clientHeight), image = width / height;
    // The picture fits into the canvas as the video does.
    const sx = view > image ? image / view : 1, sy = view > image ? 1 : view / image;
    this.camera.projectionMatrix.set(2 * intrinsics[0][0] / width * sx, 0, 0, 0, 0, 2 * intrinsics[1][1] / height * sy, 0, 0, 0, 0, -(far + near) / (far - near), -2 * far * near / (far - near), 0, 0, -1, 0);
    this.camera.projectionMatrixInverse.copy(this.camera.projectionMatrix).invert();
    // Camera axes of the format: y down, z forward; of three.js: y up, z backward.
    this.camera.matrixAutoUpdate = false;
    this.camera.matrix.copy(matrix(extrinsic)).multiply(new THREE.Matrix4().makeScale(1, -1, -1));
    this.camera.matrixWorldNeedsUpdate = true;
  }
  resize() {
    const { clientWidth: width, clientHeight: height } = this.canvas.parentElement;
    if (!width || !height) return;
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / height; this.camera.updateProjectionMatrix(); this.dirty = true;
  }
  loop() {
    if (this.gone) return;
    requestAnimationFrame(this.loop);
    if (!this.dirty || !this.main) return;
    this.dirty = false;
    for (const world of this.worlds) world.show(Math.min(this.wanted, world.stream.frames - 1));
    this.canvas.dataset.frame = String(this.main.drawn);
    if (this.own) this.lookThrough();
    this.renderer.render(this.scene, this.camera);
  }
  dispose() {
    this.gone = true; links.delete(this); this.observer.disconnect(); document.removeEventListener("theme", this.theme);
    for (const world of this.worlds) world.dispose();
    this.controls.dispose(); this.renderer.dispose(); this.renderer.forceContextLoss();
  }
}

function matrix(rows) { return new THREE.Matrix4().set(...rows.flat()); }

// Reference world → submitted world: the inverse of camera-to-world · similarity · world-to-camera.
export function placement(alignment, own, reference) {
  if (!alignment?.rotation || !own || !reference) return null;
  const { scale, rotation: r, offset: o } = alignment;
  const similarity = new THREE.Matrix4().set(...r[0].map((v) => v * scale), o[0], ...r[1].map((v) => v * scale), o[1], ...r[2].map((v) => v * scale), o[2], 0, 0, 0, 1);
  return matrix(reference.extrinsic).multiply(similarity).multiply(matrix(own.extrinsic).invert()).invert();
}
