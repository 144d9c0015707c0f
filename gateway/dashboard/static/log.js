// The log of requests: filters, pages, live tail, export.

import { get, save, words } from "./api.js";
import { h, money, quiet, table, to } from "./dom.js";
import { count, milliseconds, time } from "./format.js";
import { t } from "./i18n.js";
import { go, here, link } from "./route.js";
import { specific, TIERS, verdictOf } from "./sections.js";

const TAIL_MS = 2000;
export const FILTERS = ["model", "backend", "status", "cache", "key", "session", "end_user", "min_cost"];
const CACHED = ["exact", "semantic", "join"];
const CHOICES = { status: ["ok", "failed", "interrupted", "escalated"], cache: [...CACHED, "miss", "bypass", "off"] };

export class Log {
  constructor(form, place) {
    this.form = form;
    this.place = place;
    this.rows = [];
    this.timer = 0;
    this.asked = 0;
    for (const [name, values] of Object.entries(CHOICES)) form.elements[name].append(...values.map((value) => h("option", { value }, verdictOf(value))));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.filter();
    });
    for (const field of form.querySelectorAll("select")) field.addEventListener("change", () => this.filter());
    form.elements.live.addEventListener("change", () => this.follow());
    form.querySelector("#clear").addEventListener("click", () => go("requests", {}));
    form.querySelector("#export").addEventListener("click", () => this.save());
  }

  /** Show the first page for the filters in the address. */
  async open() {
    const { query } = here();
    for (const name of [...FILTERS, "sort"]) {
      const field = this.form.elements[name];
      if (field.tagName === "SELECT" && query[name] && ![...field.options].some((one) => one.value === query[name])) field.append(h("option", {}, query[name]));
      field.value = query[name] ?? (name === "sort" ? "newest" : "");
    }
    const asked = JSON.stringify(this.query());
    if (asked !== this.shown) this.place.replaceChildren();
    this.shown = asked;
    await this.load("");
    this.follow();
  }

  filter() {
    const chosen = Object.fromEntries(FILTERS.map((name) => [name, this.form.elements[name].value.trim()]));
    const sort = this.form.elements.sort.value;
    const before = location.hash;
    go("requests", { ...chosen, sort: sort === "newest" ? "" : sort });
    if (location.hash === before) this.open();
  }

  query() {
    const { query } = here();
    return { period: "month", ...Object.fromEntries(["team", "period", "sort", ...FILTERS].filter((name) => query[name]).map((name) => [name, query[name]])) };
  }

  async load(after) {
    const mine = ++this.asked;
    try {
      const found = await get("dashboard/requests", { ...this.query(), after });
      if (mine !== this.asked) return;
      this.rows = after ? [...this.rows, ...found.requests] : found.requests;
      this.names = { ...this.names, ...found.key_names };
      this.show(found);
    } catch (error) {
      if (mine === this.asked) this.place.replaceChildren(h("p", { class: "notice bad" }, words(error)));
    }
  }

  show({ next, own }) {
    const content = JSON.stringify([this.rows, next]);
    if (content === this.content && this.place.hasChildNodes()) return;
    this.content = content;
    const more = next ? h("button", { type: "button" }, t("More")) : null;
    more?.addEventListener("click", () => {
      this.form.elements.live.checked = false;
      this.load(next);
    });
    this.place.replaceChildren(...[
      own ? quiet(t("This key sees its own requests only.")) : null,
      this.rows.length ? log(this.rows, this.names, here().query.sort === "cost") : h("p", {}, t("No request matches.")),
      more,
    ].filter(Boolean));
  }

  follow() {
    clearInterval(this.timer);
    if (this.form.elements.live.checked) this.timer = setInterval(() => document.hidden || this.load(""), TAIL_MS);
  }

  async save() {
    try {
      await save("dashboard/requests", { ...this.query(), format: "csv" }, "requests.csv");
    } catch (error) {
      this.place.prepend(h("p", { class: "notice bad" }, words(error)));
    }
  }

  close() {
    clearInterval(this.timer);
  }

  forget() {
    this.close();
    this.asked++;
    this.rows = [];
    this.names = {};
    this.place.replaceChildren();
    this.form.reset();
  }
}

const STATES = { ok: "fine", interrupted: "near", escalated: "near", failed: "over" };

export const verdict = (row) => h("span", { class: `badge ${STATES[row.outcome] ?? ""}` }, t(row.outcome));

/** `dear`: whether the rows also say why they cost what they did. */
function log(rows, names, dear) {
  return table(t("Requests"), [
    [t("Time"), (row) => to(link("request", {}, row.id), time(row.at))],
    [t("Model"), (row) => [served(row), dear ? quiet(specific(row)) : null], dear ? "partly" : null],
    [t("Status"), (row) => [verdict(row), row.simulated ? h("span", { class: "badge quiet" }, t("simulated")) : null, row.error ? h("span", { class: "quiet" }, ` ${row.error}`) : null]],
    [t("Cache"), (row) => (CACHED.includes(row.cache) ? h("span", { class: "badge fine" }, verdictOf(row.cache)) : t(row.cache))],
    [t("Tokens"), (row) => `${count(row.input_tokens)} + ${count(row.output_tokens)}`, "number"],
    [t("Time taken"), (row) => milliseconds(row.duration_ms), "number"],
    [t("Cost"), (row) => (row.unpriced && !row.simulated ? h("span", { class: "warn" }, t("no price")) : money(row.cost_usd)), "number"],
    [t("Key"), (row) => names[row.key] ?? row.key],
  ], rows);
}

/** The model that was asked for, and the backends that were called. */
export function served(row) {
  const backends = row.attempts.map((attempt) => attempt.backend).filter(Boolean).join(" → ") || t("from the cache");
  return row.model_asked === backends ? backends : `${row.model_asked} → ${backends}`;
}

export const tierOf = (name) => t(TIERS[name] ?? name);
