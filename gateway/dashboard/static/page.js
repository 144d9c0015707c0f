// The key, the fetching and when to do it again; what is shown is in sections.js.

import { forget, h, paint } from "./dom.js";
import { time } from "./format.js";
import { Plot } from "./plot.js";
import { Requests } from "./requests.js";
import * as sections from "./sections.js";

const KEPT = "thriftgate-key";
const PATIENCE_MS = 40_000;
const AWAY_S = 5;
const SLOW_MS = 400;
const $ = (id) => document.getElementById(id);

const plot = new Plot($("plot"));
const requests = new Requests($("dearest"), fetchFlight);
let key = sessionStorage.getItem(KEPT) ?? "";
let figures = null;
let asking = null;
let timer = 0;

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function get(path, signal) {
  const response = await fetch(path, {
    headers: { authorization: `Bearer ${key}` }, cache: "no-store", credentials: "omit", redirect: "error", signal,
  });
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Refused(response.status, body?.error?.message ?? `The gateway answered ${response.status}.`);
  return body;
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
  paint("status", "waiting", () => h("p", { class: "notice" }, "Adding up…"));
}

/** Trouble that may pass: what was known stays on the page, with its time. */
function say(problem) {
  const stale = figures ? ` These are the figures of ${time(figures.at)}.` : "";
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
  $("moment").textContent = `From ${figures.since.slice(0, 10)} (UTC) to ${time(figures.at)}; looks again every ${figures.refresh_s} s while you do.`;
  showTeams(viewer);
  paint("notices", { total, by: { backend: by.backend }, mode: figures.mode }, sections.notices);
  paint("budgets", figures.budgets, sections.budgets);
  paint("alerts", figures.alerts, sections.alerts);
  paint("simulated", figures.simulated, sections.simulated);
  if (none) {
    const period = figures.days === 1 ? "today" : `in these ${figures.days} days`;
    $("empty-text").textContent = figures.simulated.length
      ? `Only simulated backends were asked ${period}; what they would have cost stands below and in no total.`
      : `Team ${figures.team} has asked nothing ${period}.`;
    $("example").textContent = `OPENAI_BASE_URL=${new URL("v1", location.href)}\nOPENAI_API_KEY=tg-…`;
    return;
  }
  const days = everyDay(figures);
  paint("brief", { total }, sections.brief);
  paint("days-table", days, sections.days);
  paint("mix", { tiers: figures.tiers, answers: total.cache_answers }, sections.mix);
  paint("cache", figures.cache, sections.cache);
  paint("latency", figures.latency, sections.latency);
  paint("feedback", figures.feedback, sections.feedback);
  showWhere();
  requests.show(figures.dearest, names, viewer.scopes.includes("inference"));
  $("plot").setAttribute("aria-label", sections.inWords(days));
  plot.show(days);
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

/** The server lists days with traffic; a plot needs the others too. */
function everyDay({ by, since, days }) {
  const known = new Map(by.day.map((row) => [row.day, row]));
  const start = Date.parse(since);
  return Array.from({ length: days }, (_, place) => {
    const day = new Date(start + place * 86_400_000).toISOString().slice(0, 10);
    return known.get(day) ?? { day, cost_usd: "0", saved_usd: "0", requests: 0, cache_answers: 0, failed: 0 };
  });
}

function enter(typed) {
  key = typed.trim();
  if (!/^[\x21-\x7e]+$/.test(key)) {
    leave("A key has no spaces and no special letters; it begins with tg-.");
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
  $("plot").removeAttribute("aria-label");
  for (const id of ["title", "moment", "empty-text"]) $(id).textContent = "";
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
$("days").addEventListener("change", refresh);
$("team").addEventListener("change", refresh);
for (const choice of document.querySelectorAll("input[name=by]")) choice.addEventListener("change", showWhere);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (key) refresh();
});

if (key) refresh();
else leave();
