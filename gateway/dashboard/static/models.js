// Spend by group, answers by tier and difficulty, times and health of backends.

import { bar, h, money, number, quiet, rough, spent, table, to } from "./dom.js";
import { count, milliseconds, percent, tenth } from "./format.js";
import { t } from "./i18n.js";
import { link } from "./route.js";
import { details, TIERS } from "./sections.js";

export const GROUPS = { model: "Model", backend: "Backend", key: "Key", end_user: "End user", session: "Session", tag: "Tag" };
export const LEVELS = ["key", "end_user", "session"];
export const NONE = "(none)"; // as a filter: requests without this value
const DEEPER = { key: "end_user", end_user: "session" };

/** Spend of each day or hour. */
export function days({ steps, by }) {
  return table(t("Spend as a table"), [
    [t(by === "hour" ? "Hour" : "Day"), (row) => row.at.replace("T", " ")],
    [t("Spent"), (row) => spent(row.line), "number"],
    [t("Requests"), (row) => number(row.line.requests), "number"],
    [t("From the cache"), (row) => number(row.line.cache_answers), "number"],
    [t("Saved by the cache"), (row) => money(row.line.saved_usd), "number"],
    [t("Failed"), (row) => number(row.line.failed), "number"],
  ], [...steps].reverse());
}

/** Spend by one of `GROUPS`. A row leads to the next smaller group, or to the requests. */
export function where({ rows, by, names, more, filters }) {
  const most = Math.max(0, ...rows.map((row) => Number(row.cost_usd)));
  const sorted = [...rows].sort((a, b) => Number(b.cost_usd) - Number(a.cost_usd) || b.requests - a.requests);
  const shown = (row) => (row[by] === "(cache)" ? t("from the cache") : names[row[by]] ?? (row[by] || t("none")));
  const leads = (row) => {
    if (by === "tag" || row[by] === "(cache)" || !(row[by] || LEVELS.includes(by))) return shown(row);
    const query = { ...filters, [by]: row[by] || NONE };
    return to(DEEPER[by] ? link("models", { ...query, by: DEEPER[by] }) : link("requests", query), shown(row));
  };
  return [
    by === "tag" ? quiet(t("A request counts once for each of its tags.")) : null,
    rows.length ? table(t("Spend by group"), [
      [t(GROUPS[by]), leads],
      [t("Spent"), (row) => h("span", { class: "barred" }, bar(most ? Number(row.cost_usd) / most : 0), spent(row)), "number"],
      [t("Calls"), (row) => number(row.attempts ?? row.calls - row.cache_answers), "number"],
      [t("From the cache"), (row) => number(row.cache_answers), "number"],
      ...(rows.some((row) => row.input_tokens !== undefined) ? [
        [t("Tokens in"), (row) => rough(row.input_tokens + row.cached_tokens + row.cache_write_tokens), "number"],
        [t("Tokens out"), (row) => rough(row.output_tokens + row.reasoning_tokens), "number"],
      ] : []),
      [t("Failed"), (row) => number(row.failed), "number"],
    ], sorted) : quiet(t("No spend yet.")),
    more ? quiet(t("Only the {0} groups with the highest spend are listed.", count(rows.length))) : null,
  ].filter(Boolean);
}

/** Answers by tenth of difficulty, as columns and as a table. */
export function difficulty(steps) {
  if (!steps.length) return quiet(t("No request was graded in this period."));
  const sum = (step) => Object.values(step.answers).reduce((all, answers) => all + answers, 0);
  const most = Math.max(...steps.map(sum));
  const tiers = Object.keys(TIERS).filter((tier) => steps.some((step) => step.answers[tier]));
  const columns = h("div", { class: "columns", "aria-hidden": "true" }, steps.map((step) => {
    const stack = h("span", { class: "column", title: `${tenth(step.difficulty)}: ${count(sum(step))}` }, [...tiers].reverse().map((tier) => {
      const part = h("span", { class: `part ${tier}` });
      part.style.height = `${(100 * (step.answers[tier] ?? 0)) / most}%`;
      return part;
    }));
    return h("span", { class: "step" }, stack, h("span", { class: "quiet" }, tenth(step.difficulty)));
  }));
  return [columns,
    h("p", { class: "key" }, tiers.map((tier) => h("span", {}, h("span", { class: `swatch ${tier}`, "aria-hidden": "true" }), t(TIERS[tier])))),
    details(t("As a table"), table(t("Answers by difficulty"), [
      [t("Difficulty"), (step) => tenth(step.difficulty)],
      ...tiers.map((tier) => [t(TIERS[tier]), (step) => number(step.answers[tier] ?? 0), "number"]),
    ], steps))];
}

