// The address says what is shown: #/page/parts?name=value.

export function current() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { parts, query: new URLSearchParams(query ?? "") };
}

export function address(parts, query) {
  const pairs = Object.entries(query ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  const text = new URLSearchParams(pairs.map(([key, value]) => [key, String(value)])).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

// Changes of the query alone leave no entry behind; changes of the page do (links).
export function note(changes) {
  const { parts, query } = current();
  const values = Object.fromEntries(query);
  history.replaceState(null, "", address(parts, { ...values, ...changes }));
}
