// Meshes as they are needed: an index, a base packet of what stays, packets of a few frames each.

import { Trouble, get } from "./api.js";
import { enc } from "./dom.js";

const KEPT = 256 * 1024 * 1024, MAGIC = 0x504d4434;

export class MeshStream {
  constructor(world) { this.path = `api/mesh/${enc(world)}`; this.chunks = new Map(); this.packets = new Map(); this.bytes = 0; }
  async open() {
    const index = await get(`${this.path}/index`);
    Object.assign(this, { frames: index.frames, step: index.step, count: index.packets, camera: index.camera, cameraProblem: index.camera_problem });
    this.objects = index.objects.map((item) => ({ id: item.id, first: item.first, positions: spread(item.positions), faces: spread(item.faces) }));
    for (const chunk of parse(await this.fetch("base"))) this.chunks.set(chunk.number, chunk);
    return this;
  }
  async fetch(number) {
    const answer = await fetch(`${this.path}/packet/${number}`);
    if (!answer.ok) throw new Trouble((await answer.json().catch(() => ({}))).error ?? `packet ${number}: ${answer.status}`);
    return answer.arrayBuffer();
  }
  // Promise of packet `number`, started at once; the least recently used are dropped.
  packet(number) {
    let held = this.packets.get(number);
    if (held) { this.packets.delete(number); this.packets.set(number, held); return held.promise; }
    held = { size: 0, numbers: [], ready: false };
    held.promise = this.fetch(number).then((data) => {
      const found = parse(data);
      for (const chunk of found) this.chunks.set(chunk.number, chunk);
      Object.assign(held, { size: data.byteLength, numbers: found.map((chunk) => chunk.number), ready: true });
      this.bytes += held.size;
      this.trim(number);
    }).catch((error) => { this.packets.delete(number); throw error; });
    this.packets.set(number, held);
    return held.promise;
  }
  trim(current) {
    for (const [number, held] of this.packets) {
      if (this.bytes <= KEPT || this.packets.size <= 3) return;
      if (!held.ready || Math.abs(number - current) <= 1) continue;
      this.packets.delete(number); this.bytes -= held.size;
      for (const chunk of held.numbers) this.chunks.delete(chunk);
    }
  }
  ready(frame) { return frame >= this.frames || this.packets.get(Math.floor(frame / this.step))?.ready === true; }
  // Have the frame's packet, and the next ones on their way.
  async need(frame) {
    if (frame >= this.frames) return;
    const number = Math.floor(frame / this.step);
    const wanted = this.packet(number);
    if (this.count > 1) this.packet((number + 1) % this.count).catch(() => {});
    await wanted;
  }
  // Chunks of each object at a frame; null where the object is absent.
  at(frame) {
    return this.objects.map((item) => {
      const place = frame - item.first;
      if (place < 0 || place >= item.positions.length) return { id: item.id, positions: null, faces: null };
      return { id: item.id, positions: this.chunks.get(item.positions[place]) ?? null, faces: this.chunks.get(item.faces[place]) ?? null };
    });
  }
}

function spread(runs) { return runs.flatMap(([number, length]) => new Array(length).fill(number)); }

export function parse(data) {
  const view = new DataView(data);
  if (data.byteLength < 12 || view.getUint32(0, true) !== MAGIC || view.getUint32(4, true) !== 1) throw new Trouble("not a packet of meshes");
  const count = view.getUint32(8, true), found = [];
  let at = 12;
  for (let index = 0; index < count; index++) {
    const number = view.getUint32(at, true), faces = view.getUint32(at + 4, true) === 1, rows = view.getUint32(at + 8, true), width = view.getUint32(at + 12, true);
    at += 16;
    const chunk = { number, rows };
    if (!faces) { chunk.low = [0, 4, 8].map((by) => view.getFloat32(at + by, true)); chunk.scale = [12, 16, 20].map((by) => view.getFloat32(at + by, true)); at += 24; }
    chunk.array = width === 2 ? new Uint16Array(data, at, rows * 3) : new Uint32Array(data, at, rows * 3);
    at += Math.ceil(rows * 3 * width / 4) * 4;
    found.push(chunk);
  }
  return found;
}
