// Readings of the chosen runs side by side: numbers, states, causes, gates.

import { dollars, fill, big, h, number, seconds, stateTag } from "./dom.js";

const GATES = { video_gate: "Video gate", world_gate: "World gate" };

export async function scoresTab(body, context, signal) {
  const runs = context.runs();
  if (!runs.length) { fill(body, h("p", { class: "empty" }, "Choose runs above to see their scores.")); return; }
  const views = await Promise.all(runs.map((row) => context.view(row).catch((error) => ({ problems: [error.message], readings: [], gates: [] }))));
  if (signal.aborted) return;
  const { table } = context, lines = [];
  const line = (label, cells, title) => h("tr", null, h("th", { scope: "row", title: title ?? null }, label), cells.map((cell) => h("td", null, cell)));
  const group = (text) => h("tr", { class: "family" }, h("td", { colspan: String(1 + runs.length) }, text));
  lines.push(line("State", runs.map((row) => stateTag(row.state))));
  lines.push(line("Overall of this run", runs.map((row) => h("b", { class: "num" }, number(row.score, 4))), table.rule));
  for (const family of table.families) {
    lines.push(group(family));
    for (const metric of table.metrics.filter((one) => one.family === family)) {
      const readings = views.map((view) => view.readings.find((one) => one.key === metric.key));
      const numbers = readings.map((one) => one?.value ?? null).filter((value) => value !== null);
      const best = numbers.length > 1 ? (metric.up ? Math.max(...numbers) : Math.min(...numbers)) : null;
      lines.push(line(`${metric.label} ${metric.up ? "↑" : "↓"}`, readings.map((one) => cell(one, best)), metric.definition));
    }
  }
  lines.push(group("Gates"));
  for (const name of Object.keys(GATES)) lines.push(line(GATES[name], views.map((view) => gate(view.gates.find((one) => one.name === name)))));
  lines.push(group("Spent"));
  lines.push(line("Time", runs.map((row) => seconds(row.seconds))), line("Cost", runs.map((row) => dollars(row.cost))), line("Tokens", runs.map((row) => big(row.tokens))), line("Steps", runs.map((row) => big(row.steps))));
  lines.push(line("Scored by", views.map((view) => view.scorer?.protocol ? `${view.scorer.protocol}, scorer ${view.scorer.version ?? "?"}` : "–")));
  const problems = views.flatMap((view, index) => view.problems.map((text) => h("p", { class: "problem" }, `${runs[index].system} · ${runs[index].trial}: ${text}`)));
  const failures = views.flatMap((view, index) => view.readings.filter((one) => one.failure).map((one) => h("details", { class: "panel", style: { "margin-top": "10px" } }, h("summary", null, `${runs[index].system} · ${runs[index].trial}: ${one.key}`), h("pre", null, one.failure))));
  fill(body, problems, h("div", { class: "results scores" }, h("table", null, h("thead", null, h("tr", null, h("th", null, ""), runs.map((row) => h("th", { scope: "col" }, `${row.system} · ${row.trial}`)))), h("tbody", null, lines))), failures);
}

function cell(one, best) {
  if (!one) return "–";
  if (one.value !== null) return h("span", { class: "num" }, one.value === best ? h("b", null, number(one.value, 4)) : number(one.value, 4), one.cause ? h("span", { class: "cause" }, one.cause) : null);
  return [h("span", { class: `state ${one.state}` }, one.state.replaceAll("_", " ")), one.cause ? h("span", { class: "cause" }, one.cause.replaceAll("_", " ")) : null];
}

function gate(one) {
  if (!one || one.ok === null) return h("span", { class: "state" }, "not asked");
  if (one.ok) return h("span", { class: "tag good" }, "open");
  return [h("span", { class: "tag bad" }, "closed"), h("span", { class: "cause" }, one.error), one.lines.length ? h("details", null, h("summary", { class: "small" }, `${one.lines.length} lines`), h("pre", null, one.lines.join("\n"))) : null];
}
