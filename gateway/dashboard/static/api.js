// Calls the gateway with the user's key, which stays in this tab.

import { language, locale, said, t } from "./i18n.js";

const KEPT = "thriftgate-key";
const PATIENCE_MS = 40_000;
const ANSWER_MS = 300_000;
let key = sessionStorage.getItem(KEPT) ?? "";

export class Refused extends Error {
  constructor(status, message, id) {
    super(message);
    this.status = status;
    this.id = id;
  }
}

export const known = () => key !== "";

export function remember(typed) {
  key = typed;
  sessionStorage.setItem(KEPT, key);
}

export function forgetKey() {
  key = "";
  sessionStorage.removeItem(KEPT); // the chosen language stays
}

async function call(path, { headers, ...options }) {
  const response = await fetch(path, {
    headers: { authorization: `Bearer ${key}`, "accept-language": locale, ...headers }, cache: "no-store", credentials: "omit", redirect: "error", ...options,
  });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new Refused(response.status, body?.error?.message ?? t("The gateway answered {0}.", response.status), response.headers.get("x-request-id"));
}

const timed = (signal, limit) => AbortSignal.any([...(signal ? [signal] : []), AbortSignal.timeout(limit)]);

/** `path` with the parameters of `query` that have a value. */
export function address(path, query) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return text ? `${path}?${text}` : path;
}

/** Objects inherit no names: a team may be called "constructor". */
const bare = (_, value) => (value && typeof value === "object" && !Array.isArray(value) ? Object.setPrototypeOf(value, null) : value);

export async function get(path, query = {}, signal) {
  const found = JSON.parse(await (await call(address(path, query), { signal: timed(signal, PATIENCE_MS) })).text(), bare);
  Object.assign(said, found.said);
  return found;
}

export async function post(path, query) {
  return (await call(address(path, query), { method: "POST", signal: timed(null, PATIENCE_MS) })).json();
}

/** Fetch a file and let the browser save it. A link alone would not send the key. */
export async function save(path, query, name) {
  const response = await call(address(path, query), { signal: timed(null, ANSWER_MS) });
  const url = URL.createObjectURL(await response.blob());
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

const REFUSED = { 401: "This key is not valid.", 403: "This key may not see that.", 404: "There is no such request for this key." };

/** A problem in the page's language; the server's own words are English. */
export function words(error) {
  if (!(error instanceof Refused)) return t("The gateway does not answer.");
  return language !== "en" && REFUSED[error.status] ? t(REFUSED[error.status]) : error.message;
}

/** Ask as a stream. `heard(text)` gets the answer so far. Times are in milliseconds, from sending on. */
export async function ask(question, headers, signal, heard) {
  const began = performance.now();
  try {
    const response = await call("v1/chat/completions", {
      method: "POST", body: JSON.stringify({ ...question, stream: true }), headers: { "content-type": "application/json", ...headers },
      signal: timed(signal, ANSWER_MS),
    });
    const found = { id: response.headers.get("x-request-id"), answer: "", first: null };
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const lines = (rest + part.value).split("\n");
      rest = lines.pop();
      for (const line of lines.filter((one) => one.startsWith("data: {"))) {
        const event = JSON.parse(line.slice(6));
        if (event.error) throw new Refused(0, event.error.message, found.id);
        const text = event.choices?.[0]?.delta?.content;
        if (!text) continue;
        found.first ??= performance.now() - began;
        found.answer += text;
        heard(found.answer);
      }
    }
    return { ...found, took: performance.now() - began, answer: found.answer || t("(no text)") };
  } catch (error) {
    throw error instanceof Refused ? error : new Error(words(error));
  }
}

/** The flight record of a request of this key; null if there is none. */
export async function fetchFlight(id) {
  try {
    return await get(`v1/requests/${encodeURIComponent(id)}`);
  } catch (error) {
    if (error.status === 404) return null;
    throw error instanceof Refused ? error : new Error(words(error));
  }
}
