// Every run: facets, filter, sorting, only the visible rows in the page.

import { loaded, table } from "./api.js";
import { big, dollars, fill, h, number, problem, seconds, stateTag } from "./dom.js";
import { matcher, toggled } from "./filter.js";
import { address, current, note } from "./route.js";

const HEIGHT = 34;
const FACETS = [["state", "State"], ["scored", "Scored"], ["kind", "Kind"], ["system", "System"], ["cause", "Cause"]];
const SCORED = { yes: "scored", no: "not scored", gate: "gate closed", errors: "with errors", broken: "broken" };
const COLUMNS = [
  ["case", "Case", (row) => h("a", { href: caseLink(row), title: row.case }, row.case), "case"],
  ["system", "System", (row) => row.system],
  ["trial", "Trial", (row) => String(row.trial), "r"],
  ["state", "State", (row) => stateTag(row.state)],
  ["scored", "Scoring", (row) => [h("span", { class: `tag ${{ yes: "good", gate: "bad", broken: "bad", errors: "warn" }[row.scored] ?? ""}` }, SCORED[row.scored] ?? row.scored), row.cause ? h("span", { class: "faint small", title: row.note }, ` ${row.cause}`) : null]],
  ["score", "Overall", (row) => row.score === null ? "–" : [meter(row.score), number(row.score)], "r"],
  ["seconds", "Time", (row) => seconds(row.seconds), "r"],
  ["cost", "Cost", (row) => dollars(row.cost), "r"],
  ["tokens", "Tokens", (row) => big(row.tokens), "r"],
  ["steps", "Steps", (row) => big(row.steps), "r"],
  ["started", "Started", (row) => row.started ? row.started.slice(0, 16).replace("T", " ") : "–", "r"],
];

export function meter(value) {
  return h("span", { class: "meter", "aria-hidden": "true" }, h("i", { style: { width: `${Math.max(0, Math.min(1, value)) * 100}%` } }));
}

export const caseLink = (row) => address(["case", ...row.case.split("/")], { runs: `${row.system}/${row.trial}` });

export async function runsPage(main, signal) {
  await loaded();
  const view = { text: current().query.get("q") ?? "", sort: current().query.get("sort") ?? "case", down: current().query.get("dir") === "down" };
  const query = h("input", { class: "query", type: "search", value: view.text, placeholder: 'state:failed score>0.5 -kind:real system="…" words', "aria-label": "Filter the runs", spellcheck: "false" });
  query.value = view.text;
  const facets = h("aside", { class: "facets", "aria-label": "Facets" });
  const count = h("span", { class: "soft num", role: "status" });
  const head = h("thead"), body = h("tbody");
  const grid = h("div", { class: "grid", tabindex: "0", role: "region", "aria-label": "Runs" }, h("table", null, head, body));
  const trouble = h("div");
  fill(main, h("div", { class: "runs" }, facets, h("div", { class: "list" }, h("div", { class: "row bar" }, h("h1", null, "Runs"), query, count), trouble, grid)));
  let rows = [], shownFrom = -1;

  function update() {
    const keep = matcher(view.text);
    const all = [...table.rows.values()];
    rows = all.filter(keep);
    const sign = view.down ? -1 : 1;
    rows.sort((a, b) => sign * compare(a[view.sort], b[view.sort]) || compare(a.id, b.id));
    count.textContent = rows.length === all.length ? `${all.length} runs` : `${rows.length} of ${all.length} runs`;
    fill(trouble, table.error ? problem(`Not up to date: ${table.error}`) : null);
    drawHead(); drawFacets(all); shownFrom = -1; draw();
  }
  function drawHead() {
    fill(head, h("tr", null, COLUMNS.map(([key, label, , kind]) => h("th", { class: kind === "r" ? "r" : "", "aria-sort": view.sort === key ? (view.down ? "descending" : "ascending") : null, scope: "col" },
      h("button", { type: "button", onclick: () => { view.down = view.sort === key ? !view.down : ["score", "seconds", "cost", "tokens", "steps", "started"].includes(key); view.sort = key; note({ sort: key, dir: view.down ? "down" : "" }); update(); } }, label, view.sort === key ? (view.down ? " ↓" : " ↑") : "")))));
  }
  function drawFacets(all) {
    fill(facets, FACETS.map(([name, label]) => {
      const counts = new Map();
      // A facet counts what the other terms leave.
      const others = matcher(view.text.replace(new RegExp(`(^|\\s)${name}="[^"]*"`, "gu"), ""));
      for (const row of all) if (others(row)) counts.set(row[name] || "", (counts.get(row[name] || "") ?? 0) + 1);
      counts.delete("");
      if (counts.size === 0) return null;
      const items = [...counts].sort((a, b) => b[1] - a[1] || compare(a[0], b[0])).slice(0, 40);
      return h("section", { class: "facet" }, h("h2", null, label), items.map(([value, many]) => h("button", { type: "button", title: value, "aria-pressed": String(view.text.includes(`${name}="${value}"`)), onclick: () => setText(toggled(view.text, name, String(value))) },
        h("span", null, name === "scored" ? SCORED[value] ?? value : value), h("span", { class: "count" }, String(many)))));
    }));
  }
  function draw() {
    const from = Math.max(0, Math.floor(grid.scrollTop / HEIGHT) - 12), to = Math.min(rows.length, from + Math.ceil(grid.clientHeight / HEIGHT) + 24);
    if (from === shownFrom) return;
    shownFrom = from;
    const spacer = (many) => h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: String(COLUMNS.length), style: { height: `${many * HEIGHT}px` } }));
    if (rows.length === 0) { fill(body, h("tr", null, h("td", { colspan: String(COLUMNS.length), class: "empty" }, table.rows.size ? "No run matches this filter." : "No run yet. Start some with infer.py; they appear here by themselves."))); return; }
    fill(body, spacer(from), rows.slice(from, to).map((row) => h("tr", { "data-id": row.id }, COLUMNS.map(([, , cell, kind]) => h("td", { class: kind ?? "" }, cell(row))))), spacer(rows.length - to));
  }
  function setText(text) { view.text = text; query.value = text; note({ q: text }); grid.scrollTop = 0; update(); }

  query.addEventListener("input", () => setText(query.value));
  grid.addEventListener("scroll", draw, { passive: true });
  const resize = new ResizeObserver(() => { shownFrom = -1; draw(); });
  resize.observe(grid);
  table.listeners.add(update);
  signal.addEventListener("abort", () => { table.listeners.delete(update); resize.disconnect(); });
  update();
  return { keys: { "/": () => query.focus() } };
}

export function compare(a, b) {
  const none = (value) => value === null || value === undefined || value === "";
  if (none(a) || none(b)) return none(a) - none(b);
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}
