// Budgets, savings, cache, feedback, alerts: one function per section, from the server's figures to elements.

import { drawable, inWords } from "./chart.js";
import { amount, bar, h, money, number, quiet, spoken, table, tile, to } from "./dom.js";
import { count, day, exactly, grade, inUnit, milliseconds, percent, time, zoned } from "./format.js";
import { language, t, tn } from "./i18n.js";
import { link } from "./route.js";

const ADJECTIVES = { hour: "Hourly budget", day: "Daily budget", week: "Weekly budget", month: "Monthly budget", total: "Total budget" };
const TITLES = { key: "per key", end_user: "per end user", session: "per session" };
const SAID = { over: "used up", soon: "will not last", near: "nearly used up", fine: "within budget", early: "too early to tell" };
export const TIERS = { small: "Small", large: "Large", hosted: "Hosted", idle: "Idle machines" };
export const details = (title, ...children) => h("details", {}, h("summary", {}, title), ...children);

export function totals({ total, savings }) {
  const statement = savings?.teams[0];
  const tokens = total.input_tokens + total.cached_tokens + total.cache_write_tokens;
  const written = total.output_tokens + total.reasoning_tokens;
  const hits = total.requests ? total.cache_answers / total.requests : 0;
  const idle = Number(total.idle_usd) ? tn("{0} of which for idle machines", money(total.idle_usd)) : t("every call has a price");
  const compared = statement?.net_saved_usd ?? null;
  return [
    tile(t("Spent"), money(total.cost_usd), total.unpriced ? h("span", { class: "warn" }, tn("and {0} calls without a price", number(total.unpriced))) : idle),
    tile(t("Saved"), compared === null ? money(total.saved_usd) : money(compared), compared === null ? t("by the cache") : t("compared with {0} for everything", statement.reference)),
    tile(t("Requests"), number(total.requests), tn("{0} backend calls", number(total.attempts))),
    tile(t("From the cache"), percent(hits), tn("{0} answers", number(total.cache_answers))),
    tile(t("Tokens bought"), number(tokens + written), tn("{0} in, {1} out", number(tokens), number(written))),
    tile(t("Failed"), number(total.failed), tn("{0} interrupted, of {1} calls", number(total.interrupted), number(total.attempts))),
  ];
}

export function budgets({ budgets: list, names }) {
  if (!list.length) return quiet(t("The policy of this team sets no budget."));
  return list.map((budget) => (single(budget) ? shared(budget) : each(budget, names)));
}

export const single = (budget) => budget.standings.length === 1 && !(budget.per in TITLES);
export const nameOf = (budget) => [t(ADJECTIVES[budget.window]), TITLES[budget.per] ? t(TITLES[budget.per]) : ""].join(" ").trim();

function heading(budget, state) {
  const unnamed = [budget.window, `${budget.window} per ${budget.per.replace("_", " ")}`].includes(budget.title);
  const own = unnamed ? nameOf(budget) : `${budget.title} (${nameOf(budget).toLowerCase()})`;
  return h("h3", {}, own, state ? h("span", { class: `badge ${state}` }, t(SAID[state])) : null);
}

function shared(budget) {
  const [standing] = budget.standings;
  const { unit } = budget;
  const state = stateOf(standing);
  return h("article", { class: `card budget ${state}` },
    heading(budget, state),
    h("p", { class: "spent" }, tn("{0} of {1}", h("strong", {}, amount(String(standing[`spent_${unit}`]), unit)), amount(budget.limit, unit)), ` (${percent(standing.used)})`),
    meter(budget, standing.used, state),
    forecast(budget, standing),
    drawable(budget) ? h("div", { class: "course", role: "img", "aria-label": inWords(budget) }) : null,
    quiet(windowOf(budget)));
}

/** The state of a budget, from its standing. */
export function stateOf({ used, forecast: ahead, early }) {
  if (used >= 1) return "over";
  if (ahead?.exhausted_at && !early) return "soon";
  return used >= 0.8 ? "near" : early ? "early" : "fine";
}

