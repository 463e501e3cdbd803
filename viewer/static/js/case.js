// One case: the reference and any number of runs, side by side on one clock.

import { asObject, get, metrics, once, runPath, table } from "./api.js";
import { Clock } from "./clock.js";
import { enc, fill, h, number, problem, stateTag } from "./dom.js";
import { scoresTab } from "./scores.js";
import { filesTab, transcriptTab } from "./transcript.js";
import { address, current, note } from "./route.js";

const TABS = [["videos", "Videos"], ["meshes", "3D"], ["scores", "Scores"], ["charts", "Charts"], ["transcript", "Transcript"], ["files", "Files & record"]];
const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];

export async function casePage(main, signal, parts) {
  const name = parts.join("/"), query = current().query;
  const [info, table_] = await Promise.all([get(`api/case/${enc(name)}`), metrics()]);
  const rows = info.rows.map((row) => asObject(info.columns, row));
  const byRun = new Map(rows.map((row) => [`${row.system}/${row.trial}`, row]));
  let picked = (query.get("runs") ?? "").split(",").filter((key) => byRun.has(key));
  let tab = TABS.some(([id]) => id === query.get("tab")) ? query.get("tab") : "videos";
  const clip = info.video ?? info.render ?? {};
  const clock = new Clock(clip.frames ?? 1, clip.fps);
  clock.seek(Number(query.get("f") ?? 0) || 0);
  clock.speed = SPEEDS.includes(Number(query.get("speed"))) ? Number(query.get("speed")) : 1;
  clock.loop = query.get("loop") !== "no";
  const context = { name, info, clock, table: table_, runs: () => picked.map((key) => byRun.get(key)), view: (row) => once(`api/run/${runPath(row.id)}?at=${row.changed}${row.state}${row.scored}`), focus: query.get("of") ?? "", clean: [] };
  const body = h("div"), tabs = h("div", { class: "tabs", role: "tablist" }), chosen = h("span", { class: "row" });
  const order = (await once("api/cases")).cases, place = order.indexOf(name);
  const beside = (by) => { const other = order[(place + by + order.length) % order.length]; if (other) location.hash = address(["case", ...other.split("/")], { tab }); };
  fill(main, h("div", { class: "case" },
    h("div", { class: "row" }, h("h1", null, parts[1]), h("span", { class: "tag" }, parts[0]), h("span", { class: "soft small num" }, clip.frames ? `${clip.frames} frames · ${clip.width}×${clip.height} · ${Number(clip.fps).toFixed(2).replace(/\.?0+$/, "")} fps` : "no reference video"), h("span", { class: "grow" }), h("button", { onclick: () => beside(-1), "aria-label": "Case before" }, "‹"), h("button", { onclick: () => beside(1), "aria-label": "Case after" }, "›")),
    h("div", { class: "row" }, picker(), chosen, h("span", { class: "grow" }), tabs), body, bar(clock)));

  function picker() {
    const list = h("div", { hidden: true, role: "group", "aria-label": "Runs of this case" });
    const button = h("button", { type: "button", "aria-expanded": "false", onclick: () => { list.hidden = !list.hidden; button.setAttribute("aria-expanded", String(!list.hidden)); } }, `Compare runs (${rows.length}) ▾`);
    fill(list, rows.sort((a, b) => (b.score ?? -1) - (a.score ?? -1)).map((row) => {
      const key = `${row.system}/${row.trial}`;
      return h("label", null, h("input", { type: "checkbox", checked: picked.includes(key), onchange: (event) => { picked = event.target.checked ? [...picked, key] : picked.filter((one) => one !== key); show(); } }), h("span", null, key), stateTag(row.state), h("span", { class: "num" }, number(row.score)));
    }), rows.length ? null : h("p", { class: "soft" }, "No run of this case yet."));
    const away = (event) => { if (!event.target.closest(".pick")) { list.hidden = true; button.setAttribute("aria-expanded", "false"); } };
    document.addEventListener("click", away);
    signal.addEventListener("abort", () => document.removeEventListener("click", away));
    return h("div", { class: "pick" }, button, list);
  }
  function bar(clock) {
    const play = h("button", { type: "button", onclick: () => clock.toggle(), "aria-label": "Play or pause" }, "▶");
    const slider = h("input", { type: "range", min: "0", max: String(clock.frames - 1), step: "1", "aria-label": "Frame", oninput: () => clock.seek(Number(slider.value)) });
    const out = h("output");
    const speed = h("select", { "aria-label": "Speed", onchange: () => { clock.setSpeed(Number(speed.value)); note({ speed: clock.speed === 1 ? "" : clock.speed }); } }, SPEEDS.map((value) => h("option", { value: String(value) }, `${value}×`)));
    const loop = h("button", { type: "button", "aria-pressed": "true", onclick: () => { clock.setLoop(!clock.loop); note({ loop: clock.loop ? "" : "no" }); } }, "Loop");
    let timer = 0;
    clock.on((frame, state) => {
      slider.max = String(clock.frames - 1); slider.value = String(frame);
      out.textContent = `${frame} / ${clock.frames - 1} · ${(frame / clock.fps).toFixed(2)} s`;
      if (state) { play.textContent = clock.playing ? "❚❚" : "▶"; speed.value = String(clock.speed); loop.setAttribute("aria-pressed", String(clock.loop)); }
      clearTimeout(timer);
      if (!clock.playing) timer = setTimeout(() => { if (!signal.aborted) note({ f: clock.frame || "" }); }, 150);
    });
    return h("div", { class: "clock", role: "group", "aria-label": "Clock" }, play, h("button", { type: "button", onclick: () => clock.step(-1), "aria-label": "Frame back" }, "◀"), h("button", { type: "button", onclick: () => clock.step(1), "aria-label": "Frame forward" }, "▶|"), slider, out, speed, loop);
  }
  let drawing = null;
  function show() {
    for (const undo of context.clean.splice(0)) undo();
    note({ runs: picked.join(","), tab: tab === "videos" ? "" : tab });
    fill(chosen, picked.map((key) => h("span", { class: "tag" }, key, " ", h("button", { class: "plain", style: { "min-height": "0", padding: "0 2px", "min-width": "0" }, "aria-label": `Take ${key} out`, onclick: () => { picked = picked.filter((one) => one !== key); show(); } }, "×"))));
    fill(tabs, TABS.map(([id, label], index) => h("button", { type: "button", role: "tab", "aria-selected": String(id === tab), onclick: () => { tab = id; show(); }, title: `key ${index + 1}` }, label)));
    drawing?.abort(); drawing = new AbortController();
    const mine = drawing.signal;
    const draw = { videos: videosTab, meshes: meshesTab, scores: scoresTab, charts: chartsTab, transcript: transcriptTab, files: filesTab }[tab];
    fill(body);
    draw(body, context, mine).catch((error) => { if (!mine.aborted) fill(body, problem(error.message)); });
  }
  // What is shown follows the runs: a run that ends meanwhile is read again.
  const changed = () => {
    let again = false;
    for (const row of table.rows.values()) {
      if (row.case !== name) continue;
      const key = `${row.system}/${row.trial}`, old = byRun.get(key);
      if (old && old.changed === row.changed && old.state === row.state && old.scored === row.scored) continue;
      if (!old) rows.push(row);
      byRun.set(key, row);
      again ||= picked.includes(key);
    }
    if (again && !clock.playing) show();
  };
  table.listeners.add(changed);
  signal.addEventListener("abort", () => { for (const undo of context.clean.splice(0)) undo(); drawing?.abort(); clock.end(); table.listeners.delete(changed); });
  show();
  const faster = (by) => { const at = SPEEDS.indexOf(clock.speed); clock.setSpeed(SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, at + by))]); note({ speed: clock.speed === 1 ? "" : clock.speed }); };
  const keys = { " ": () => clock.toggle(), ArrowLeft: () => clock.step(-1), ArrowRight: () => clock.step(1), "shift ArrowLeft": () => clock.step(-10), "shift ArrowRight": () => clock.step(10), Home: () => clock.step(-clock.frames), End: () => clock.step(clock.frames), "<": () => faster(-1), ">": () => faster(1), l: () => { clock.setLoop(!clock.loop); note({ loop: clock.loop ? "" : "no" }); }, "[": () => beside(-1), "]": () => beside(1) };
  TABS.forEach(([id], index) => { keys[String(index + 1)] = () => { tab = id; show(); }; });
  return { keys };
}

