// One function per section: it takes the server's figures and returns elements.

import { drawable, inWords } from "./course.js";
import { amount, bar, h, money, number, rough, spent, table, wide } from "./dom.js";
import { count, exactly, milliseconds, percent, time, usd, zoned } from "./format.js";

const ADJECTIVES = { hour: "Hourly", day: "Daily", week: "Weekly", month: "Monthly", total: "Total" };
const TIERS = { small: "Small", large: "Large", hosted: "Hosted", idle: "Idle machines" };
const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
const quiet = (text) => h("p", { class: "quiet" }, text);

export function brief({ total, savings: [statement] }) {
  const tokens = total.input_tokens + total.cached_tokens + total.cache_write_tokens;
  const written = total.output_tokens + total.reasoning_tokens;
  const tile = (title, value, note) => h("div", { class: "tile" }, h("dt", {}, title), h("dd", {}, value), h("dd", { class: "note" }, note));
  const hits = total.requests ? total.cache_answers / total.requests : 0;
  const idle = Number(total.idle_usd) ? [money(total.idle_usd), " of which for idle machines"] : "every call has a price";
  const compared = statement?.saved_usd ?? null;
  return [
    tile("Spent", money(total.cost_usd), total.unpriced ? h("span", { class: "warn" }, "and ", number(total.unpriced), " calls without a price") : idle),
    tile("Saved", compared === null ? money(total.saved_usd) : money(compared), compared === null ? "by the cache" : `compared with ${statement.reference} for everything`),
    tile("Requests", number(total.requests), [number(total.attempts), " backend calls"]),
    tile("From the cache", percent(hits), [number(total.cache_answers), " answers"]),
    tile("Tokens bought", rough(tokens + written), [rough(tokens), " in, ", rough(written), " out"]),
    tile("Failed", number(total.failed), [number(total.interrupted), " interrupted, of ", number(total.attempts), " calls"]),
  ];
}

export function budgets({ budgets: list, names }) {
  if (!list.length) return quiet("The policy of this team sets no budget.");
  return list.map((budget) => (budget.standings.length === 1 && !["key", "end_user"].includes(budget.per) ? shared(budget) : each(budget, names)));
}

const TITLES = { key: "per key", end_user: "per end user" };
const nameOf = (budget) => [ADJECTIVES[budget.window], "budget", TITLES[budget.per] ?? ""].join(" ").trim();

function heading(budget, state, standing) {
  const unnamed = [budget.window, `${budget.window} per ${budget.per.replace("_", " ")}`].includes(budget.title);
  const own = unnamed ? nameOf(budget) : `${budget.title} (${nameOf(budget).toLowerCase()})`;
  return h("h3", {}, own, standing ? h("span", { class: `badge ${state}` }, standing) : null);
}

function shared(budget) {
  const [standing] = budget.standings;
  const { unit } = budget;
  const state = stateOf(budget, standing);
  const course = drawable(budget) ? h("div", { class: "course", role: "img", "aria-label": inWords(budget) }) : null;
  return h("article", { class: `card budget ${state}` },
    heading(budget, state, SAID[state]),
    h("p", { class: "spent" }, h("strong", {}, amount(String(standing[`spent_${unit}`]), unit)), " of ", amount(budget.limit, unit), ` (${percent(standing.used)})`),
    meter(budget, standing.used, state),
    ...forecast(budget, standing),
    course,
    quiet(windowOf(budget)));
}

const SAID = { over: "used up", soon: "will not last", near: "nearly used up", fine: "within budget" };

function stateOf({ unit, limit }, { used, forecast: ahead }) {
  if (used >= 1) return "over";
  if (ahead?.exhausted_at) return "soon";
  return used >= 0.8 ? "near" : "fine";
}

function meter(budget, used, state) {
  const element = h("div", {
    class: `meter ${state}`, role: "meter", "aria-label": `${nameOf(budget)}, spent`, "aria-valuemin": "0", "aria-valuemax": "100",
    "aria-valuenow": String(Math.round(Math.min(1, used) * 100)), "aria-valuetext": `${percent(used)} spent`,
  }, bar(used));
  if (budget.passed !== null) {
    const now = h("span", { class: "now", "aria-hidden": "true", title: `${percent(budget.passed)} of the time has passed` });
    now.style.left = `${budget.passed * 100}%`;
    element.append(now);
  }
  return element;
}