const RANK = ["over", "soon", "near", "fine", "early"];
/** Order of standings: the worst first; those with too little history last. */
export const worse = (a, b) => RANK.indexOf(stateOf(a)) - RANK.indexOf(stateOf(b)) || b.used - a.used;

function meter(budget, used, state) {
  const element = h("div", {
    class: `meter ${state}`, role: "meter", "aria-label": nameOf(budget), "aria-valuemin": "0", "aria-valuemax": "100",
    "aria-valuenow": String(Math.round(Math.min(1, used) * 100)), "aria-valuetext": t("{0} spent", percent(used)),
  }, bar(used));
  if (budget.passed !== null) {
    const now = h("span", { class: "now", "aria-hidden": "true", title: t("{0} of the time has passed", percent(budget.passed)) });
    now.style.left = `${budget.passed * 100}%`;
    element.append(now);
  }
  return element;
}

/** A budget per key, end user or session. */
function each(budget, names) {
  const { unit, standings: rows } = budget;
  return h("article", { class: "card budget" },
    heading(budget),
    h("p", {}, tn("Limit {0}: {1}", t(TITLES[budget.per]), amount(budget.limit, unit))),
    rows.length ? table(nameOf(budget), [
      [t({ key: "Key", end_user: "End user", session: "Session" }[budget.per]), (row) => to(link("requests", { [budget.per]: row.subject }), names[row.subject] ?? row.subject)],
      [t("Spent"), (row) => h("span", { class: "barred" }, bar(row.used, stateOf(row)), amount(String(row[`spent_${unit}`]), unit)), "number"],
      [t("Used"), (row) => percent(row.used), "number"],
    ], rows) : quiet(t("No spend yet.")),
    quiet(windowOf(budget)));
}

export function forecast(budget, { used, forecast: ahead, early }) {
  const { unit, timezone } = budget;
  if (used >= 1) return [h("p", {}, t(budget.hard ? EXHAUSTED[budget.on_exhausted] : "The limit is not enforced: the budget only warns."))];
  if (!ahead) return [h("p", {}, t("Forecast: too early to tell."))];
  const lines = [];
  if (ahead[`total_${unit}`] !== null) {
    const three = ["", "_low", "_high"].map((which) => amount(String(ahead[`total_${unit}${which}`]), unit));
    lines.push(h("p", { class: "ahead" }, tn("Forecast: {0} at the end of the period (80% interval: {1} to {2}).", ...three)));
  }
  if (ahead.exhausted_at && !early) {
    const [low, mid, high] = ["_low", "", "_high"].map((which) => ahead[`exhausted_at${which}`] && zoned(ahead[`exhausted_at${which}`], timezone));
    lines.push(h("p", { class: "warn" }, t("Will be used up by {0} (80% interval: {1} to {2}).", mid, low ?? mid, high ?? t("after the end of the period"))));
  }
  return lines.length ? lines : [h("p", {}, t(early ? "Forecast: too early to tell." : "Forecast: it will not be used up within half a year."))];
}

const EXHAUSTED = {
  refuse: "Requests are refused.",
  downgrade: "Only answers that cost nothing are served.",
  finish: "Answers in progress are finished, then only those that cost nothing are served.",
  truncate: "Answers in progress are cut off, then only those that cost nothing are served.",
};

/** When a budget warns: a share of its limit, or `forecast`. */
const level = (threshold) => (threshold.endsWith("%") ? exactly(parseFloat(threshold) / 100) : t(threshold));

function windowOf(budget) {
  const rule = budget.alerts.length ? t("Warns at {0}.", budget.alerts.map(level).join(", ")) : "";
  if (!budget.end) return `${t("All time.")} ${rule}`;
  const [start, end] = [budget.start, budget.end].map((at) => zoned(at, budget.timezone));
  return `${t("{0} to {1}", start, end)}, ${budget.timezone}. ${rule}`;
}

export const unpriced = () => t("No backend of this team has a price to compare with, so savings are unknown.");
export const byMeans = (one) => tn("{0} by answers from the cache; the rest by cheaper backends, prompt caches and trimmed context together.", money(one.by_cache_usd));
const OVERHEAD = { failed: "failed attempts", escalated: "weak answers replaced", hedge: "second attempts of slow requests", shadow: "background comparisons", keep_alive: "prompts kept in caches" };