function tile(title, reference, extra) {
  const view = h("div", { class: "view" });
  return { view, node: h("section", { class: `tile ${reference ? "ref" : ""}`, "aria-label": title }, h("header", null, h("b", { title }, title), h("span", { class: "grow" }), extra), view) };
}

function columns(count) { return { "grid-template-columns": `repeat(${count < 2 ? 1 : count < 5 ? 2 : 3}, minmax(0, 1fr))` }; }

function player(src, clock, view, context) {
  const video = h("video", { preload: "auto", playsinline: true, tabindex: "-1" });
  video.muted = true; video.src = src;
  video.addEventListener("error", () => { if (!clock.ended && video.isConnected) fill(view, h("div", { class: "gone" }, "This video cannot be played here.")); });
  view.append(video); clock.add(video);
  context.clean.push(() => { clock.videos.delete(video); video.removeAttribute("src"); video.load(); });
  return video;
}

async function videosTab(body, context, signal) {
  const { info, clock, name } = context, grid = h("div", { class: "tiles" });
  const reference = tile("Reference", true, h("span", { class: "tag" }, "reference"));
  grid.append(reference.node);
  if (info.files.video) player(`video/case/${enc(name)}/reference.mp4`, clock, reference.view, context);
  else fill(reference.view, h("div", { class: "gone" }, "There is no reference video."));
  const runs = context.runs();
  for (const [key, value] of Object.entries(columns(1 + runs.length))) grid.style.setProperty(key, value);
  const extras = h("div");
  fill(body, grid, runs.length ? null : h("p", { class: "soft" }, "Choose runs above to see them beside the reference."), extras);
  for (const row of runs) {
    const part = tile(`${row.system} · ${row.trial}`, false, [h("span", { class: "num small" }, number(row.score)), stateTag(row.state)]);
    grid.append(part.node);
    const view = await context.view(row).catch((error) => ({ problem: error.message }));
    if (signal.aborted) return;
    if (view.render && !view.render.problem) player(`video/world/runs/${enc(row.id)}/render.mp4`, clock, part.view, context);
    else fill(part.view, h("div", { class: "gone" }, view.problem ?? view.render?.problem ?? missing(row)));
    const media = (view.viz ?? []).filter((item) => item.name.endsWith(".mp4"));
    if (media.length) extras.append(groups(row, media, context));
  }
}