/** A budget per key or per end user. */
function each(budget, names) {
  const { unit } = budget;
  const rows = budget.standings;
  return h("article", { class: "card budget" },
    heading(budget),
    h("p", {}, "Each may spend ", amount(budget.limit, unit), "."),
    rows.length ? wide(nameOf(budget), table([
      [budget.per === "key" ? "Key" : "End user", (row) => names[row.subject] ?? row.subject],
      ["Spent", (row) => h("span", { class: "barred" }, bar(row.used, stateOf(budget, row)), amount(String(row[`spent_${unit}`]), unit)), "number"],
      ["Used", (row) => percent(row.used), "number"],
    ], rows)) : quiet("No spend yet."),
    quiet(windowOf(budget)));
}

function forecast(budget, { used, forecast: ahead }) {
  const { unit, timezone } = budget;
  if (used >= 1) return [h("p", {}, budget.hard ? EXHAUSTED[budget.on_exhausted] : "The limit is not enforced: the budget only warns.")];
  if (!ahead) return [h("p", {}, "Forecast: too early to tell.")];
  const lines = [];
  if (ahead[`total_${unit}`] !== null) {
    const [low, mid, high] = ["_low", "", "_high"].map((which) => amount(String(ahead[`total_${unit}${which}`]), unit));
    lines.push(h("p", { class: "ahead" }, "Forecast: ", mid, " at the end of the period (80% interval: ", low, " to ", high, ")."));
  }
  if (ahead.exhausted_at) {
    const [low, mid, high] = ["_low", "", "_high"].map((which) => ahead[`exhausted_at${which}`] && zoned(ahead[`exhausted_at${which}`], timezone));
    lines.push(h("p", { class: "warn" }, `Used up by ${mid} (80% interval: ${low ?? mid} to ${high ?? "after the end of the period"}).`));
  }
  return lines.length ? lines : [h("p", {}, "Forecast: it will not be used up within half a year.")];
}

const EXHAUSTED = {
  refuse: "Requests are refused.",
  downgrade: "Only answers that cost nothing are served.",
  finish: "Answers in progress are finished, then only those that cost nothing are served.",
  truncate: "Answers in progress are cut off, then only those that cost nothing are served.",
};

function windowOf(budget) {
  const rule = `Warns at ${budget.alerts.join(", ") || "no threshold"}.`;
  if (!budget.end) return `All time. ${rule}`;
  const [start, end] = [budget.start, budget.end].map((at) => zoned(at, budget.timezone));
  return `${start} to ${end}, ${budget.timezone}. ${rule}`;
}

const OVERHEAD = { failed: "failed attempts", escalated: "weak answers replaced", hedge: "second attempts of slow requests", shadow: "background comparisons" };

/** The same statement as `thriftgate usage --savings`, including losses. */
export function savings({ teams: [one], method }) {
  if (!one) return quiet("There were no requests in this period.");
  const how = h("details", {}, h("summary", {}, "How this is calculated"), h("ul", { class: "method" }, method.map((sentence) => h("li", {}, sentence))));
  if (one.saved_usd === null) {
    return [quiet("No backend of this team has a price to compare with, so savings are unknown."), how];
  }
  const lost = one.saved_usd.startsWith("-");
  const rows = [
    { name: `All ${count(one.requests)} answers from ${one.reference}`, usd: one.baseline_usd },
    { name: "Actual spend", usd: one.cost_usd },
    ...Object.entries(one.overhead_usd).filter(([, usd]) => Number(usd)).map(([name, usd]) => ({ name: `· of which ${OVERHEAD[name] ?? name}`, usd })),
    { name: lost ? "Lost" : "Saved", usd: one.saved_usd, sum: true },
  ];
  return [
    wide("Savings statement", table([
      ["Statement", (row) => (row.sum ? h("strong", {}, row.name) : row.name)],
      ["USD", (row) => (row.sum ? h("strong", { class: lost ? "warn" : "good" }, money(row.usd)) : money(row.usd)), "number"],
    ], rows)),
    one.unpriced ? quiet(`${plural(one.unpriced, "call")} without a price ${one.unpriced === 1 ? "is" : "are"} not included.`) : null,
    how,
  ].filter(Boolean);
}

