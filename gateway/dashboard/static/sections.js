// One function per section: the server's figures in, elements out.

import { bar, h, money, spent, table, wide } from "./dom.js";
import { count, milliseconds, percent, short, time, usd, zoned } from "./format.js";

const ADJECTIVES = { hour: "Hourly", day: "Daily", week: "Weekly", month: "Monthly", total: "Total" };
const TIERS = { small: "Small", large: "Large", hosted: "Hosted" };
const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
const quiet = (text) => h("p", { class: "quiet" }, text);

export function brief({ total }) {
  const tokens = total.input_tokens + total.cached_tokens + total.cache_write_tokens;
  const written = total.output_tokens + total.reasoning_tokens;
  const tile = (title, value, note) => h("div", { class: "tile" }, h("dt", {}, title), h("dd", {}, value), h("dd", { class: "note" }, note));
  const hits = total.requests ? total.cache_answers / total.requests : 0;
  return [
    tile("Spent", money(total.cost_usd), total.unpriced ? h("span", { class: "warn" }, `and ${plural(total.unpriced, "call")} without a price`) : "every call has its price"),
    tile("Requests", count(total.requests), plural(total.attempts, "call of a backend", "calls of backends")),
    tile("From the cache", percent(hits), plural(total.cache_answers, "answer")),
    tile("Saved by the cache", money(total.saved_usd), "what these answers cost before"),
    tile("Tokens bought", short(tokens + written), `${short(tokens)} in, ${short(written)} out`),
    tile("Failed", count(total.failed), `${count(total.interrupted)} interrupted, of ${plural(total.attempts, "call")}`),
  ];
}

export function budgets(list) {
  if (!list.length) return quiet("The policy of this team sets no budget.");
  return list.map((budget) => {
    const state = budget.used >= 1 ? "over" : budget.used >= 0.8 || budget.forecast_used > 1 ? "near" : "fine";
    const name = `${ADJECTIVES[budget.window]} budget`;
    const meter = h("div", {
      class: `meter ${state}`, role: "meter", "aria-label": `${name}, spent`, "aria-valuemin": "0", "aria-valuemax": "100",
      "aria-valuenow": String(Math.round(Math.min(1, budget.used) * 100)), "aria-valuetext": `${percent(budget.used)} spent`,
    }, bar(budget.used));
    if (budget.passed !== null) {
      const now = h("span", { class: "now", "aria-hidden": "true", title: `${percent(budget.passed)} of the time has passed` });
      now.style.left = `${budget.passed * 100}%`;
      meter.append(now);
    }
    return h("article", { class: `card budget ${state}` },
      h("h3", {}, name, h("span", { class: `badge ${state}` }, standing(budget))),
      h("p", { class: "spent" }, h("strong", {}, money(budget.spent_usd)), " of ", money(budget.limit_usd), ` (${percent(budget.used)})`),
      meter,
      forecast(budget),
      quiet(windowOf(budget)));
  });
}

function standing(budget) {
  if (budget.used >= 1) return "used up";
  if (budget.forecast_used > 1) return "will not last";
  return budget.used >= 0.8 ? "nearly used up" : "within";
}

function forecast(budget) {
  if (budget.used >= 1) {
    return h("p", {}, budget.on_exhausted === "refuse" ? "Requests that cost money are refused." : "Only answers that cost nothing are served.");
  }
  if (budget.forecast_usd === null) {
    return h("p", {}, budget.end ? "Forecast: too early in the window to tell." : "This budget has no end, so there is no forecast.");
  }
  return h("p", {}, "Forecast if spending goes on in a straight line: ", money(budget.forecast_usd), ` (${percent(budget.forecast_used)})`);
}

function windowOf(budget) {
  const rule = `Warns at ${budget.alerts.join(", ") || "no threshold"}.`;
  if (!budget.end) return `All time. ${rule}`;
  const [start, end] = [budget.start, budget.end].map((at) => zoned(at, budget.timezone));
  return `${start} to ${end}, ${budget.timezone}. ${rule}`;
}

export function days(rows) {
  return wide("Days as a table", table([
    ["Day (UTC)", (row) => row.day],
    ["Spent", spent, "number"],
    ["Requests", (row) => count(row.requests), "number"],
    ["From the cache", (row) => count(row.cache_answers), "number"],
    ["Saved", (row) => money(row.saved_usd), "number"],
    ["Failed", (row) => count(row.failed), "number"],
  ], [...rows].reverse()));
}

export function where({ rows, by, names }) {
  const most = Math.max(...rows.map((row) => Number(row.cost_usd)));
  const sorted = [...rows].sort((a, b) => Number(b.cost_usd) - Number(a.cost_usd) || b.requests - a.requests);
  const called = (row) => (row[by] === "(cache)" ? "from the cache" : names[row[by]] ?? row[by]);
  return wide("Spend by group", table([
    [{ backend: "Backend", model: "Model", key: "Key" }[by], called],
    ["Spent", (row) => h("span", { class: "barred" }, bar(most ? Number(row.cost_usd) / most : 0), spent(row)), "number"],
    ["Requests", (row) => count(row.requests), "number"],
    ["Tokens in", (row) => short(row.input_tokens + row.cached_tokens + row.cache_write_tokens), "number"],
    ["Tokens out", (row) => short(row.output_tokens + row.reasoning_tokens), "number"],
    ["Failed", (row) => count(row.failed), "number"],
    ["Interrupted", (row) => count(row.interrupted), "number"],
  ], sorted));
}

