// Handles the key, fetches the figures and refreshes them. The sections of the page are in sections.js.

import { Courses } from "./course.js";
import { forget, h, paint } from "./dom.js";
import { time } from "./format.js";
import { Playground } from "./playground.js";
import { Plot } from "./plot.js";
import { Requests } from "./requests.js";
import * as sections from "./sections.js";

const KEPT = "thriftgate-key";
const PATIENCE_MS = 40_000;
const ANSWER_MS = 300_000;
const AWAY_S = 5;
const SLOW_MS = 400;
const $ = (id) => document.getElementById(id);

const plot = new Plot($("plot"));
const courses = new Courses($("budgets"));
const requests = new Requests($("dearest"), fetchFlight);
const playground = new Playground($("playground"), { ask, fetchFlight, asked: () => figures && refresh() });
let key = sessionStorage.getItem(KEPT) ?? "";
let figures = null;
let asking = null;
let timer = 0;

class Refused extends Error {
  constructor(status, message, id) {
    super(message);
    this.status = status;
    this.id = id;
  }
}

async function call(path, { headers, ...options }) {
  const response = await fetch(path, {
    headers: { authorization: `Bearer ${key}`, ...headers }, cache: "no-store", credentials: "omit", redirect: "error", ...options,
  });
  const body = await response.json().catch(() => null);
  const id = response.headers.get("x-request-id");
  if (!response.ok) throw new Refused(response.status, body?.error?.message ?? `The gateway answered ${response.status}.`, id);
  return { body, id };
}

const get = async (path, signal) => (await call(path, { signal })).body;

async function ask(question, headers, signal) {
  try {
    const { body, id } = await call("v1/chat/completions", {
      method: "POST", body: JSON.stringify(question), headers: { "content-type": "application/json", ...headers },
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]),
    });
    return { id, answer: body?.choices?.[0]?.message?.content ?? "(no text)" };
  } catch (error) {
    throw error instanceof Refused ? error : new Error("The gateway does not answer.");
  }
}

async function fetchFlight(id) {
  try {
    return await get(`v1/requests/${encodeURIComponent(id)}`, AbortSignal.timeout(PATIENCE_MS));
  } catch (error) {
    if (error.status === 404) return null;
    throw error instanceof Refused ? error : new Error("The gateway does not answer.");
  }
}

async function refresh() {
  clearTimeout(timer);
  asking?.abort();
  const mine = (asking = new AbortController());
  const late = setTimeout(() => mine.abort("late"), PATIENCE_MS);
  const slow = setTimeout(() => figures === null && wait(), SLOW_MS);
  let next = AWAY_S;
  try {
    const query = new URLSearchParams({ days: $("days").value });
    if ($("team").value) query.set("team", $("team").value);
    const found = await get(`dashboard/data?${query}`, mine.signal);
    if (mine !== asking) return;
    figures = found;
    next = found.refresh_s;
    show();
    say("");
  } catch (error) {
    if (mine !== asking) return;
    if (error.status === 401 || error.status === 403) {
      leave(error.message);
      return;
    }
    say(error instanceof Refused ? error.message : "The gateway does not answer.");
  } finally {
    clearTimeout(late);
    clearTimeout(slow);
  }
  if (!document.hidden) timer = setTimeout(refresh, next * 1000);
}

function wait() {
  paint("status", "waiting", () => h("p", { class: "notice" }, "Computing…"));
}

/** Show a problem that may be temporary. The last figures stay on the page, with their time. */
function say(problem) {
  const stale = figures ? ` These figures are from ${time(figures.at)}.` : "";
  paint("status", [problem, stale], () => (problem ? [h("p", { class: "notice bad" }, `${problem}${stale} Trying again…`)] : []));
  $("figures").classList.toggle("stale", Boolean(problem));
}

