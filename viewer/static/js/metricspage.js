// What each metric means, from the same table that scores.

import { metrics } from "./api.js";
import { fill, h } from "./dom.js";

const STATES = { not_applicable: "the metric does not exist for this kind of case; left out", excluded: "the footage shows the background through the object; left out", error: "the submission failed; counts as the metric's worst value", uncomputable: "nothing to compare; left out and counted" };

export async function metricsPage(main) {
  const table = await metrics();
  fill(main, h("div", { class: "bar" }, h("h1", null, "Metrics")), h("p", { class: "note" }, table.rule),
    table.families.map((family) => h("section", null, h("h2", { style: { "margin-top": "18px" } }, family, table.main.includes(family) ? null : h("span", { class: "faint small" }, "  not part of Overall")),
      h("div", { class: "defs" }, table.metrics.filter((one) => one.family === family).map((one) => h("article", { class: "panel def" }, h("h3", null, `${one.label} ${one.up ? "↑" : "↓"}`), h("p", null, one.definition), formula(one),
        h("div", { class: "row" }, h("span", { class: "tag mono" }, one.key), h("span", { class: "tag" }, `range ${one.low} – ${one.high}`), h("span", { class: "tag" }, one.up ? "higher is better" : "lower is better"), one.kinds.map((kind) => h("span", { class: "tag info" }, kind)), one.excluded.length ? h("span", { class: "tag warn", title: one.excluded.join("\n") }, `not on ${one.excluded.length} transparent cases`) : null, h("span", { class: "tag" }, `error counts ${one.worst}`))))))),
    h("h2", { style: { "margin-top": "18px" } }, "States"), h("div", { class: "panel" }, h("table", null, h("tbody", null, table.states.map((state) => h("tr", null, h("td", { class: "mono" }, state), h("td", { style: { "white-space": "normal" } }, STATES[state] ?? "")))))));
}

function formula(one) {
  return one.formula ? h("div", { class: "formula" }, one.formula) : null;
}