/** Answers by tenth of difficulty, as columns and as a table. */
export function difficulty(steps) {
  if (!steps.length) return quiet("No request was graded in this period.");
  const sum = (step) => Object.values(step.answers).reduce((all, answers) => all + answers, 0);
  const most = Math.max(...steps.map(sum));
  const tiers = Object.keys(TIERS).filter((tier) => steps.some((step) => step.answers[tier]));
  const columns = h("div", { class: "columns", "aria-hidden": "true" }, steps.map((step) => {
    const stack = h("span", { class: "column", title: `${percent(step.difficulty)}: ${count(sum(step))}` }, [...tiers].reverse().map((tier) => {
      const part = h("span", { class: `part ${tier}` });
      part.style.height = `${(100 * (step.answers[tier] ?? 0)) / most}%`;
      return part;
    }));
    return h("span", { class: "step" }, stack, h("span", { class: "quiet" }, percent(step.difficulty)));
  }));
  return [columns,
    h("p", { class: "key" }, tiers.map((tier) => h("span", {}, h("span", { class: `swatch ${tier}`, "aria-hidden": "true" }), TIERS[tier]))),
    h("details", {}, h("summary", {}, "As a table"), wide("Answers by difficulty", table([
      ["Difficulty", (step) => percent(step.difficulty)],
      ...tiers.map((tier) => [TIERS[tier], (step) => number(step.answers[tier] ?? 0), "number"]),
    ], steps)))];
}

export function days({ rows, by }) {
  return wide("Spend as a table", table([
    [by === "hour" ? "Hour (UTC)" : "Day (UTC)", (row) => row[by]],
    ["Spent", spent, "number"],
    ["Requests", (row) => number(row.requests), "number"],
    ["From the cache", (row) => number(row.cache_answers), "number"],
    ["Saved by the cache", (row) => money(row.saved_usd), "number"],
    ["Failed", (row) => number(row.failed), "number"],
  ], [...rows].reverse()));
}

export function where({ rows, by, names }) {
  const most = Math.max(...rows.map((row) => Number(row.cost_usd)));
  const sorted = [...rows].sort((a, b) => Number(b.cost_usd) - Number(a.cost_usd) || b.requests - a.requests);
  const called = (row) => (row[by] === "(cache)" ? "from the cache" : names[row[by]] ?? (row[by] || "none"));
  const note = by === "tag" ? quiet("A request counts once for each of its tags.") : null;
  return [note, wide("Spend by group", table([
    [{ backend: "Backend", model: "Model", key: "Key", tag: "Tag" }[by], called],
    ["Spent", (row) => h("span", { class: "barred" }, bar(most ? Number(row.cost_usd) / most : 0), spent(row)), "number"],
    ["Requests", (row) => number(row.requests), "number"],
    ["Tokens in", (row) => rough(row.input_tokens + row.cached_tokens + row.cache_write_tokens), "number"],
    ["Tokens out", (row) => rough(row.output_tokens + row.reasoning_tokens), "number"],
    ["Failed", (row) => number(row.failed), "number"],
    ["Interrupted", (row) => number(row.interrupted), "number"],
  ], sorted))].filter(Boolean);
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
      ["Answers", (line) => number(line.answers), "number"],
      ["Share", (line) => percent(line.answers / all), "number"],
      ["Spent", spent, "number"],
    ], lines)),
    quiet(`${plural(escalated, "weak answer was", "weak answers were")} replaced by a stronger backend's before the client saw it.`)];
}

export function cache({ rows, wrong }) {
  if (!rows.length) return [quiet("There were no cache hits in this period."), wrongHits(wrong)].filter(Boolean);
  const unknown = rows.reduce((sum, row) => sum + row.unpriced, 0);
  return [
    wide("Cache answers by kind", table([
      ["Kind", (row) => ({ exact: "Same question", semantic: "Same meaning, verified", join: "Asked at the same time" })[row.kind] ?? row.kind],
      ["Answers", (row) => number(row.answers), "number"],
      ["Saved", (row) => money(row.saved_usd), "number"],
    ], rows)),
    unknown ? quiet(`The original cost of ${plural(unknown, "answer")} is unknown, so nothing is counted as saved.`) : null,
    wrongHits(wrong),
  ].filter(Boolean);
}

/** The share of wrong semantic hits, as measured by checks. */
function wrongHits(found) {
  if (!found?.hits) return null;
  const called = found.called_wrong ? ` ${plural(found.called_wrong, "hit was", "hits were")} reported as wrong by clients.` : "";
  if (!found.checked) return h("p", { class: "quiet", id: "wrong-hits" }, `None of ${plural(found.hits, "semantic hit")} has been checked yet.${called}`);
  const [low, high] = found.interval.map((share) => exactly(share));
  return h("p", { id: "wrong-hits" }, "Wrong hits measured: ",
    h("data", { value: String(found.wrong_of_lookups) }, exactly(found.wrong_of_lookups)), ` of semantic look-ups (95%: ${low} to ${high}), `,
    h("data", { value: String(found.wrong) }, count(found.wrong)), " of ", h("data", { value: String(found.checked) }, count(found.checked)),
    ` checked ${found.checked === 1 ? "hit" : "hits"} in ${count(found.lookups)} look-ups.${called}`);
}

