// What the agent did, step by step; logs, programs and records as text.

import { get, runPath } from "./api.js";
import { fill, h, problem } from "./dom.js";
import { note } from "./route.js";

const PAGE = 150;
const ROLES = { user: "Task", assistant: "Agent", thinking: "Thinking", call: "Tool call", result: "Output", image: "Picture", event: "Event", raw: "Log" };

function chooser(context, draw) {
  const runs = context.runs();
  if (!runs.some((row) => row.id === context.focus)) context.focus = runs[0].id;
  const select = h("select", { "aria-label": "Run", onchange: () => { context.focus = select.value; note({ of: select.value }); draw(); } }, runs.map((row) => h("option", { value: row.id }, `${row.system} · ${row.trial}`)));
  select.value = context.focus;
  return select;
}

function size(bytes) { return bytes < 1024 ? `${bytes} B` : bytes < 1 << 20 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`; }

export async function transcriptTab(body, context, signal) {
  if (!context.runs().length) { fill(body, h("p", { class: "empty" }, "Choose a run above to read its transcript.")); return; }
  const top = h("div", { class: "row bar" }), steps = h("div", { class: "panel", role: "feed", "aria-label": "Transcript" });
  fill(body, top, steps);
  async function draw() {
    const id = context.focus, run = runPath(id);
    const { files } = await get(`api/transcript/${run}`);
    if (signal.aborted) return;
    if (!files.length) { fill(top, choose); fill(steps, h("p", { class: "empty" }, "This run left no transcript and no log.")); return; }
    const select = h("select", { "aria-label": "Transcript file", onchange: () => load(select.value) }, files.map((file) => h("option", { value: file.path }, `${file.path} (${size(file.bytes)})`)));
    const count = h("span", { class: "soft small num" });
    const only = h("select", { "aria-label": "Show", onchange: () => { steps.dataset.only = only.value; filter(); } }, [["", "everything"], ["talk", "agent's words"], ["tools", "tools"]].map(([value, label]) => h("option", { value }, label)));
    const filter = () => { for (const node of steps.querySelectorAll(".step")) { const role = node.dataset.role; node.hidden = only.value === "talk" ? !["assistant", "user", "thinking"].includes(role) : only.value === "tools" ? !["call", "result", "image"].includes(role) : false; } };
    fill(top, choose, select, only, count);
    async function load(path) {
      fill(steps);
      let start = 0, total = 1;
      const more = h("button", { type: "button" }, "Show more");
      const next = async () => {
        more.disabled = true;
        const page = await get(`api/transcript/${run}?path=${encodeURIComponent(path)}&start=${start}&count=${PAGE}`);
        if (signal.aborted || context.focus !== id) return;
        total = page.total; start += page.steps.length;
        more.remove();
        if (page.note && start === page.steps.length) steps.append(h("p", { class: "note" }, page.note));
        steps.append(...page.steps.map((step) => card(step, run, path)));
        if (start < total) { more.disabled = false; steps.append(more); }
        count.textContent = `${start} of ${total} steps`;
        filter();
      };
      more.addEventListener("click", () => next().catch((error) => steps.append(problem(error.message))));
      await next();
    }
    await load(files[0].path);
  }
  const safe = () => draw().catch((error) => { if (!signal.aborted) fill(steps, problem(error.message)); });
  const choose = chooser(context, safe);
  await safe();
}

function card(step, run, path) {
  const used = Object.entries(step.tokens).map(([name, count]) => h("span", { class: "tag" }, `${name} ${count.toLocaleString("en")}`));
  const text = step.role === "assistant" || step.role === "user" || step.role === "thinking" ? h("div", { class: "prose" }, step.text) : step.text ? h("pre", null, step.text) : null;
  const long = step.text.length > 1800 && !["assistant"].includes(step.role);
  const title = step.title === "error" && step.role === "result" ? "" : step.title;
  return h("article", { class: `step ${step.role} ${step.title === "error" ? "error" : ""}`, "data-role": step.role },
    h("header", null, h("b", null, ROLES[step.role] ?? step.role), title ? h("span", { class: "mono" }, title) : null, step.title === "error" ? h("span", { class: "tag bad" }, "error") : null, step.time ? h("time", null, step.time.slice(0, 19).replace("T", " ")) : null, used),
    step.image >= 0 ? h("img", { src: `api/image/${run}?path=${encodeURIComponent(path)}&at=${step.at}&n=${step.image}`, alt: "Picture in the transcript", loading: "lazy" }) : null,
    long ? h("details", null, h("summary", null, `${step.text.slice(0, 160).replace(/\s+/g, " ")} …`), text) : text,
    step.cut ? h("p", { class: "faint small" }, `${step.cut.toLocaleString("en")} more characters stand in the file.`) : null);
}

export async function filesTab(body, context, signal) {
  if (!context.runs().length) { fill(body, h("p", { class: "empty" }, "Choose a run above to read its files.")); return; }
  const side = h("div"), sheet = h("div", { class: "sheet", tabindex: "0" });
  async function draw() {
    const id = context.focus, view = await context.view(context.runs().find((row) => row.id === id));
    if (signal.aborted) return;
    const buttons = [["run.json", () => fill(sheet, view.record ? h("pre", null, JSON.stringify(view.record, null, 2)) : h("p", { class: "empty" }, "There is no readable run.json."))], ...view.texts.map((file) => [file.path, () => open(id, file.path, 0)])];
    const nodes = buttons.map(([label, act]) => h("button", { type: "button", class: "mono", "aria-pressed": "false", title: label, onclick: (event) => { for (const node of nodes) node.setAttribute("aria-pressed", "false"); event.currentTarget.setAttribute("aria-pressed", "true"); act(); } }, label));
    fill(side, h("div", { class: "bar" }, choose), view.problems.map(problem), h("div", { class: "files panel" }, nodes));
    nodes[0].click();
  }
  async function open(id, path, start) {
    const page = await get(`api/text/${runPath(id)}?path=${encodeURIComponent(path)}&start=${start}`).catch((error) => ({ error: error.message }));
    if (signal.aborted || context.focus !== id) return;
    if (page.error) { fill(sheet, problem(page.error)); return; }
    const whole = page.start === 0 && page.stop === page.size;
    fill(sheet, h("div", { class: "row bar" }, h("b", { class: "mono" }, path), h("span", { class: "soft small" }, whole ? size(page.size) : `bytes ${page.start}–${page.stop} of ${page.size}`), page.start > 0 ? h("button", { onclick: () => open(id, path, Math.max(0, page.start - (256 << 10))) }, "Before") : null, page.stop < page.size ? h("button", { onclick: () => open(id, path, page.stop) }, "After") : null, whole ? null : h("button", { onclick: () => open(id, path, -(256 << 10)) }, "End")), page.binary ? h("p", { class: "empty" }, "Not a text.") : h("pre", null, page.text));
  }
  const safe = () => draw().catch((error) => { if (!signal.aborted) fill(sheet, problem(error.message)); });
  const choose = chooser(context, safe);
  fill(body, h("div", { class: "split" }, side, sheet));
  await safe();
}