export function mix({ tiers, answers }) {
  const lines = [
    ...tiers.map((tier) => ({ name: TIERS[tier.tier] ?? tier.tier, kind: tier.tier, ...tier })),
    { name: "Cache", kind: "cached", answers, cost_usd: "0" },
  ];
  const all = lines.reduce((sum, line) => sum + line.answers, 0);
  if (!all) return quiet("No request was answered in this period.");
  const stack = h("div", { class: "stack", "aria-hidden": "true" }, lines.filter((line) => line.answers).map((line) => {
    const part = h("span", { class: `part ${line.kind}` });
    part.style.flexGrow = String(line.answers);
    return part;
  }));
  const escalated = tiers.reduce((sum, tier) => sum + tier.escalated, 0);
  return [stack,
    wide("Answers by tier", table([
      ["Tier", (line) => [h("span", { class: `swatch ${line.kind}`, "aria-hidden": "true" }), line.name]],
      ["Answers", (line) => count(line.answers), "number"],
      ["Share", (line) => percent(line.answers / all), "number"],
      ["Spent", spent, "number"],
    ], lines)),
    quiet(`${plural(escalated, "weak answer was", "weak answers were")} replaced by a stronger backend's before the client saw it.`)];
}

export function cache(rows) {
  if (!rows.length) return quiet("Nothing was asked again in this period.");
  const unknown = rows.reduce((sum, row) => sum + row.unpriced, 0);
  return [
    wide("Cache answers by kind", table([
      ["Kind", (row) => ({ exact: "Same question", semantic: "Same meaning, verified", join: "Asked at the same time" })[row.kind] ?? row.kind],
      ["Answers", (row) => count(row.answers), "number"],
      ["Saved", (row) => money(row.saved_usd), "number"],
    ], rows)),
    unknown ? quiet(`For ${plural(unknown, "answer")} nobody knows what it cost at first; nothing is counted as saved.`) : null,
  ].filter(Boolean);
}

export function latency(rows) {
  if (!rows.length) return quiet("No backend has given a whole answer in this period.");
  return wide("Time by backend", table([
    ["Backend", (row) => row.backend],
    ["Half within", (row) => milliseconds(row.p50_ms), "number"],
    ["95% within", (row) => milliseconds(row.p95_ms), "number"],
    ["Answers", (row) => count(row.answers), "number"],
  ], rows));
}

export function feedback(rows) {
  if (!rows.length) return quiet("No feedback yet. Applications send it to /v1/requests/ID/feedback.");
  return [wide("Feedback by backend", table([
    ["Backend", (row) => row.backend || "from the cache"],
    ["Mean score", (row) => h("span", { class: "barred" }, bar(row.score, "good"), percent(row.score)), "number"],
    ["Voices", (row) => count(row.voices), "number"],
  ], rows)), quiet("Of all time.")];
}

export function alerts(rows) {
  if (!rows.length) return quiet("No budget has raised an alert.");
  return h("ul", { class: "alerts" }, rows.map((row) => h("li", {},
    h("p", {}, h("span", { class: `badge ${row.threshold === "100%" ? "over" : "near"}` }, row.threshold), " ", row.text),
    quiet([time(row.at), ...row.receivers.map(delivery)].join(" · ")))));
}

function delivery({ target, accepted, tries, error }) {
  const receiver = target.replace(/^env:/, "");
  return accepted ? `told ${receiver}` : `${receiver} not reached yet after ${plural(tries, "try", "tries")}${error ? `: ${error}` : ""}`;
}

export function simulated(rows) {
  return wide("Simulated traffic as a table", table([
    ["Model", (row) => row.model],
    ["Tier", (row) => TIERS[row.tier] ?? row.tier],
    ["Requests", (row) => count(row.requests), "number"],
    ["Tokens in", (row) => short(row.input_tokens), "number"],
    ["Tokens out", (row) => short(row.output_tokens), "number"],
    ["Hypothetical cost", (row) => (row.hypothetical_usd === null ? "–" : money(row.hypothetical_usd)), "number"],
    ["At the price of", (row) => row.hypothetical_like ?? "–"],
  ], rows));
}

/** What is not in the figures, or what the reader should know before believing them. */
export function notices({ total, by, mode }) {
  const said = [];
  if (total.unpriced) {
    const names = by.backend.filter((row) => row.unpriced).map((row) => row.backend).join(", ");
    said.push(h("p", { class: "notice warn" }, h("strong", {}, "Spend is incomplete. "),
      `${plural(total.unpriced, "call")} of ${names} used tokens that nobody knows the price of. Their cost is unknown, not zero, and in none of these figures. Give the backend a price in gateway.yaml.`));
  }
  if (total.estimated) {
    said.push(h("p", { class: "notice" }, `The backend did not say how many tokens ${plural(total.estimated, "call")} used; the gateway counted them itself.`));
  }
  if (mode === "observe") {
    said.push(h("p", { class: "notice" }, "This team's policy is in mode observe: requests are served as asked, decisions are only recorded."));
  }
  return said;
}

/** The plot in a sentence, for those who do not see it. */
export function inWords(rows) {
  const dearest = rows.reduce((most, row) => (Number(row.cost_usd) > Number(most.cost_usd) ? row : most));
  return `Bars of what each of ${plural(rows.length, "day")} cost; the dearest is ${dearest.day} with ${usd(dearest.cost_usd)}. The table below has them all.`;
}
