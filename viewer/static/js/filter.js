// The filter language: words must occur; name:value, name>number, -word excludes, "quoted text", a|b is either.

export const NAMES = ["kind", "case", "system", "agent", "model", "effort", "trial", "state", "scored", "cause", "score", "seconds", "cost", "tokens", "steps", "calls"];
const TERM = /(-?)(?:([a-z]+)(:|>=|<=|>|<|=))?(?:"([^"]*)"|(\S+))/gu;

export function parse(text) {
  const terms = [];
  for (const match of text.matchAll(TERM)) {
    const [whole, minus, name, op, quoted, plain] = match;
    const known = name && NAMES.includes(name);
    const value = (quoted ?? plain).toLowerCase();
    terms.push(known ? { not: minus === "-", name, op, value, exact: quoted !== undefined }
      : { not: minus === "-", name: "", op: ":", value: quoted !== undefined && !name ? value : whole.slice(minus.length).replaceAll('"', "").toLowerCase() });
  }
  return terms;
}

export function matcher(text) {
  const terms = parse(text);
  return (row) => terms.every((term) => holds(term, row) !== term.not);
}

function holds({ name, op, value, exact }, row) {
  if (!name) return [row.id, row.state, row.cause, row.note, row.model, row.agent].some((item) => String(item ?? "").toLowerCase().includes(value));
  const own = row[name];
  if (op === ":" || op === "=") {
    const text = String(own ?? "none").toLowerCase() || "none";
    return exact || op === "=" ? text === value : value.split("|").some((option) => text.includes(option));
  }
  const limit = Number(value);
  if (typeof own !== "number" || Number.isNaN(limit)) return false;
  return op === ">" ? own > limit : op === "<" ? own < limit : op === ">=" ? own >= limit : own <= limit;
}

// Put name="value" into the text, or take it out when it is there.
export function toggled(text, name, value) {
  const term = `${name}="${value.replaceAll('"', "")}"`;
  if (text.includes(term)) return text.replace(term, "").replace(/\s+/g, " ").trim();
  const others = text.replace(new RegExp(`(^|\\s)${name}="[^"]*"`, "gu"), "");
  return `${others.trim()} ${term}`.trim();
}
