// Addresses of the page: #/VIEW/ID?team=…&period=…

export const VIEWS = ["overview", "budget", "requests", "request", "models", "teams"];
const CARRIED = ["team", "period"];

/** The view, the id and the parameters in the address. */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [view, id = ""] = path.split("/", 2);
  return { view: VIEWS.includes(view) ? view : "", id: decoded(id), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/** An address. Team and period are those of the present address unless `query` has others; null leaves one out. */
export function link(view, query = {}, id = "") {
  const { query: now } = here();
  const kept = Object.fromEntries(CARRIED.filter((name) => now[name]).map((name) => [name, now[name]]));
  const all = Object.entries({ ...kept, ...query }).filter(([, value]) => value !== null && value !== "");
  const text = new URLSearchParams(all).toString();
  return `#/${view}${id ? `/${encodeURIComponent(id)}` : ""}${text ? `?${text}` : ""}`;
}

export function go(view, query, id) {
  location.hash = link(view, query, id);
}
