// Elements from data. Text is always set as text: nothing here, or anywhere in this app, parses HTML.

export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else if (key === "style") for (const [name, text] of Object.entries(value)) node.style.setProperty(name, text);
    else if (key in node && key !== "list" && typeof value !== "string") node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function fill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function svg(tag, props, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props ?? {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export const problem = (text) => h("p", { class: "problem", role: "alert" }, text);

export function number(value, digits = 3) {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 100) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  const minutes = Math.round(value / 60);
  return minutes < 100 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
}

export function big(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return String(value);
  return value < 1e6 ? `${(value / 1e3).toFixed(1)} k` : `${(value / 1e6).toFixed(2)} M`;
}

export const dollars = (value) => (value === null || value === undefined ? "–" : `$${value.toFixed(2)}`);

const GOOD = new Set(["done", "yes"]), BAD = new Set(["failed", "environment_error", "broken", "gate"]);
const WARN = new Set(["interrupted", "errors", "unknown"]), BUSY = new Set(["running", "collecting"]);

export function stateTag(state) {
  const kind = GOOD.has(state) ? "good" : BAD.has(state) ? "bad" : WARN.has(state) ? "warn" : BUSY.has(state) ? "info run" : "";
  return h("span", { class: `tag ${kind}` }, state.replace("_", " "));
}

export const enc = (path) => path.split("/").map(encodeURIComponent).join("/");