function missing(row) {
  if (["running", "collecting", "queued"].includes(row.state)) return `No render yet: the run is ${row.state}.`;
  return `No render.mp4 was delivered${row.cause ? `: ${row.cause}` : ""}.`;
}

// Videos of the visualizer, in the groups of their names.
function groups(row, media, context) {
  const details = h("details", { class: "panel", style: { "margin-top": "12px" } }, h("summary", null, `${row.system} · ${row.trial}: ${media.length} analysis videos`));
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector(".tiles")) return;
    const grid = h("div", { class: "tiles", style: { ...columns(3), "margin-top": "10px" } });
    for (const item of media) { const part = tile(item.name.replace(".mp4", "").replaceAll("_", " "), item.name.startsWith("reference"), null); grid.append(part.node); player(`video/viz/${enc(row.id)}/${encodeURIComponent(item.name)}`, context.clock, part.view, context); }
    details.append(grid);
  });
  return details;
}

async function meshesTab(body, context, signal) {
  const { info, clock, name } = context, runs = context.runs();
  const { Scene } = await import("./scene.js");
  if (signal.aborted) return;
  const scenes = [];
  context.clean.push(() => { for (const scene of scenes) scene.dispose(); });
  const grid = h("div", { class: "tiles" });
  const linked = h("button", { type: "button", "aria-pressed": "true", onclick: () => { const on = linked.getAttribute("aria-pressed") !== "true"; linked.setAttribute("aria-pressed", String(on)); for (const scene of scenes) scene.linked = on; } }, "Link views");
  const all = (act) => () => { for (const scene of scenes) if (scene.main) scene[act](); };
  fill(body, h("div", { class: "row bar" }, h("button", { type: "button", onclick: all("caseCamera") }, "Case camera"), h("button", { type: "button", onclick: all("frameAll") }, "Whole scene"), linked, h("span", { class: "soft small" }, "Drag to turn, wheel to zoom, right button to move."), h("span", { class: "grow" }), h("span", { class: "legend" }, h("span", null, h("span", { class: "swatch gt" }), "reference"), h("span", null, h("span", { class: "swatch pred" }), "submission"))), grid);
  const worlds = [...(info.files.world ? [{ title: "Reference world", world: `data/${name}`, reference: true }] : []), ...runs.map((row) => ({ title: `${row.system} · ${row.trial}`, world: `runs/${row.id}`, row }))];
  for (const [key, value] of Object.entries(columns(worlds.length))) grid.style.setProperty(key, value);
  if (!worlds.length) fill(grid, h("p", { class: "empty" }, "This case has no reference world. Choose runs above to see their meshes."));
  await Promise.all(worlds.map(async (item) => {
    const tools = h("span", { class: "row" }), part = tile(item.title, item.reference, tools);
    grid.append(part.node);
    const hint = h("span", { class: "hint" }, "loading …"), canvas = h("canvas", { "aria-label": `Meshes of ${item.title}` });
    part.view.append(canvas, hint);
    let scene;
    try {
      scene = new Scene(canvas, clock, (text) => { hint.textContent = text; });
      scene.linked = true; scenes.push(scene);
      scene.onmode = (own) => { hint.textContent = own ? "case camera" : "free view"; };
      await scene.open(item.world);
    } catch (error) {
      if (!signal.aborted) fill(part.view, h("div", { class: "gone" }, error.message));
      return;
    }
    if (signal.aborted) return;
    tools.append(objectList(scene));
    if (item.row && info.files.world) {
      const view = await context.view(item.row).catch(() => null);
      if (view?.alignment?.rotation) tools.prepend(overlayButton(scene, view.alignment, `data/${name}`, hint));
    }
  }));
}

