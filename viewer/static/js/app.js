// Start, pages, keys, theme, and asking for what changed.

import { refresh, table } from "./api.js";
import { fill, h, problem } from "./dom.js";
import { current } from "./route.js";
import { runsPage } from "./runs.js";

const PAGES = [["runs", "Runs"], ["cases", "Cases"], ["results", "Results"], ["metrics", "Metrics"]];
const LOADERS = {
  runs: async () => runsPage,
  cases: async () => (await import("./cases.js")).casesPage,
  case: async () => (await import("./case.js")).casePage,
  results: async () => (await import("./results.js")).resultsPage,
  metrics: async () => (await import("./metricspage.js")).metricsPage,
};
const KEYS = [["g then r, c, e, m", "runs, cases, results, metrics"], ["/", "filter"], ["space", "play, pause"], ["← →", "a frame back, forward"], ["shift ← →", "ten frames"], ["home, end", "first, last frame"], ["< >", "slower, faster"], ["l", "loop"], ["1 … 6", "tabs of a case"], ["[ ]", "case before, after"], ["t", "dark, light"], ["?", "this list"]];
const main = document.getElementById("main"), live = document.getElementById("live"), dialog = document.getElementById("keys");
let leaving = null, shown = "", page = null;

async function show() {
  const { parts } = current();
  const name = parts[0] ?? "runs";
  const key = parts.join("/");
  if (key === shown && page?.again) return page.again();
  leaving?.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  shown = key; page = null;
  fill(document.getElementById("nav"), PAGES.map(([id, label]) => h("a", { href: `#/${id}`, "aria-current": name === id || (id === "cases" && name === "case") ? "page" : null }, label)));
  document.title = `${parts.length > 1 ? parts.slice(1).join("/") : PAGES.find(([id]) => id === name)?.[1] ?? name} · 4DCodeBench`;
  try {
    if (!Object.hasOwn(LOADERS, name)) throw new Error(`There is no page "${name}".`);
    const open = await LOADERS[name]();
    if (signal.aborted) return undefined;
    page = await open(main, signal, parts.slice(1));
  } catch (error) {
    if (!signal.aborted) fill(main, problem(error.message), h("p", null, h("a", { href: "#/runs" }, "To the runs")));
  }
  return undefined;
}

function theme(value, keep) {
  document.documentElement.dataset.theme = value;
  if (keep) try { localStorage.setItem("theme", value); } catch { /* private window */ }
  document.dispatchEvent(new CustomEvent("theme"));
}
const flip = () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true);
let stored = null;
try { stored = localStorage.getItem("theme"); } catch { /* private window */ }
theme(current().query.get("theme") ?? stored ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));

function help() {
  fill(dialog, h("h2", { id: "keys-title" }, "Keyboard"), h("table", null, h("tbody", null, KEYS.map(([keys, text]) => h("tr", null, h("td", null, h("kbd", null, keys)), h("td", null, text))))), h("p", null, h("button", { onclick: () => dialog.close() }, "Close")));
  dialog.showModal();
}
document.getElementById("theme").addEventListener("click", flip);
document.getElementById("help").addEventListener("click", help);

let going = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
  const tag = event.target.tagName;
  if (tag === "INPUT" && event.target.type !== "range" && event.target.type !== "checkbox" || tag === "SELECT" || tag === "TEXTAREA") {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (going) {
    going = false;
    const target = { r: "runs", c: "cases", e: "results", m: "metrics" }[event.key];
    if (target) { location.hash = `#/${target}`; event.preventDefault(); return; }
  }
  const own = page?.keys?.[event.shiftKey && event.key.startsWith("Arrow") ? `shift ${event.key}` : event.key];
  if (own && !(event.key === " " && tag === "BUTTON")) { own(); event.preventDefault(); return; }
  if (event.key === "g") going = true;
  else if (event.key === "t") flip();
  else if (event.key === "?") help();
});

function told() {
  const busy = [...table.rows.values()].filter((row) => row.state === "running" || row.state === "collecting").length;
  live.textContent = table.error ? "server not reached" : busy ? `${busy} running` : "";
}
table.listeners.add(told);
addEventListener("hashchange", show);
show();
setInterval(() => { if (!document.hidden) refresh(); }, 2000);
