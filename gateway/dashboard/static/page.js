// Follows the address: shows its view, fetches the figures of the view, and refreshes them.

import { ask, fetchFlight, forgetKey, get, known, post, Refused, remember, save, words } from "./api.js";
import { Course, drawable, Stack } from "./chart.js";
import { crumbs } from "./crumbs.js";
import { forget, h, paint } from "./dom.js";
import { day, setZone, time } from "./format.js";
import { t, translate } from "./i18n.js";
import { FILTERS, Log } from "./log.js";
import * as models from "./models.js";
import * as overview from "./overview.js";
import { Playground } from "./playground.js";
import { request } from "./request.js";
import { go, here, link } from "./route.js";
import * as sections from "./sections.js";

const AWAY_S = 5;
const SLOW_MS = 400;
const FINAL = [400, 403, 404]; // asking again would not help
const MONTHS = 12;
const $ = (id) => document.getElementById(id);

/** The parts of each view: those of the first paint, then those that take longer. */
const PARTS = {
  overview: [["spend", "alerts", "wrong_hits"], ["budgets", "dearest"], ["savings", "simulated"]],
  budget: [["spend", "alerts", "budgets", "wrong_hits"], ["savings", "answers", "dearest", "quality", "feedback"]],
  models: [["spend", "alerts"], ["answers", "latency"]],
  teams: [["teams"], ["budgets"], ["savings"]],
};
const charts = { plot: new Stack($("plot")), plot2: new Stack($("plot2")), plot3: new Stack($("plot3")) };
const log = new Log($("filters"), $("log"));
const playground = new Playground($("playground"), {
  ask, fetchFlight, asked: () => viewer && refresh(),
  names: async () => ["auto", ...(await get("dashboard/backends")).backends.map((one) => one.backend)],
});
let courses = [];
let viewer = null;
let figures = {};
let shown = null; // the team whose figures are on the page
let asking = null;
let timer = 0;

const view = () => here().view;
const mayRead = (scopes) => scopes.includes("usage") || scopes.includes("admin");
const sees = (scopes, name) => name === "requests" || name === "request" || (name === "teams" ? scopes.includes("admin") : mayRead(scopes));
const start = () => (viewer.scopes.includes("admin") ? "teams" : mayRead(viewer.scopes) ? "overview" : "requests");

/** Enter the view in the address. */
async function enter() {
  if (!known()) return leave();
  clearTimeout(timer);
  asking?.abort();
  log.close();
  try {
    viewer ??= await get("dashboard/viewer");
  } catch (error) {
    if (error.status === 401 || error.status === 403) return leave(words(error));
    say(words(error));
    timer = setTimeout(enter, AWAY_S * 1000);
    return undefined;
  }
  if (!here().view || !sees(viewer.scopes, here().view)) {
    history.replaceState(null, "", link(start()));
  }
  const team = view() === "teams" ? "" : here().query.team ?? viewer.team;
  if (team !== shown) clear();
  shown = team;
  frame();
  await refresh();
  return undefined;
}

/** Empty the page, so that one team's figures never stand below another team's name. */
function clear() {
  figures = {};
  forget();
  log.forget();
  for (const chart of [...Object.values(charts), ...courses]) chart.forget();
  courses = [];
  $("moment").textContent = "";
  badge(0);
}