function objectList(scene) {
  const ids = scene.main.stream.objects.map((item) => item.id), list = h("div", { hidden: true });
  const flip = (id, on) => { if (on) scene.main.hidden.delete(id); else scene.main.hidden.add(id); scene.dirty = true; };
  const boxes = ids.map((id) => h("input", { type: "checkbox", checked: true, onchange: (event) => flip(id, event.target.checked) }));
  const every = (on) => () => ids.forEach((id, index) => { boxes[index].checked = on; flip(id, on); });
  fill(list, h("div", { class: "row" }, h("button", { onclick: every(true) }, "All"), h("button", { onclick: every(false) }, "None")), ids.map((id, index) => h("label", null, boxes[index], h("span", null, `object ${id}`))));
  list.style.setProperty("right", "0"); list.style.setProperty("min-width", "150px");
  const button = h("button", { type: "button", onclick: () => { list.hidden = !list.hidden; } }, `${ids.length} objects ▾`);
  return h("div", { class: "pick" }, button, list);
}

function overlayButton(scene, alignment, world, hint) {
  const button = h("button", { type: "button", "aria-pressed": "false", title: "The reference, registered to this world", onclick: async () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    if (!on) { scene.removeOverlay(); return; }
    try { if (!await scene.overlay(world, alignment)) hint.textContent = "the registration cannot be applied"; } catch (error) { hint.textContent = error.message; }
  } }, "Overlay reference");
  return button;
}

async function chartsTab(body, context, signal) {
  const runs = context.runs();
  if (!runs.length) { fill(body, h("p", { class: "empty" }, "Choose runs above to see their readings over time.")); return; }
  const [{ chart }, ...all] = await Promise.all([import("./charts.js"), ...runs.map((row) => get(`api/series/${runPath(row.id)}`).catch(() => ({ series: [] })))]);
  if (signal.aborted) return;
  const titles = new Map();
  all.forEach(({ series }, index) => { for (const one of series) { const held = titles.get(one.label) ?? { lines: [], better: one.better }; held.lines.push({ ...one, label: `${runs[index].system} · ${runs[index].trial}` }); titles.set(one.label, held); } });
  const grid = h("div", { class: "tiles", style: { "grid-template-columns": "repeat(auto-fit, minmax(min(100%, 430px), 1fr))" } });
  fill(body, grid);
  if (!titles.size) { fill(grid, h("p", { class: "empty" }, "The results of these runs hold no readings over time.")); return; }
  const before = context.clock.listeners.size;
  const plots = [...titles].map(([title, { lines, better }]) => chart(grid, title, lines, context.clock, better));
  const added = [...context.clock.listeners].slice(before);
  context.clean.push(() => { for (const plot of plots) { plot.watch.disconnect(); plot.destroy(); } for (const listener of added) context.clock.listeners.delete(listener); });
  const theme = () => { for (const undo of context.clean.splice(0)) undo(); chartsTab(body, context, signal); };
  document.addEventListener("theme", theme, { once: true });
  context.clean.push(() => document.removeEventListener("theme", theme));
}