function show() {
  const { total, viewer, by, key_names: names } = figures;
  const none = !total.requests;
  $("door").hidden = true;
  $("controls").hidden = $("figures").hidden = false;
  $("empty").hidden = !none;
  $("used").hidden = $("brief").hidden = none;
  $("pretended").hidden = !figures.simulated.length;
  $("title").textContent = `Team ${figures.team}`;
  document.title = `${figures.team} · Thriftgate`;
  $("moment").textContent = `From ${figures.since.slice(0, 10)} (UTC) to ${time(figures.at)}; refreshed every ${figures.refresh_s} s while this page is visible.`;
  showTeams(viewer);
  paint("notices", { total, by: { backend: by.backend }, mode: figures.mode }, sections.notices);
  paint("budgets", { budgets: figures.budgets, names }, sections.budgets);
  courses.show(figures.budgets, figures.at);
  paint("alerts", figures.alerts, sections.alerts);
  paint("simulated", figures.simulated, sections.simulated);
  if (none) {
    const period = figures.days === 1 ? "today" : `in the last ${figures.days} days`;
    $("empty-text").textContent = figures.simulated.length
      ? `Only simulated backends were called ${period}; their hypothetical cost is shown below and is in no total.`
      : `Team ${figures.team} has sent no requests ${period}.`;
    $("example").textContent = `OPENAI_BASE_URL=${new URL("v1", location.href)}\nOPENAI_API_KEY=tg-…`;
    return;
  }
  const shown = steps(figures);
  $("plot-title").textContent = `Spend per ${shown.by}`;
  paint("brief", { total, savings: figures.savings.teams }, sections.brief);
  paint("days-table", shown, sections.days);
  paint("savings", figures.savings, sections.savings);
  paint("difficulty", figures.difficulty, sections.difficulty);
  paint("mix", { tiers: figures.tiers, answers: total.cache_answers }, sections.mix);
  paint("cache", { rows: figures.cache, wrong: figures.wrong_hits }, sections.cache);
  paint("latency", figures.latency, sections.latency);
  paint("feedback", figures.feedback, sections.feedback);
  showWhere();
  requests.show(figures.dearest, names, viewer.scopes.includes("inference"));
  $("plot").setAttribute("aria-label", sections.describe(shown));
  plot.show(shown.rows, shown.by);
}

function showWhere() {
  const by = document.querySelector("input[name=by]:checked").value;
  paint("where", { rows: figures.by[by], by, names: figures.key_names }, sections.where);
}

function showTeams({ team, teams }) {
  const names = [...new Set([...teams, figures.team])];
  $("team-choice").hidden = names.length < 2;
  const chosen = $("team").value || team;
  paint("team", names, () => names.map((name) => h("option", { value: name }, name)));
  $("team").value = chosen;
}

/** The server lists only days (for a short period: hours) with traffic. Adds the others, which the plot needs. */
function steps({ by, since, at, days }) {
  const unit = by.hour ? "hour" : "day";
  const [length, written] = unit === "hour" ? [3_600_000, (text) => `${text.slice(0, 16)}Z`] : [86_400_000, (text) => text.slice(0, 10)];
  const known = new Map(by[unit].map((row) => [row[unit], row]));
  const start = Date.parse(since);
  const many = unit === "hour" ? Math.floor((Date.parse(at) - start) / length) + 1 : days;
  const rows = Array.from({ length: many }, (_, place) => {
    const name = written(new Date(start + place * length).toISOString());
    return known.get(name) ?? { [unit]: name, cost_usd: "0", saved_usd: "0", requests: 0, cache_answers: 0, failed: 0 };
  });
  return { by: unit, rows };
}

function enter(typed) {
  key = typed.trim();
  if (!/^[\x21-\x7e]+$/.test(key)) {
    leave("A key begins with tg- and contains no spaces or special characters.");
    return;
  }
  sessionStorage.setItem(KEPT, key);
  $("refused").textContent = "";
  refresh();
}

function leave(why = "") {
  clearTimeout(timer);
  asking?.abort();
  asking = figures = null;
  key = "";
  sessionStorage.removeItem(KEPT);
  say("");
  forget();
  requests.forget();
  plot.forget();
  courses.forget();
  playground.forget();
  $("plot").removeAttribute("aria-label");
  for (const id of ["title", "moment", "empty-text", "plot-title", "who"]) $(id).textContent = "";
  $("figures").hidden = $("controls").hidden = true;
  $("door").hidden = false;
  $("refused").textContent = why;
  document.title = "Thriftgate";
  $("key").value = "";
  $("key").focus();
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  enter($("key").value);
});
$("leave").addEventListener("click", () => leave());
$("try").addEventListener("click", () => playground.open(figures.viewer));
$("days").addEventListener("change", refresh);
$("team").addEventListener("change", refresh);
for (const choice of document.querySelectorAll("input[name=by]")) choice.addEventListener("change", showWhere);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (key) refresh();
});

if (key) refresh();
else leave();
