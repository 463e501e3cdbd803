// Systems × metrics as the command line reports them, per kind and case too; sorting, export, cost against score.

import { get, metrics, table as live } from "./api.js";
import { dollars, fill, h, number, problem, seconds, svg, big } from "./dom.js";
import { address, current, note } from "./route.js";
import { compare } from "./runs.js";

const OVERALL = "Overall";

export async function resultsPage(main, signal) {
  const table = await metrics(), query = current().query;
  const view = { by: query.get("by") ?? "system", kind: query.get("kind") ?? "", sort: query.get("sort") ?? OVERALL, up: query.get("dir") === "up", ci: query.get("ci") !== "no", metric: query.get("metric") ?? OVERALL, all: query.get("all") === "yes" };
  const tools = h("div", { class: "row bar" }), body = h("div");
  fill(main, tools, body);
  const choose = (name, label, options) => { const node = h("select", { "aria-label": label, onchange: () => { view[name] = node.value; note({ [name]: node.value }); draw(); } }, options.map(([value, text]) => h("option", { value }, text))); node.value = view[name]; return node; };
  const flip = (name, label, on, off) => { const node = h("button", { type: "button", "aria-pressed": String(view[name]), onclick: () => { view[name] = !view[name]; node.setAttribute("aria-pressed", String(view[name])); note({ [name]: view[name] ? on : off }); draw(); } }, label); return node; };
  const links = h("span", { class: "row" });
  fill(tools, h("h1", null, "Results"), choose("by", "One line for", [["system", "per system"], ["kind", "per system and kind"]]), choose("kind", "Kind", [["", "all cases"], ...table.kinds.map((kind) => [kind, kind])]), flip("ci", "95 % intervals", "", "no"), flip("all", "Every metric", "yes", ""), h("span", { class: "grow" }), h("span", { class: "soft small" }, "Export"), links);
  let asked = 0;
  async function draw() {
    const mine = ++asked, selection = new URLSearchParams({ by: view.by, kind: view.kind });
    fill(links, [["csv", "CSV"], ["json", "JSON"], ["latex", "LaTeX"], ["markdown", "Markdown"]].map(([format, label]) => h("a", { class: "tag info", href: `api/report.${format}?${selection}`, download: `report.${format === "latex" ? "tex" : format === "markdown" ? "md" : format}` }, label)));
    try {
      const [report, pivot] = await Promise.all([get(`api/report?${selection}`), get(`api/pivot?${selection}&metric=${encodeURIComponent(view.metric)}`)]);
      if (signal.aborted || mine !== asked) return;
      fill(body, grid(report), scatter(report), pivotTable(pivot), notes(report));
    } catch (error) { if (!signal.aborted && mine === asked) fill(body, problem(error.message)); }
  }
  function grid(report) {
    const groups = report.groups.map((group) => ({ ...group, at: new Map(group.rows.map((row) => [row.name, row])), spent: report.spent[group.name] ?? {} }));
    const names = report.groups[0].rows.map((row) => row.name);
    const shown = names.filter((name) => view.all || name === OVERALL || table.main.includes(name) || groups.some((group) => group.at.get(name).mean !== null));
    const label = (name) => { const metric = table.metrics.find((one) => one.key === name); return metric ? `${metric.label} ${metric.up ? "↑" : "↓"}` : name; };
    const family = (name) => table.metrics.find((one) => one.key === name)?.family ?? (name === OVERALL ? "" : name);
    const value = (group, name) => name === "group" ? group.name : name === "cost" ? group.spent.cost?.mean : name === "seconds" ? group.spent.seconds?.mean : group.at.get(name)?.mean;
    const sign = view.up ? 1 : -1;
    groups.sort((a, b) => { const [x, y] = [value(a, view.sort), value(b, view.sort)]; return (x ?? null) === null || (y ?? null) === null ? compare(x, y) : sign * compare(x, y); });
    const head = (name, text, edge) => h("th", { class: `r ${edge ? "edge" : ""}`, scope: "col", "aria-sort": view.sort === name ? (view.up ? "ascending" : "descending") : null }, h("button", { type: "button", onclick: () => { view.up = view.sort === name ? !view.up : false; view.sort = name; note({ sort: name, dir: view.up ? "up" : "" }); draw(); } }, text, view.sort === name ? (view.up ? " ↑" : " ↓") : ""));
    const bands = [];
    for (const name of shown) { const own = family(name); if (bands.at(-1)?.name === own) bands.at(-1).span++; else bands.push({ name: own, span: 1 }); }
    const first = new Set(); let at = 0;
    for (const band of bands) { first.add(shown[at]); at += band.span; }
    // The best is marked among those with the widest coverage only: fewer cases are another competition.
    const widest = Math.max(...groups.map((group) => group.cases)), families = Math.max(...groups.map((group) => group.overall_families.length));
    const best = new Map(shown.map((name) => {
      const metric = table.metrics.find((one) => one.key === name), most = Math.max(...groups.map((group) => group.at.get(name).cases ?? 0));
      const held = groups.filter((group) => metric ? group.at.get(name).cases === most : group.cases === widest && group.overall_families.length === families).map((group) => value(group, name)).filter((one) => one !== null);
      return [name, held.length > 1 ? (metric && !metric.up ? Math.min(...held) : Math.max(...held)) : null];
    }));
    return h("div", { class: "results", tabindex: "0", role: "region", "aria-label": "Results" }, h("table", null, h("thead", null, h("tr", { class: "band" }, h("th"), bands.map((band) => h("th", { colspan: String(band.span) }, band.name)), h("th", { colspan: "4" }, "Mean per run")), h("tr", null, head("group", view.by === "system" ? "System" : "System and kind"), shown.map((name) => head(name, table.main.includes(name) ? "Family" : label(name), first.has(name))), head("cost", "Cost", true), head("seconds", "Time"), h("th", { class: "r" }, "Tokens"), h("th", { class: "r" }, "Runs"))),
      h("tbody", null, groups.map((group) => h("tr", null, h("th", { scope: "row" }, h("a", { href: address(["runs"], { q: `system="${group.name.split(" ")[0]}"` }) }, group.name), group.overall_families.length < table.main.length ? h("span", { class: "cause" }, `Overall rests on ${group.overall_families.length} of ${table.main.length} families`) : null),
        shown.map((name) => cell(group.at.get(name), first.has(name), best.get(name), (group.at.get(name).cases ?? group.cases) === (table.metrics.some((one) => one.key === name) ? Math.max(...groups.map((one) => one.at.get(name).cases ?? 0)) : widest))), h("td", { class: "r edge" }, dollars(group.spent.cost?.mean)), h("td", { class: "r" }, seconds(group.spent.seconds?.mean)), h("td", { class: "r" }, big(group.spent.tokens?.mean === undefined || group.spent.tokens.mean === null ? null : Math.round(group.spent.tokens.mean))), h("td", { class: "r" }, `${group.runs} on ${group.cases}`))))));
  }
  function cell(row, edge, best, wide) {
    const counts = Object.entries(row.states).map(([state, count]) => `${count} ${state}`).join(", ");
    const bad = (row.states.error ?? 0), lost = row.states.missing ?? 0;
    return h("td", { class: `r ${edge ? "edge" : ""} ${wide && row.mean !== null && row.mean === best ? "best" : ""}`, title: counts ? `${counts}; ${row.cases ?? 0} cases` : null }, number(row.mean), view.ci && row.low !== null ? h("span", { class: "ci" }, `${number(row.low)}–${number(row.high)}`) : null, bad || lost ? h("span", { class: "n" }, [bad ? `${bad} error${bad > 1 ? "s" : ""}` : "", lost ? `${lost} missing` : ""].filter(Boolean).join(", ")) : null);
  }
  function scatter(report) {
    const points = report.groups.map((group) => ({ name: group.name, x: report.spent[group.name]?.cost?.mean ?? null, row: group.rows[0] })).filter((point) => point.x !== null && point.row.mean !== null);
    if (points.length < 2) return null;
    const W = 640, H = 260, left = 46, bottom = 34, most = Math.max(...points.map((point) => point.x)) * 1.12 || 1;
    const px = (x) => left + x / most * (W - left - 110), py = (y) => 12 + (1 - y) * (H - 12 - bottom);
    const text = (x, y, content, anchor) => { const node = svg("text", { x, y, "text-anchor": anchor }); node.textContent = content; return node; };
    const parts = [svg("line", { class: "axis", x1: left, y1: py(0), x2: W, y2: py(0) }), svg("line", { class: "axis", x1: left, y1: py(0), x2: left, y2: py(1) })];
    for (let tick = 0; tick <= 4; tick++) { parts.push(text(left - 6, py(tick / 4) + 4, (tick / 4).toFixed(2), "end"), text(px(most * tick / 4), H - 16, `$${(most * tick / 4).toFixed(2)}`, "middle")); }
    parts.push(text(px(most / 2), H - 2, "mean cost of a run", "middle"));
    for (const point of points) { parts.push(svg("line", { class: "whisker", x1: px(point.x), x2: px(point.x), y1: py(point.row.low ?? point.row.mean), y2: py(point.row.high ?? point.row.mean) }), svg("circle", { cx: px(point.x), cy: py(point.row.mean), r: 5 }), text(px(point.x) + 9, py(point.row.mean) + 4, point.name, "start")); }
    return h("section", { class: "panel", style: { "margin-top": "14px" } }, h("h2", null, "Overall against cost"), svg("svg", { viewBox: `0 0 ${W} ${H}`, width: "100%", role: "img", "aria-label": "Overall against the mean cost of a run" }, ...parts));
  }
  function pivotTable(pivot) {
    const systems = [...new Set(Object.values(pivot.cases).flatMap((row) => Object.keys(row)))].sort(), metric = table.metrics.find((one) => one.key === pivot.key);
    const names = Object.keys(pivot.cases).sort();
    const options = [[OVERALL, "Overall of a run"], ...table.metrics.map((one) => [one.key, `${one.label} ${one.up ? "↑" : "↓"}`])];
    const shade = (mean) => metric && !metric.up ? 1 - mean / metric.high : mean;
    return h("section", { style: { "margin-top": "14px" } }, h("div", { class: "row bar" }, h("h2", { style: { margin: "0" } }, "By case"), choose("metric", "Metric of the table by case", options)), h("div", { class: "results", style: { "max-height": "60vh" }, tabindex: "0", role: "region", "aria-label": "By case" }, h("table", null, h("thead", null, h("tr", null, h("th", null, "Case"), systems.map((system) => h("th", { class: "r", scope: "col" }, system)))), h("tbody", null, names.map((name) => h("tr", null, h("th", { scope: "row" }, h("a", { href: address(["case", ...name.split("/")], { runs: systems.filter((system) => pivot.cases[name][system]).slice(0, 3).map((system) => firstRun(name, system)).filter(Boolean).join(",") }) }, name)), systems.map((system) => { const one = pivot.cases[name][system]; if (!one) return h("td", { class: "r faint" }, "never run"); return h("td", { class: "r heat", style: one.mean === null ? null : { "--s": String(Math.max(0, Math.min(1, shade(one.mean)))) }, title: `${one.trials} trials` }, one.mean === null ? h("span", { class: `state ${Object.keys(one.states)[0] ?? ""}` }, Object.keys(one.states).join(", ").replaceAll("_", " ") || "–") : number(one.mean), one.mean !== null && one.states.error ? h("span", { class: "n" }, `${one.states.error} error${one.states.error > 1 ? "s" : ""}`) : null); })))))));
  }
  function firstRun(name, system) { for (const row of live.rows.values()) if (row.case === name && row.system === system) return `${system}/${row.trial}`; return null; }
  function notes(report) {
    const missing = Object.entries(report.missing), skipped = Object.entries(report.skipped);
    return h("div", { class: "note", style: { "margin-top": "14px" } }, h("p", null, "Means over cases with 95 % bootstrap intervals over cases; trials averaged first. ", report.rule), h("p", null, `Protocol: ${report.protocols.join(", ")}.`, report.protocols.length > 1 ? " The runs were scored under different protocols." : ""), skipped.length ? h("p", null, `Not measured, as the model was left out: ${skipped.map(([key, count]) => `${key} in ${count} runs`).join(", ")}.`) : null, missing.length ? h("details", null, h("summary", null, `${missing.length} runs are missing`), h("ul", null, missing.slice(0, 500).map(([name, why]) => h("li", null, `${name}: ${why}`)))) : null);
  }
  let timer = 0;
  const changed = () => { clearTimeout(timer); timer = setTimeout(draw, 300); };
  live.listeners.add(changed);
  signal.addEventListener("abort", () => { live.listeners.delete(changed); clearTimeout(timer); });
  await draw();
  return {};
}
