// The six questions of a team lead, each with its answer; and all teams at a glance.

import { bar, h, money, number, quiet, table, tile, to } from "./dom.js";
import { count, date, exactly, month, percent, time } from "./format.js";
import { t, tn } from "./i18n.js";
import { link } from "./route.js";
import { brief, byMeans, forecast, nameOf, reasons, sentence, SEVERITIES, single, stateOf, tooWrong, WEIGHED, unpriced, worse } from "./sections.js";

const HOLDS = { over: "No: used up", soon: "Probably not", near: "Probably, but nearly used up", fine: "Yes", early: "Too early to tell" };

const card = (title, state, value, lines, address, more) => h("article", { class: `card answer ${state}` },
  h("h3", {}, title), h("p", { class: "value" }, value), lines.map((line) => h("p", {}, line)), address ? h("p", {}, to(address, more)) : null);

/** One card per question. A part that has not arrived yet is shown as "…". */
export function answers(figures) {
  return [spend(figures), budget(figures), saved(figures), dearest(figures), wrong(figures), open(figures)];
}

export const periodName = ({ period, first, days }) => {
  if (period === "month" || period === "last-month") return month(first);
  if (/^\d{4}-\d\d$/.test(period)) return month(period);
  if (period.includes("..")) return t("{0} to {1}", ...period.split("..").map(date));
  return days === 1 ? t("today") : t("the last {0} days", days);
};

const pending = (title) => card(title, "", "…", [t("Computing…")]);

function spend(figures) {
  const { total, by, pace } = figures;
  const [first] = [...by.model].filter((row) => row.model !== "(cache)").sort((a, b) => Number(b.cost_usd) - Number(a.cost_usd));
  const share = first && Number(total.cost_usd) ? ` (${percent(Number(first.cost_usd) / Number(total.cost_usd))})` : "";
  const lines = first ? [tn("Most of it on {0}: {1}", h("strong", {}, first.model), money(first.cost_usd)).concat(share)] : [];
  if (pace) lines.push(paceOf(pace));
  return card(t("Spend, {0}", periodName(figures)), "", money(total.cost_usd), lines, link("models"), t("By model, key and session"));
}

const paceOf = (pace) => tn("At the pace of the last {0} days: about {1} by the end of {2}.", count(pace.days), money(pace.usd), month(pace.until));

function budget({ budgets, names }) {
  const title = t("Will the budget hold?");
  if (!budgets) return pending(title);
  const standing = budgets.flatMap((one) => one.standings.map((each) => ({ one, each, state: stateOf(each) })));
  const [worst, ...others] = standing.sort((a, b) => worse(a.each, b.each));
  const whose = ({ one, each }) => [nameOf(one), each.subject ? names[each.subject] ?? each.subject : ""].join(" ").trim();
  const brief = (other) => [h("span", { class: `badge ${other.state}` }, t(HOLDS[other.state])), " ", t("{0}: {1} used", whose(other), percent(other.each.used))];
  if (!worst) return card(title, "", budgets.length ? t("Yes") : t("No budget"), [t(budgets.length ? "No spend yet." : "The policy of this team sets no budget.")], link("budget"), t("Budgets"));
  const { one, each, state } = worst;
  const unit = one.unit;
  const spent = String(each[`spent_${unit}`]);
  const shown = (text) => (unit === "usd" ? money(text) : h("data", { value: text }, t("{0} tokens", count(text))));
  const told = single(one) ? forecast(one, each).map((line) => [...line.childNodes]) : [];
  return card(title, state, t(HOLDS[state]), [tn("{0}: {1} of {2} used", whose(worst), shown(spent), shown(one.limit)), ...told, ...others.slice(0, 3).map(brief)], link("budget"), t("All budgets"));
}

function saved({ savings }) {
  const title = t("Saved, and how");
  if (!savings) return pending(title);
  const [one] = savings.teams;
  if (!one) return card(title, "", "–", [t("There were no requests in this period.")]);
  if (one.net_saved_usd === null) return card(title, "", t("unknown"), [unpriced()], link("budget"), t("Savings"));
  const share = Number(one.baseline_usd) ? ` (${percent(Number(one.net_saved_usd) / Number(one.baseline_usd))})` : "";
  return card(title, one.net_saved_usd.startsWith("-") ? "near" : "fine", [money(one.net_saved_usd), share], [
    tn("Compared with {0} for everything, which would have cost {1}.", one.reference, money(one.baseline_usd)),
    byMeans(one),
  ], link("budget"), t("Statement"));
}

function dearest({ dearest: rows }) {
  const title = t("Most expensive requests");
  if (!rows) return pending(title);
  if (!rows.length) return card(title, "", "–", [t("No request had a cost in this period.")]);
  return card(title, "", to(link("request", {}, rows[0].id), money(rows[0].cost_usd)), [
    reasons(rows[0]), ...rows.slice(1, 3).map((row) => [to(link("request", {}, row.id), money(row.cost_usd)), " ", brief(row)]),
  ], link("requests", { sort: "cost" }), t("All requests by cost"));
}