/** The same statement as `thriftgate savings`, including losses. */
export function savings({ teams: [one], method }) {
  if (!one) return quiet(t("There were no requests in this period."));
  const how = details(t("How this is calculated"), h("ul", { class: "method", lang: "en" }, method.map((sentence) => h("li", {}, sentence))));
  if (one.saved_usd === null) return [quiet(unpriced()), how];
  const lost = one.net_saved_usd.startsWith("-");
  const rows = [
    { name: t("All {0} answers from {1}", count(one.requests), one.reference), usd: one.baseline_usd },
    { name: t("Actual spend"), usd: one.cost_usd },
    ...Object.entries(one.overhead_usd).filter(([, usd]) => Number(usd)).map(([name, usd]) => ({ name: `· ${t("of which")} ${t(OVERHEAD[name] ?? name)}`, usd })),
    ...(Number(one.idle_usd) ? [{ name: t("Idle time of own machines"), usd: one.idle_usd }] : []),
    { name: t(lost ? "Lost" : "Saved"), usd: one.net_saved_usd, sum: true },
  ];
  return [
    table(t("Savings statement"), [
      [t("Statement"), (row) => (row.sum ? h("strong", {}, row.name) : row.name)],
      ["USD", (row) => (row.sum ? h("strong", { class: lost ? "warn" : "good" }, money(row.usd)) : money(row.usd)), "number"],
    ], rows),
    h("p", { id: "by-means" }, byMeans(one)),
    one.unpriced ? quiet(t("Calls without a price, which are not included: {0}.", count(one.unpriced))) : null,
    how,
  ].filter(Boolean);
}

const CACHE = {
  exact: "exact hit: the same request was answered before", semantic: "semantic hit: a question with the same meaning, verified",
  join: "joined: shared with an identical request in progress", miss: "miss: not in the cache", bypass: "bypassed, as requested",
};

/** The glossary's words for what the cache decided; `verdictOf`: in one word. */
export const cacheWords = (kind) => t(CACHE[kind] ?? kind);
export const verdictOf = (kind) => t(kind === "join" ? "joined" : kind);

export function cache({ rows, wrong, limit, classes, measured }) {
  if (!rows.length) return [quiet(t("There were no cache hits in this period.")), wrongHits(wrong, limit)].filter(Boolean);
  const unknown = rows.reduce((sum, row) => sum + row.unpriced, 0);
  return [
    table(t("Cache answers by kind"), [
      [t("Kind"), (row) => to(link("requests", { cache: row.kind }), cacheWords(row.kind))],
      [t("Answers"), (row) => number(row.answers), "number"],
      [t("Saved"), (row) => money(row.saved_usd), "number"],
    ], rows),
    unknown ? quiet(t("Answers whose original cost is unknown, not counted as saved: {0}.", count(unknown))) : null,
    wrongHits(wrong, limit),
    ...byClass(classes, measured, limit),
  ].filter(Boolean);
}

/** Answers from the cache by kind of question, with the wrong hits as in `thriftgate cache stats`. */
function byClass(classes, measured, limit) {
  const known = new Set(classes.map((row) => row.kind));
  const rows = [...classes, ...Object.keys(measured).filter((kind) => !known.has(kind)).map((kind) => ({ kind, answers: 0, saved_usd: "0" }))];
  if (!rows.some((row) => row.kind)) return [];
  const share = (one) => (one?.checked
    ? h("span", { class: tooWrong(one, limit) ? "bad" : null }, t("{0}, at most {1}", exactly(one.wrong_of_lookups), exactly(one.interval[1])))
    : h("span", { class: "quiet" }, t("not measured")));
  return [
    table(t("Cache answers by kind of question"), [
      [t("Kind of question"), (row) => row.kind || t("unknown")],
      [t("Answers"), (row) => number(row.answers), "number"],
      [t("Saved"), (row) => money(row.saved_usd), "number"],
      [t("Wrong hits"), (row) => share(measured[row.kind]), "number"],
    ], rows),
    quiet(t("Wrong hits: share of semantic look-ups, and its upper bound (95%), since the cache was started.")),
  ];
}