export function mix({ tiers, answers }) {
  const lines = [
    ...tiers.map((tier) => ({ name: t(TIERS[tier.tier] ?? tier.tier), kind: tier.tier, ...tier })),
    { name: t("Cache"), kind: "cached", answers, cost_usd: "0" },
  ];
  const all = lines.reduce((sum, line) => sum + line.answers, 0);
  if (!all) return quiet(t("No request was answered in this period."));
  const stack = h("div", { class: "stack", "aria-hidden": "true" }, lines.filter((line) => line.answers).map((line) => {
    const part = h("span", { class: `part ${line.kind}` });
    part.style.flexGrow = String(line.answers);
    return part;
  }));
  const escalated = tiers.reduce((sum, tier) => sum + tier.escalated, 0);
  return [stack,
    table(t("Answers by tier"), [
      [t("Tier"), (line) => [h("span", { class: `swatch ${line.kind}`, "aria-hidden": "true" }), line.name]],
      [t("Answers"), (line) => number(line.answers), "number"],
      [t("Share"), (line) => percent(line.answers / all), "number"],
      [t("Spent"), spent, "number"],
    ], lines),
    quiet(t("Weak answers replaced by a stronger backend's: {0}.", count(escalated)))];
}

export function latency(rows) {
  if (!rows.length) return quiet(t("No backend has given a complete answer in this period."));
  return table(t("Time by backend"), [
    [t("Backend"), (row) => row.backend],
    [t("First byte"), (row) => milliseconds(row.first_p50_ms), "number"],
    [t("Half within"), (row) => milliseconds(row.p50_ms), "number"],
    [t("95% within"), (row) => milliseconds(row.p95_ms), "number"],
    [t("Answers"), (row) => number(row.answers), "number"],
  ], rows);
}

/** The present state of each backend. Admin keys also see its load. */
export function health({ rows, gone }) {
  const note = gone.length ? [quiet(t("Called in this period, but not configured for this key now: {0}.", gone.join(", ")))] : [];
  if (!rows.length) return [quiet(t("No backend is configured for this team.")), ...note];
  const loaded = rows.some((row) => "in_flight" in row);
  return [table(t("State of the backends"), [
    [t("Backend"), (row) => to(link("requests", { backend: row.backend }), row.backend)],
    [t("State"), (row) => h("span", { class: `badge ${row.state === "ok" ? "fine" : "over"}` }, row.state)],
    [t("Model"), (row) => row.model],
    [t("Tier"), (row) => [h("span", { class: `swatch ${row.tier}`, "aria-hidden": "true" }), t(TIERS[row.tier] ?? row.tier)]],
    [t("First byte"), (row) => milliseconds(row.first_byte_ms), "number"],
    ...(loaded ? [[t("In progress"), (row) => number(row.in_flight), "number"]] : []),
  ], rows), ...note];
}

export function simulated(rows) {
  return table(t("Simulated traffic as a table"), [
    [t("Model"), (row) => row.model],
    [t("Tier"), (row) => t(TIERS[row.tier] ?? row.tier)],
    [t("Requests"), (row) => number(row.requests), "number"],
    [t("Tokens in"), (row) => rough(row.input_tokens), "number"],
    [t("Tokens out"), (row) => rough(row.output_tokens), "number"],
    [t("Hypothetical cost"), (row) => (row.hypothetical_usd === null ? "–" : money(row.hypothetical_usd)), "number"],
    [t("At the price of"), (row) => row.hypothetical_like ?? "–"],
  ], rows);
}
