// What the server says, each thing asked for once. A static site answers from files of the same names.

import { enc } from "./dom.js";

const held = new Map();
export class Trouble extends Error {}

export async function get(path) {
  const answer = await fetch(path);
  let body = null;
  try { body = await answer.json(); } catch { /* told below */ }
  if (!answer.ok || body === null) throw new Trouble(body?.error ?? `${path}: the server answered ${answer.status}`);
  return body;
}

export function once(path) {
  if (!held.has(path)) held.set(path, get(path).catch((error) => { held.delete(path); throw error; }));
  return held.get(path);
}

export const metrics = () => once("api/metrics");
export const runPath = (id) => enc(id);

// Rows of all runs by id, kept up by asking for what changed.
export const table = { index: "", version: 0, columns: [], rows: new Map(), listeners: new Set(), error: "" };
let asking = null;

export function refresh() {
  asking ??= ask().finally(() => { asking = null; });
  return asking;
}

async function ask() {
  const since = table.index ? `?since=${table.index}.${table.version}` : "";
  try {
    const found = await get(`api/runs${since}`);
    const whole = found.gone === null;
    if (whole) table.rows.clear();
    table.columns = found.columns;
    for (const row of found.rows) table.rows.set(row[0], asObject(found.columns, row));
    for (const id of found.gone ?? []) table.rows.delete(id);
    const changed = whole || found.rows.length > 0 || found.gone.length > 0 || table.error !== "";
    Object.assign(table, { index: found.index, version: found.version, error: "" });
    if (changed) for (const listener of table.listeners) listener(found.rows.map((row) => row[0]), whole);
  } catch (error) {
    table.error = error.message;
    for (const listener of table.listeners) listener([], false);
  }
}

export function asObject(columns, row) {
  return Object.fromEntries(columns.map((name, index) => [name, row[index]]));
}

export async function loaded() {
  if (!table.index) await refresh();
  if (!table.index) throw new Trouble(table.error);
}