const HELD = { met: "fine", burning: "near", missed: "over", unknown: "early" };

/** The objectives for the quality of answers (`slo` of the policy): error budget and burn rate. */
export function quality(rows) {
  if (!rows.length) return quiet(t("The policy of this team sets no objective for quality (slo)."));
  return [table(t("Quality objectives"), [
    [t("Kind of question"), (row) => (row.class === "all" ? t("all") : row.class)],
    [t("State"), (row) => h("span", { class: `badge ${HELD[row.state]}` }, t(row.state))],
    [t("Quality"), (row) => (row.quality === null ? "–" : percent(row.quality)), "number"],
    [t("Error budget left"), (row) => (row.error_budget_left === null ? "–" : percent(row.error_budget_left)), "number"],
    [t("Burn rate"), (row) => (row.burn_rate === null ? "–" : `${count(row.burn_rate)}×`), "number"],
    [t("Judged answers"), (row) => number(row.judged), "number"],
  ], rows), quiet(t("Objective: {0} of judged answers as good as the reference's, over {1} days. At burn rate 1 the error budget lasts that long.", percent(rows[0].objective), count(rows[0].window_s / 86400)))];
}

/** Whether more semantic hits are wrong than the policy allows. */
export const tooWrong = (found, limit) => Boolean(found?.checked) && found.wrong_of_lookups > limit;
export const WEIGHED = "A check counts for the hits that it represents; the share is of all look-ups, with and without a hit.";

/** The share of wrong semantic hits, as measured by checks. */
function wrongHits(found, limit) {
  if (!found?.hits) return null;
  const called = found.called_wrong ? ` ${t("Reported as wrong by clients: {0}.", count(found.called_wrong))}` : "";
  if (!found.checked) return h("p", { class: "quiet", id: "wrong-hits" }, t("Semantic hits: {0}; none has been checked yet.", count(found.hits)), called);
  const [low, high] = found.interval.map((share) => exactly(share));
  return h("p", { id: "wrong-hits", class: tooWrong(found, limit) ? "bad" : null },
    tn("Wrong hits measured: {0} of semantic look-ups (95%: {1} to {2}; the policy allows {3}), {4} of {5} checked hits in {6} look-ups.",
      h("data", { value: String(found.wrong_of_lookups) }, exactly(found.wrong_of_lookups)), low, high, exactly(limit),
      number(found.wrong), number(found.checked), count(found.lookups)), called);
}

export function feedback(rows) {
  if (!rows.length) return quiet(t("No feedback yet. Applications send it to /v1/requests/ID/feedback."));
  return [table(t("Feedback by backend"), [
    [t("Backend"), (row) => row.backend || t("from the cache")],
    [t("Mean score"), (row) => h("span", { class: "barred" }, bar(row.score, "good"), percent(row.score)), "number"],
    [t("Ratings"), (row) => number(row.voices), "number"],
  ], rows), quiet(t("All time."))];
}

/** The most expensive requests, as links. */
export function dearest(rows) {
  if (!rows.length) return quiet(t("No request had a cost in this period."));
  return [table(t("Most expensive requests"), [
    [t("Cost"), (row) => to(link("request", {}, row.id), money(row.cost_usd))],
    [t("Why"), (row) => [specific(row), quiet(brief(row))], "partly"],
    [t("Time"), (row) => time(row.at)],
  ], rows), h("p", {}, to(link("requests", { sort: "cost" }), t("All requests by cost")))];
}

/** The backends, tokens and time of a request. */
export function brief(row) {
  const names = [...new Set(row.attempts.map((one) => one.backend).filter(Boolean))].join(" → ");
  return [names, t("{0} tokens in, {1} out", count(row.input_tokens), count(row.output_tokens)), ...(row.duration_ms === null ? [] : [milliseconds(row.duration_ms)])].join(", ");
}

