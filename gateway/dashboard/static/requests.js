// The most expensive requests. Opening one fetches its flight record.

import { h, money, table, wide } from "./dom.js";
import { decision, notes } from "./flight.js";
import { count, milliseconds, percent, time } from "./format.js";

const GONE = "There is no flight record. Records are kept for an hour and can be read with the request's key or an admin's key. The figures above are from the ledger.";
const NOT_ALLOWED = "To read its flight record, use a key that also has the scope inference.";

/** Keeps one element per request, so that opened requests stay open while figures refresh. */
export class Requests {
  /** `fetchFlight(id)` resolves to a flight record or rejects with an Error to show. */
  constructor(list, fetchFlight) {
    this.list = list;
    this.fetchFlight = fetchFlight;
    this.shown = new Map();
  }

  show(rows, names, mayOpen) {
    const kept = new Map(rows.map((row) => {
      const content = JSON.stringify(row); // a request may get another attempt while it is shown
      return [content, this.shown.get(content) ?? this.element(row, names, mayOpen)];
    }));
    this.shown = kept;
    const wanted = rows.length ? [...kept.values()] : [h("li", { class: "quiet" }, "No request had a cost in this period.")];
    if (wanted.length !== this.list.children.length || wanted.some((item, place) => item !== this.list.children[place])) {
      this.list.replaceChildren(...wanted);
    }
  }

  forget() {
    this.shown.clear();
    this.list.replaceChildren();
  }

  element(row, names, mayOpen) {
    const backends = row.attempts.map((attempt) => attempt.backend).join(" → ");
    const record = h("div", { class: "record", "aria-live": "polite" });
    const details = h("details", {},
      h("summary", {},
        h("span", { class: "cost" }, money(row.cost_usd)),
        h("span", { class: "what" }, row.model_asked === backends ? backends : `${row.model_asked} → ${backends}`),
        h("span", { class: "badge near", hidden: row.outcome === "ok" }, row.outcome),
        h("span", { class: "quiet when" }, time(row.at)),
        h("span", { class: "quiet tokens" }, `${count(row.input_tokens)} in, ${count(row.output_tokens)} out, ${milliseconds(row.duration_ms)}`)),
      facts(row, names), record);
    details.addEventListener("toggle", () => {
      if (details.open && !record.hasChildNodes()) this.open(row.id, record, mayOpen);
    });
    return h("li", {}, details);
  }

  async open(id, record, mayOpen) {
    if (!mayOpen) {
      record.replaceChildren(h("p", { class: "quiet" }, NOT_ALLOWED));
      return;
    }
    record.replaceChildren(h("p", { class: "quiet" }, "Fetching the flight record…"));
    try {
      const found = await this.fetchFlight(id);
      record.replaceChildren(...(found ? [h("h3", {}, "Flight record"), ...decision(found), notes(found)] : [h("p", { class: "quiet" }, GONE)]));
    } catch (error) {
      const again = h("button", { type: "button" }, "Try again");
      again.addEventListener("click", () => this.open(id, record, mayOpen));
      record.replaceChildren(h("p", { class: "warn" }, error.message), again);
    }
  }
}

function facts(row, names) {
  const tags = Object.entries(row.tags).map(([name, value]) => `${name}=${value}`).join(", ");
  const pairs = [
    ["Request", h("code", {}, row.id)],
    ["Key", names[row.key] ?? row.key],
    ["Tags", tags],
    ["Difficulty", row.difficulty === null ? "" : percent(row.difficulty)],
    ["Streamed", row.stream ? "yes" : "no"],
  ].filter(([, value]) => value !== "");
  return [
    h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    wide(`Attempts of ${row.id}`, table([
      ["Attempt", (attempt) => `${attempt.backend} (${attempt.model})`],
      ["Outcome", (attempt) => [attempt.kind, attempt.outcome, attempt.status, attempt.error].filter(Boolean).join(", ")],
      ["Trimmed", (attempt) => (attempt.trimmed_tokens ? `${count(attempt.trimmed_tokens)} tokens` : "–"), "number"],
      ["Cost", (attempt) => money(attempt.cost_usd), "number"],
      ["Price from", (attempt) => attempt.price_source || "–"],
    ], row.attempts)),
  ];
}
