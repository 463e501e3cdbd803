// Every case as a card.

import { get, loaded, table } from "./api.js";
import { enc, fill, h, number } from "./dom.js";
import { address, current, note } from "./route.js";

export async function casesPage(main, signal) {
  const [{ cases }] = await Promise.all([get("api/cases"), loaded()]);
  const query = h("input", { class: "query", type: "search", placeholder: "words of a case's name", "aria-label": "Filter the cases" });
  query.value = current().query.get("q") ?? "";
  const cards = h("div", { class: "cards" }), count = h("span", { class: "soft num" });
  fill(main, h("div", { class: "row bar" }, h("h1", null, "Cases"), query, count), cards);
  const seen = new IntersectionObserver((entries) => { for (const entry of entries) if (entry.isIntersecting) { entry.target.src = entry.target.dataset.src; seen.unobserve(entry.target); } }, { rootMargin: "300px" });
  function draw() {
    const runs = new Map();
    for (const row of table.rows.values()) runs.set(row.case, [...runs.get(row.case) ?? [], row]);
    const shown = cases.filter((name) => query.value.toLowerCase().split(/\s+/).every((word) => name.toLowerCase().includes(word)));
    count.textContent = `${shown.length} cases`;
    fill(cards, shown.map((name) => {
      const own = runs.get(name) ?? [], best = own.reduce((most, row) => row.score !== null && (most === null || row.score > most.score) ? row : most, null);
      const video = h("video", { muted: true, preload: "metadata", "data-src": `video/case/${enc(name)}/reference.mp4#t=0.1`, "aria-hidden": "true", tabindex: "-1", playsinline: true });
      video.muted = true; seen.observe(video);
      const pickedRuns = bestOfEach(own).slice(0, 3).map((row) => `${row.system}/${row.trial}`).join(",");
      return h("a", { class: "card", href: address(["case", ...name.split("/")], { runs: pickedRuns }) }, video, h("div", { class: "body" }, h("b", null, name.split("/")[1]), h("div", { class: "row small soft" }, h("span", { class: "tag" }, name.split("/")[0]), h("span", null, `${own.length} runs`), best ? h("span", null, `best ${number(best.score)}`) : null)));
    }));
    if (!shown.length) fill(cards, h("p", { class: "empty" }, "No case matches."));
  }
  query.addEventListener("input", () => { note({ q: query.value }); draw(); });
  signal.addEventListener("abort", () => seen.disconnect());
  draw();
  return { keys: { "/": () => query.focus() } };
}

export function bestOfEach(rows) {
  const best = new Map();
  for (const row of rows) { const old = best.get(row.system); if (!old || (row.score ?? -1) > (old.score ?? -1)) best.set(row.system, row); }
  return [...best.values()].sort((a, b) => (b.score ?? -1) - (a.score ?? -1));
}
