// Readings over time with a cursor on the page's clock; a click takes the clock there.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { h } from "./dom.js";

const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [12, 4]];
const COLOURS = { light: ["#a85a12", "#2b5c93", "#1f7d5f", "#8b3a8f", "#8a6d00", "#b03048"], dark: ["#f0a560", "#94bdea", "#63cda6", "#d79be0", "#e0c25a", "#f2909f"] };

export function chart(place, title, lines, clock, better) {
  const css = getComputedStyle(document.documentElement), theme = document.documentElement.dataset.theme;
  const frames = [...new Set(lines.flatMap((line) => line.frames))].sort((a, b) => a - b);
  const at = new Map(frames.map((frame, index) => [frame, index]));
  const data = [frames, ...lines.map((line) => { const row = new Array(frames.length).fill(null); line.frames.forEach((frame, index) => { row[at.get(frame)] = line.values[index]; }); return row; })];
  const holder = h("div");
  place.append(h("figure", { class: "chart", style: { margin: "0" }, "aria-label": `${title} over the frames` }, h("figcaption", { class: "row" }, h("b", null, title), h("span", { class: "faint small" }, better === "down" ? "lower is better" : "higher is better")), holder));
  const axis = { stroke: css.getPropertyValue("--soft"), grid: { stroke: css.getPropertyValue("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui", size: 46 };
  let frame = 0;
  // The legend shows the clock's frame until the pointer asks for another.
  const legend = (u) => { if (!(u.cursor.left >= 0)) u.setLegend({ idx: at.get(frame) ?? null }, false); };
  const plot = new uPlot({
    width: Math.max(260, holder.clientWidth), height: 190,
    scales: { x: { time: false, range: [0, Math.max(1, clock.frames - 1)] } },
    axes: [{ ...axis, size: 30, values: (_, ticks) => ticks.map((tick) => Number.isInteger(tick) ? String(tick) : "") }, axis],
    series: [{ label: "frame" }, ...lines.map((line, index) => ({ label: line.label, stroke: COLOURS[theme][index % 6], dash: DASHES[index % 6], width: 2, points: { show: frames.length < 40, size: 4 }, value: (_, value) => value === null ? "–" : value.toFixed(4) }))],
    legend: { live: true },
    cursor: { drag: { x: false, y: false } },
    hooks: { ready: [legend], draw: [(u) => { const x = u.valToPos(frame, "x", true); u.ctx.save(); u.ctx.strokeStyle = css.getPropertyValue("--ink"); u.ctx.lineWidth = devicePixelRatio; u.ctx.beginPath(); u.ctx.moveTo(x, u.bbox.top); u.ctx.lineTo(x, u.bbox.top + u.bbox.height); u.ctx.stroke(); u.ctx.restore(); }] },
  }, data, holder);
  plot.over.addEventListener("click", () => { if (plot.cursor.left >= 0) clock.seek(plot.posToVal(plot.cursor.left, "x")); });
  clock.on((now) => { frame = now; plot.redraw(false, false); legend(plot); });
  const observer = new ResizeObserver(() => plot.setSize({ width: Math.max(260, holder.clientWidth), height: 190 }));
  observer.observe(holder);
  plot.watch = observer;
  return plot;
}