export function latency(rows) {
  if (!rows.length) return quiet("No backend has given a complete answer in this period.");
  return wide("Time by backend", table([
    ["Backend", (row) => row.backend],
    ["First byte", (row) => milliseconds(row.first_p50_ms), "number"],
    ["Half within", (row) => milliseconds(row.p50_ms), "number"],
    ["95% within", (row) => milliseconds(row.p95_ms), "number"],
    ["Answers", (row) => number(row.answers), "number"],
  ], rows));
}

export function feedback(rows) {
  if (!rows.length) return quiet("No feedback yet. Applications send it to /v1/requests/ID/feedback.");
  return [wide("Feedback by backend", table([
    ["Backend", (row) => row.backend || "from the cache"],
    ["Mean score", (row) => h("span", { class: "barred" }, bar(row.score, "good"), percent(row.score)), "number"],
    ["Ratings", (row) => number(row.voices), "number"],
  ], rows)), quiet("All time.")];
}

const SEVERITIES = { info: "fine", warning: "near", critical: "over" };

export function alerts(rows) {
  if (!rows.length) return quiet("There are no alerts.");
  return h("ul", { class: "alerts" }, rows.map((row) => h("li", {},
    h("p", {}, h("span", { class: `badge ${SEVERITIES[row.severity]}` }, row.severity), " ", row.text),
    quiet([time(row.at), ...row.receivers.map(delivery), looked(row)].filter(Boolean).join(" · ")))));
}

const looked = ({ acknowledged }) => acknowledged && `acknowledged by ${acknowledged.by} at ${time(acknowledged.at)}`;

function delivery({ target, accepted, given_up: dead, tries, error }) {
  const receiver = target.replace("env:", "");
  if (accepted) return `sent to ${receiver}`;
  return `${receiver} ${dead ? "given up" : "not reached"} after ${plural(tries, "try", "tries")}${error ? `: ${error}` : ""}`;
}

export function simulated(rows) {
  return wide("Simulated traffic as a table", table([
    ["Model", (row) => row.model],
    ["Tier", (row) => TIERS[row.tier] ?? row.tier],
    ["Requests", (row) => number(row.requests), "number"],
    ["Tokens in", (row) => rough(row.input_tokens), "number"],
    ["Tokens out", (row) => rough(row.output_tokens), "number"],
    ["Hypothetical cost", (row) => (row.hypothetical_usd === null ? "–" : money(row.hypothetical_usd)), "number"],
    ["At the price of", (row) => row.hypothetical_like ?? "–"],
  ], rows));
}

/** Notices about spend that is missing in the figures, and other limits of them. */
export function notices({ total, by, mode }) {
  const lines = [];
  if (total.unpriced) {
    const names = by.backend.filter((row) => row.unpriced).map((row) => row.backend).join(", ");
    lines.push(h("p", { class: "notice warn" }, h("strong", {}, "Spend is incomplete. "),
      `${plural(total.unpriced, "call")} of ${names} used tokens without a known price. Their cost is unknown, not zero, and is in none of these figures. Set the backend's price in gateway.yaml.`));
  }
  if (total.checks) {
    lines.push(h("p", { class: "notice" }, money(total.checks_usd), ` of the spend is for background checks: ${plural(total.checks, "call")} whose answers were only compared with others.`));
  }
  if (total.estimated) {
    lines.push(h("p", { class: "notice" }, `The backend reported no token counts for ${plural(total.estimated, "call")}, so the gateway counted the tokens itself.`));
  }
  if (mode === "observe") {
    lines.push(h("p", { class: "notice" }, "This team's policy is in mode observe: routing decisions are recorded but not applied."));
  }
  return lines;
}

/** A sentence that describes the plot to screen readers. */
export function describe({ rows, by }) {
  const dearest = rows.reduce((most, row) => (Number(row.cost_usd) > Number(most.cost_usd) ? row : most));
  return `Bar chart of the cost of each of ${plural(rows.length, by)}; the most expensive is ${dearest[by]} with ${usd(dearest.cost_usd)}. The table below lists all.`;
}