function wrong({ wrong_hits: found, max_error: limit, ...figures }) {
  const title = t("Wrong answers from the cache");
  if (!found) return card(title, "", t("not measured"), [t("There is no measurement in this period.")], link("budget"), t("Cache"));
  if (!found.hits) return card(title, "", t("no figures yet"), [t("There was no semantic hit in this period.")], link("budget"), t("Cache"));
  if (!found.checked) return card(title, "", t("not measured"), [t("Semantic hits: {0}; none has been checked yet.", count(found.hits))], link("budget"), t("Cache"));
  const over = tooWrong(found, limit);
  return card(title, over ? "over" : found.interval[1] < limit ? "fine" : "near", t("{0}, at most {1}", exactly(found.wrong_of_lookups), exactly(found.interval[1])), [
    t(over ? "Of semantic look-ups: more than the {0} that the policy allows." : "Of semantic look-ups; the policy allows {0}.", exactly(limit)),
    t("{0} of {1} checked hits were wrong.", count(found.wrong), count(found.checked)),
    t(WEIGHED), t("This team, {0}.", periodName(figures)),
  ], link("budget"), t("Cache"));
}

function open({ open_alerts: waiting, alerts }) {
  const order = Object.keys(SEVERITIES);
  const [latest] = alerts.filter((one) => one.open).sort((a, b) => order.indexOf(b.severity) - order.indexOf(a.severity));
  const lines = latest ? [[h("span", { class: `badge ${SEVERITIES[latest.severity]}` }, t(latest.severity)), " ", sentence(latest)], quiet(time(latest.at)), listed()] : [t("Nobody needs to act.")];
  return card(t("Open alerts"), waiting ? "near" : "fine", number(waiting), lines);
}

function listed() {
  const button = h("button", { type: "button" }, t("Show the list"));
  button.addEventListener("click", () => document.getElementById("alerts-title").scrollIntoView());
  return button;
}

/** All teams: the highest spend first. */
export function teams({ rows, savings, budgets, current }) {
  const saving = (row) => savings.teams.find((one) => one.team === row.team)?.net_saved_usd;
  const sorted = [...rows].sort((a, b) => Number(b.cost_usd) - Number(a.cost_usd));
  const most = Math.max(0, ...rows.map((row) => Number(row.cost_usd)));
  if (!rows.length) return quiet(t("There were no requests in this period."));
  return table(t("All teams"), [
    [t("Team"), (row) => to(link("overview", { team: row.team }), row.team)],
    [t("Spent"), (row) => h("span", { class: "barred" }, bar(most ? Number(row.cost_usd) / most : 0), money(row.cost_usd)), "number"],
    ...(current ? [[t("At this pace"), (row) => (row.pace ? money(row.pace.usd) : "–"), "number"]] : []),
    [t("Will the budget hold?"), (row) => standing(budgets, budgets?.[row.team])],
    [t("Saved"), (row) => (savings ? (saving(row) ? money(saving(row)) : "–") : "…"), "number"],
    [t("Failed"), (row) => failures(row), "number"],
    [t("Alerts"), (row) => (row.open_alerts ? h("span", { class: "badge near" }, count(row.open_alerts)) : "–"), "number"],
  ], sorted);
}

function standing(all, one) {
  if (!all) return "…";
  if (!one) return h("span", { class: "quiet" }, t("none"));
  const [worst] = [...one].sort(worse);
  const state = stateOf(worst);
  return [h("span", { class: `badge ${state}` }, percent(worst.used)), " ", h("span", { class: "quiet" }, t(HOLDS[state]))];
}

function failures(row) {
  const share = row.attempts ? row.failed / row.attempts : 0;
  return h("span", { class: share > 0.05 ? "bad" : null }, `${count(row.failed)} (${percent(share)})`);
}

/** Sums of all teams. */
export function sums({ total, pace, open_alerts: waiting, savings }) {
  const net = savings?.teams.reduce((sum, one) => (one.net_saved_usd === null ? sum : sum + 1), 0);
  return [
    tile(t("Spent"), money(total.cost_usd), pace ? paceOf(pace) : ""),
    tile(t("Saved"), savings ? money(savings.total.net_saved_usd) : "…", savings ? t("teams with a price to compare with: {0}", net) : ""),
    tile(t("Requests"), number(total.requests), tn("{0} backend calls", number(total.attempts))),
    tile(t("Failed"), number(total.failed), t("{0} of calls", percent(total.attempts ? total.failed / total.attempts : 0))),
    tile(t("Open alerts"), number(waiting), waiting ? t("see the teams below") : t("Nobody needs to act.")),
  ];
}