/** Why a request was served as it was and cost what it did, from the ledger. */
export const reasons = (row) => row.why.map((one, place) => [place ? " " : "", spoken(one)]);

/** The reasons without the first one, for lists: a row names the model and the backend. */
export function specific(row) {
  const graded = row.difficulty === null ? "" : `${t("Difficulty")} ${grade(row.difficulty)}. `;
  return graded || row.why.length > 1 ? [graded, reasons({ why: row.why.slice(1) })] : reasons(row);
}

const LISTED = 8;
export const SEVERITIES = { info: "fine", warning: "near", critical: "over" };

/** `acknowledge(id)` is called by a button; without it there are no buttons. */
export function alerts(rows, acknowledge) {
  if (!rows.length) return quiet(t("There are no alerts."));
  const list = (some) => h("ul", { class: "alerts" }, some.map((row) => {
    const button = acknowledge && row.open ? h("button", { type: "button" }, t("Acknowledge")) : null;
    button?.addEventListener("click", () => acknowledge(row.id));
    return h("li", {},
      h("p", {}, h("span", { class: `badge ${SEVERITIES[row.severity]}` }, t(row.severity)), !row.open ? null : h("span", { class: "badge open" }, t("open")), " ", sentence(row)),
      quiet([time(row.at), ...row.receivers.map(delivery), looked(row)].filter(Boolean).join(" · ")), button);
  }));
  const more = rows.slice(LISTED);
  return [list(rows.slice(0, LISTED)), ...(more.length ? [details(t("{0} more alerts", count(more.length)), list(more))] : [])];
}

/** The ISO dates of an alert as the page writes dates. A model's name may contain a date too. */
const dated = (text) => text.replace(/(?<![\w./-])\d{4}-\d\d-\d\d(T[\d:]+Z)?(?![\w/-])/g, (found, clock) => (clock ? time : day)(found));

/** What an alert says. Only alerts of budgets have figures to say it in another language. */
export function sentence({ text, threshold, budget }) {
  if (language === "en" || !budget) return spoken(text, dated);
  const { who, unit, spent, limit } = budget;
  return `${`${nameOf(budget)} ${who}`.trim()}: ${t("{0} of {1}", inUnit(spent, unit), inUnit(limit, unit))} (${level(threshold)})`;
}

const looked = ({ acknowledged }) => acknowledged && t("acknowledged by {0} at {1}", acknowledged.by, time(acknowledged.at));

function delivery({ target, accepted, given_up: dead, tries, error }) {
  const receiver = target.replace("env:", "");
  if (accepted) return t("sent to {0}", receiver);
  return t(dead ? "{0} given up after {1} tries" : "{0} not reached after {1} tries", receiver, tries) + (error ? `: ${error.replace(/^answered (\d+)$/, (_, code) => t("answered {0}", code))}` : "");
}

/** Notices about spend that is missing in the figures, and other limits of them. */
export const invention = () => h("p", { class: "notice warn" }, t("Demo history: these requests are invented. They were never sent and cost nothing."));

export function notices({ total, by, mode, invented }) {
  const lines = invented ? [invention()] : [];
  if (total.unpriced) {
    const names = by.backend.filter((row) => row.unpriced).map((row) => row.backend).join(", ");
    lines.push(h("p", { class: "notice warn" }, h("strong", {}, t("Spend is incomplete.")), " ",
      t("Calls that used tokens without a known price: {0}, of {1}. Their cost is unknown, not zero, and is in none of these figures. Set the backend's price in gateway.yaml.", count(total.unpriced), names)));
  }
  if (total.checks) {
    lines.push(h("p", { class: "notice" }, tn("{0} of the spend is for background checks: {1} calls whose answers were only compared with others.", money(total.checks_usd), count(total.checks))));
  }
  if (total.estimated) {
    lines.push(h("p", { class: "notice" }, t("Calls whose tokens the gateway counted, because the backend did not: {0}.", count(total.estimated))));
  }
  if (mode === "observe") lines.push(h("p", { class: "notice" }, t("This team's policy is in mode observe: routing decisions are recorded but not applied.")));
  return lines;
}
