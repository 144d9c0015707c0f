// One request: its phases as a picture, the decision in words, attempts and prices.

import { h, money, quiet, spoken, table, to } from "./dom.js";
import { decision, notes } from "./flight.js";
import { count, grade, milliseconds, time } from "./format.js";
import { t } from "./i18n.js";
import { served, tierOf, verdict } from "./log.js";
import { link } from "./route.js";
import { cacheWords, details, reasons } from "./sections.js";

/** `found`: the answer of /dashboard/requests/ID. */
export function request({ request: row, flight, sentences, phases, prices, key_names: names }) {
  const cost = flight.cost_usd === null ? t("no price") : money(flight.cost_usd);
  return [
    h("h2", {}, t("Request"), " ", h("code", {}, flight.id)),
    h("p", { class: "headline" }, h("strong", {}, cost), " ", row ? verdict(row) : null, " ", row ? served(row) : flight.model),
    row ? h("p", {}, reasons(row)) : null,
    facts(flight, names),
    h("section", {}, h("h3", {}, t("Time line")), timeline(phases, flight)),
    h("section", {}, h("h3", {}, t("In words")), h("ul", { class: "words" }, sentences.slice(1).map((line) => h("li", { class: line.startsWith("  ") ? "sub" : null }, spoken(line.trim()))))),
    flight.route ? h("section", {}, h("h3", {}, t("Why this backend")), decision(flight)) : null,
    flight.attempts.length ? h("section", {}, h("h3", {}, t("Calls and prices")), attempts(flight, prices)) : null,
    flight.notes.length ? details(t("Notes of the gateway"), notes(flight)) : null,
  ].filter(Boolean);
}

function facts(flight, names) {
  const tags = Object.entries(flight.tags).map(([name, value]) => `${name}=${value}`).join(", ");
  const pairs = [
    [t("Time"), time(flight.at * 1000)],
    [t("Key"), to(link("requests", { key: flight.key }), names[flight.key] ?? flight.key)],
    [t("Session"), flight.session && to(link("requests", { session: flight.session }), flight.session)],
    [t("Cache"), cacheWords(flight.cache)],
    [t("Saved"), flight.saved_usd && Number(flight.saved_usd) ? money(flight.saved_usd) : ""],
    [t("Difficulty"), flight.difficulty === null ? "" : grade(flight.difficulty)],
    [t("Trimmed"), flight.trimmed_tokens ? t("{0} tokens", count(flight.trimmed_tokens)) : ""],
    [t("Streamed"), t(flight.stream ? "yes" : "no")],
    [t("Agent"), flight.agent],
    [t("Tags"), tags],
  ].filter(([, value]) => value);
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** One line per call: waiting for its first byte, then answering. */
function timeline(phases, flight) {
  const end = Math.max(flight.duration_ms ?? 0, ...phases.map((one) => one.end_ms));
  if (!end) return h("p", {}, t(flight.attempts.length ? "Its times are not known." : "It was answered from the cache; no backend was called."));
  const lines = phases.length ? phases : [{ backend: t("from the cache"), kind: "", outcome: "ok", start_ms: 0, first_byte_ms: null, end_ms: end }];
  const part = (kind, from, until) => {
    const element = h("span", { class: `phase ${kind}` });
    element.style.left = `${(100 * from) / end}%`;
    element.style.width = `${Math.max(0.4, (100 * (until - from)) / end)}%`;
    return element;
  };
  return [
    h("ol", { class: "life" }, lines.map((one) => {
      const first = Math.min(one.first_byte_ms ?? one.end_ms, one.end_ms);
      const words = [one.kind, t(one.outcome)].filter(Boolean).join(", ");
      return h("li", {},
        h("span", { class: "who" }, one.backend, " ", h("span", { class: "quiet" }, words)),
        h("span", { class: "track", "aria-hidden": "true" }, part("waits", one.start_ms, first), part(one.outcome, first, one.end_ms)),
        h("span", { class: "quiet when" }, one.after_another ? `${t("after the call before")}: ` : "", one.first_byte_ms === null ? t("{0} to {1}", milliseconds(one.start_ms), milliseconds(one.end_ms)) : t("starts at {0}, first byte {1}, end {2}", milliseconds(one.start_ms), milliseconds(first), milliseconds(one.end_ms))));
    })),
    quiet(h("span", { class: "swatch waits" }), t("waiting for the first byte"), " ", h("span", { class: "swatch ok" }), t("answering")),
  ];
}

function attempts(flight, prices) {
  const price = (place) => prices[place] ?? { prices: "", source: "" };
  return table(t("Calls and prices"), [
    [t("Backend"), (one) => `${one.backend} (${one.model}, ${tierOf(one.tier)})`],
    [t("Outcome"), (one) => [one.kind, t(one.outcome), one.status, one.error].filter(Boolean).join(", ")],
    [t("Tokens"), (one) => `${count(one.input_tokens)} + ${count(one.output_tokens)}`, "number"],
    [t("Trimmed"), (one) => (one.trimmed_tokens ? count(one.trimmed_tokens) : "–"), "number"],
    [t("Cost"), (one) => money(one.cost_usd), "number"],
    [t("Price from"), (one) => [price(flight.attempts.indexOf(one)).source || "–", one.unpriced ? h("span", { class: "warn" }, ` ${one.unpriced}`) : null]],
  ], flight.attempts);
}