/** Navigation, controls and the sections of the view. */
function frame() {
  const { query } = here();
  const name = view();
  setZone(viewer.zones[name === "teams" ? "" : query.team ?? viewer.team]);
  $("door").hidden = true;
  $("controls").hidden = $("figures").hidden = $("nav").hidden = false;
  for (const section of document.querySelectorAll("[data-view]")) section.hidden = !section.dataset.view.split(" ").includes(name);
  for (const anchor of document.querySelectorAll("#nav a")) {
    const its = anchor.dataset.to;
    anchor.hidden = !sees(viewer.scopes, its);
    anchor.href = link(its, { ...(its === "teams" ? { team: null } : {}) });
    if (its === name || (its === "requests" && name === "request")) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  showTeams(query.team ?? viewer.team);
  showPeriod(query.period ?? "month");
  $("team-choice").hidden = viewer.teams.length < 2 || name === "teams" || name === "request";
  $("period-choice").hidden = name === "request";
  $("title").textContent = name === "teams" ? t("All teams") : t("Team {0}", query.team ?? viewer.team);
  document.title = `${name === "teams" ? t("All teams") : query.team ?? viewer.team} · Thriftgate`;
  $("by").value = query.by ?? "model";
  if (!PARTS[name]) paint("notices", name, () => (viewer.invented.includes(query.team ?? viewer.team) ? sections.invention() : []));
  way({});
}

function showTeams(chosen) {
  const names = [...new Set([...viewer.teams, chosen])];
  paint("team", names, () => names.map((name) => h("option", { value: name }, name)));
  $("team").value = chosen;
}

function showPeriod(period) {
  const field = $("period");
  if (![...field.options].some((one) => one.value === period)) {
    const text = overview.periodName({ period, days: Number(period) });
    field.prepend(h("option", { value: period }, text));
  }
  field.value = period;
  $("custom").hidden = true;
}

async function refresh() {
  clearTimeout(timer);
  asking?.abort();
  const mine = (asking = new AbortController());
  const name = view();
  const slow = setTimeout(() => wait(mine), SLOW_MS);
  let next = AWAY_S;
  try {
    if (name === "requests") await Promise.all([log.open(), showWaiting(mine)]);
    else if (name === "request") await Promise.all([showRequest(mine.signal), showWaiting(mine)]);
    else next = await showFigures(name, mine);
    if (mine === asking) say("");
    if (mine === asking && name !== "request") way();
  } catch (error) {
    if (mine !== asking) return;
    if (error.status === 401) {
      leave(words(error));
      return;
    }
    const final = FINAL.includes(error.status);
    if (final && PARTS[name]) {
      clear(); // no figures of the period before below the refused one
      $("figures").hidden = true;
    }
    say(words(error), !final);
    if (final) next = 0;
  } finally {
    clearTimeout(slow);
  }
  if (mine === asking && PARTS[name] && next && !document.hidden) timer = setTimeout(refresh, next * 1000);
}

/** Fetch and show the parts of a view. Returns the seconds until the next refresh. */
async function showFigures(name, mine) {
  const { query } = here();
  const asked = JSON.stringify([name === "teams", query.team, query.period]);
  const path = name === "teams" ? "dashboard/teams" : "dashboard/data";
  let next = AWAY_S;
  for (const parts of PARTS[name]) {
    const found = await get(path, { parts: parts.join(), period: query.period ?? "month", team: name === "teams" ? "" : query.team }, mine.signal);
    if (mine !== asking) return next;
    const names = { __proto__: null, ...(figures.asked === asked ? figures.key_names : {}), ...found.key_names };
    if (figures.asked !== asked) paint("where", "waiting", () => []);
    figures = { ...(figures.asked === asked ? figures : {}), ...found, asked, key_names: names };
    next = Math.max(next, found.refresh_s);
    show(name);
    say("");
  }
  if (name === "models") await showModels(mine.signal);
  return next;
}

/** The number of open alerts, for views without figures. */
async function showWaiting(mine) {
  if (!mayRead(viewer.scopes)) return;
  const found = await get("dashboard/data", { parts: "alerts", team: here().query.team }, mine.signal);
  if (mine === asking) badge(found.open_alerts);
}

async function showRequest(signal) {
  if ($("one").dataset.id !== here().id) paint("one", "waiting", computing);
  $("one").dataset.id = here().id;
  $("one").setAttribute("aria-busy", "true");
  try {
    const found = await get(`dashboard/requests/${encodeURIComponent(here().id)}`, {}, signal);
    paint("one", found, request);
    way(found.request ?? found.flight, found.key_names, found.flight.team);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    paint("one", error.message, () => h("p", { class: "notice bad" }, words(error)));
  } finally {
    $("one").removeAttribute("aria-busy");
  }
}

async function showModels(signal) {
  const { query } = here();
  const by = query.by ?? "model";
  const filters = Object.fromEntries(FILTERS.filter((name) => query[name]).map((name) => [name, query[name]]));
  const { backends } = await get("dashboard/backends", {}, signal);
  const gone = (figures.by?.backend ?? []).map((row) => row.backend).filter((one) => one !== "(cache)" && !backends.some((known) => known.backend === one));
  paint("health", { rows: backends, gone }, models.health);
  let found;
  if (by === "tag") found = { rows: (await get("dashboard/data", { parts: "tags", team: query.team, period: query.period ?? "month" }, signal)).tags };
  else if (figures.by[by] && !Object.keys(filters).length) found = { rows: figures.by[by] };
  else found = await get("dashboard/groups", { ...filters, by, team: query.team, period: query.period ?? "month" }, signal);
  const names = { __proto__: null, ...figures.key_names, ...found.key_names };
  paint("where", { rows: found.rows, by, names, more: found.more, filters }, models.where);
}

/** Where the page is, with links to the levels above. */
function way(at = here().query, names = {}, team = here().query.team ?? viewer.team) {
  const { scopes } = viewer;
  const name = view();
  const value = {
    team: name === "teams" ? "" : team, admin: scopes.includes("admin"), figures: mayRead(scopes), id: name === "request" ? here().id : "",
    at: ["models", "requests", "request"].includes(name) ? at : {}, names: { __proto__: null, ...figures.key_names, ...log.names, ...names },
  };
  paint("crumbs", [value, location.hash], () => crumbs(value));
}

function wait(mine) {
  if (mine === asking && !figures.at) paint("status", "waiting", () => h("p", { class: "notice" }, t("Computing…")));
}

/** Show a problem that may be temporary. The last figures stay on the page, with their time. */
function say(problem, again = true) {
  const stale = figures.at ? ` ${t("These figures are from {0}.", time(figures.at))}` : "";
  const text = [problem, stale, again ? ` ${t("Trying again…")}` : ""].join("");
  paint("status", [problem, text], () => (problem ? [h("p", { class: "notice bad" }, text)] : []));
  $("figures").classList.toggle("stale", Boolean(problem));
}

function show(name) {
  $("moment").textContent = t("From {0} to {1}; refreshed while this page is visible.", day(figures.first), time(figures.until));
  badge(figures.open_alerts);
  if (name === "teams") showAll();
  else showTeam(name);
}

function badge(waiting) {
  $("waiting").textContent = waiting ? String(waiting) : "";
  $("waiting").hidden = !waiting;
  $("waiting").title = t("Open alerts");
}

function showAll() {
  paint("notices", figures.invented, () => (figures.invented ? sections.invention() : []));
  const { total, pace, open_alerts: waiting, teams, stack, team_savings: savings, team_budgets: budgets } = figures;
  paint("sums", { total, pace, open_alerts: waiting, savings }, overview.sums);
  paint("teams", { rows: teams, savings, budgets, current: Boolean(pace) }, overview.teams);
  charts.plot3.show(stacked(stack, "day", []));
}

function showTeam(name) {
  const { total, by, key_names: names, savings, stack } = figures;
  const none = !total.requests;
  $("empty").hidden = !none;
  for (const element of document.querySelectorAll(".used")) element.hidden = none;
  if (none) showEmpty();
  if (figures.simulated) {
    $("pretended").hidden = !figures.simulated.length;
    paint("simulated", figures.simulated, models.simulated);
  }
  paint("notices", { total, by: { backend: by.backend }, mode: figures.mode, invented: figures.invented }, sections.notices);
  if (figures.budgets) showBudgets();
  paint("alerts", [figures.alerts, viewer.scopes], () => sections.alerts(figures.alerts, viewer.scopes.includes("admin") ? acknowledge : null));
  if (figures.objectives) paint("quality", figures.objectives, sections.quality);
  if (figures.feedback) paint("feedback", figures.feedback, sections.feedback);
  for (const [part, id] of Object.entries(LATER)) {
    if (figures[part] === undefined) paint(id, "waiting", computing);
  }
  if (none) return;
  paint("answers", overviewOf(figures), overview.answers);
  paint("brief", { total, savings }, sections.totals);
  if (savings) paint("savings", savings, sections.savings);
  if (figures.dearest) paint("dearest", figures.dearest, sections.dearest);
  if (figures.tiers) {
    paint("difficulty", figures.difficulty, models.difficulty);
    paint("mix", { tiers: figures.tiers, answers: total.cache_answers }, models.mix);
  }
  if (figures.cache) paint("cache", { rows: figures.cache, wrong: figures.wrong_hits, limit: figures.max_error, classes: figures.cache_classes, measured: figures.measured_classes }, sections.cache);
  if (figures.latency) paint("latency", figures.latency, models.latency);
  const unit = by.hour ? "hour" : "day";
  const data = stacked(stack, unit, by[unit]);
  $("plot-title").textContent = t(by.hour ? "Spend per hour" : "Spend per day");
  charts[name === "models" ? "plot2" : "plot"].show({ steps: data.steps.map(({ at, parts, total: sum }) => ({ at, parts, total: sum })), names: data.names, by: data.by });
  if (name === "overview") paint("days-table", data, models.days);
}

/** Sections whose part comes later than the first one. Until then they show nothing of another period. */
const LATER = { savings: "savings", dearest: "dearest", cache: "cache", objectives: "quality", feedback: "feedback", tiers: "mix", difficulty: "difficulty", latency: "latency" };
const computing = () => h("p", { class: "quiet" }, t("Computing…"));

function overviewOf({ key_names: names, total, by, pace, budgets, savings, dearest, wrong_hits, max_error, open_alerts, alerts, period, first, days }) {
  return { names, total, by: { model: by.model }, pace, budgets, savings, dearest, wrong_hits, max_error, open_alerts, alerts, period, first, days };
}

function showEmpty() {
  $("empty-text").textContent = figures.simulated?.length
    ? t("Only simulated backends were called in this period; their hypothetical cost is shown below and is in no total.")
    : t("Team {0} has sent no requests in this period.", figures.team);
  $("example").textContent = `OPENAI_BASE_URL=${new URL("v1", location.href.split("#")[0])}\nOPENAI_API_KEY=tg-…`;
}

function showBudgets() {
  const { budgets, key_names: names, at } = figures;
  const before = $("budgets").firstChild;
  paint("budgets", { budgets, names }, sections.budgets);
  if ($("budgets").firstChild !== before) courses = [...document.querySelectorAll("#budgets .course")].map((element) => new Course(element));
  budgets.filter(drawable).forEach((budget, place) => courses[place]?.show(budget, at));
}

async function acknowledge(id) {
  try {
    await post("dashboard/alerts", { id });
    await refresh();
  } catch (error) {
    say(words(error));
  }
}

const NOTHING = { cost_usd: "0", saved_usd: "0", requests: 0, cache_answers: 0, failed: 0, unpriced: 0 };

/** The server lists only days (for a short period: hours) with traffic. Adds the others, which the chart needs. */
function stacked({ names, steps: known }, unit, lines) {
  const [length, size] = unit === "hour" ? [3_600_000, 16] : [86_400_000, 10];
  const begin = Date.parse(figures.first);
  const many = Math.ceil((Date.parse(`${figures.end}Z`) - begin) / length);
  const totals = new Map(lines.map((line) => [line[unit], line]));
  const steps = Array.from({ length: many }, (_, place) => {
    const at = new Date(begin + place * length).toISOString().slice(0, size);
    const parts = known[at] ?? names.map(() => "0");
    const line = totals.get(at) ?? NOTHING;
    return { at, parts, line, total: lines.length ? line.cost_usd : String(parts.reduce((sum, part) => sum + Number(part), 0)) };
  });
  return { names, steps, by: unit };
}

function leave(why = "") {
  clearTimeout(timer);
  asking?.abort();
  asking = viewer = shown = null;
  forgetKey();
  clear();
  say("");
  playground.forget();
  for (const id of ["title", "empty-text", "who", "example"]) $(id).textContent = "";
  $("figures").hidden = $("controls").hidden = $("nav").hidden = true;
  $("door").hidden = false;
  $("refused").textContent = why;
  document.title = "Thriftgate";
  $("key").value = "";
  $("key").focus();
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  const typed = $("key").value.trim();
  if (!/^[\x21-\x7e]+$/.test(typed)) {
    leave(t("A key begins with tg- and contains no spaces or special characters."));
    return;
  }
  remember(typed);
  $("refused").textContent = "";
  enter();
});
$("leave").addEventListener("click", () => {
  history.replaceState(null, "", location.pathname);
  leave();
});
$("try").addEventListener("click", () => playground.open(viewer));
$("team").addEventListener("change", () => go(view(), { ...here().query, team: $("team").value }));
$("period").addEventListener("change", () => {
  $("custom").hidden = $("period").value !== "custom";
  if ($("custom").hidden) go(view(), { ...here().query, period: $("period").value });
  else $("from").focus();
});
$("custom").addEventListener("submit", (event) => {
  event.preventDefault();
  go(view(), { ...here().query, period: `${$("from").value}..${$("until").value}` });
});
$("by").addEventListener("change", () => go("models", { ...here().query, by: $("by").value }));
for (const button of document.querySelectorAll("[data-export]")) {
  button.addEventListener("click", () => {
    const { query } = here();
    save("dashboard/export", { team: query.team, period: query.period ?? "month", by: button.dataset.export }, "usage.csv").catch((error) => say(words(error)));
  });
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (known() && view() !== "request") refresh();
});
addEventListener("hashchange", enter);

translate($("language"));
$("by").append(...Object.entries(models.GROUPS).map(([value, name]) => h("option", { value }, t(name))));
for (const days of [7, 30, 90, 366]) $("months").before(h("option", { value: days }, overview.periodName({ period: String(days), days })));
const today = new Date();
for (let back = 2; back < MONTHS; back++) {
  const at = new Date(Date.UTC(today.getUTCFullYear(), today.getUTCMonth() - back, 1)).toISOString();
  $("months").append(h("option", { value: at.slice(0, 7) }, overview.periodName({ period: at.slice(0, 7) })));
}
enter();
