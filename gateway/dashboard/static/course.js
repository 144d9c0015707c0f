// The chart of each budget: spend over time, the limit, and the forecast.

import { axis, inUnit, short, tick, zoned } from "./format.js";

const HEIGHT = 150;
const FLAT = 4; // a limit more than this many times above everything else would flatten the curve, so it is not drawn
const dark = matchMedia("(prefers-color-scheme: dark)");
const seconds = (text) => Date.parse(text) / 1000;

export class Courses {
  constructor(place) {
    this.place = place;
    this.budgets = [];
    this.charts = [];
    new ResizeObserver(() => this.draw()).observe(place);
    dark.addEventListener("change", () => this.draw());
  }

  /** `place` contains a `.course` element for each of `budgets` with a chart, in the same order. */
  show(budgets, now) {
    this.budgets = budgets.filter(drawable);
    this.now = now;
    this.draw();
  }

  forget() {
    for (const chart of this.charts) chart.destroy();
    this.charts = [];
    this.budgets = [];
  }

  draw() {
    const elements = [...this.place.querySelectorAll(".course")];
    if (elements.length !== this.budgets.length) return;
    for (const chart of this.charts) chart.destroy();
    this.charts = elements.flatMap((element, number) => (element.clientWidth ? [plot(element, this.budgets[number], this.now)] : []));
  }
}

export const drawable = (budget) => budget.course.length > 0 && budget.standings.length === 1;

/** Numbers are only used for the height of lines; the exact amounts are shown as text. */
function points(budget, now) {
  const { unit, standings: [standing] } = budget;
  const { forecast } = standing;
  const spent = Number(standing[`spent_${unit}`]);
  const times = [seconds(budget.start), ...budget.course.map(([at]) => seconds(at)), seconds(now), seconds(budget.end)];
  const end = times.length - 1;
  const line = (atNow, atEnd) => times.map((_, place) => (place === end ? atEnd : place === end - 1 ? atNow : null));
  const ahead = (which) => line(forecast ? spent : null, forecast ? Number(forecast[`total_${unit}${which}`]) : null);
  return [times, [0, ...budget.course.map(([, amount]) => Number(amount)), spent, null], ahead("_high"), ahead("_low"), ahead("")];
}

function plot(element, budget, now) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const data = points(budget, now);
  const limit = Number(budget.limit);
  const most = Math.max(...data.slice(1).flat());
  const shown = limit <= FLAT * most || most === 0;
  data.push(data[0].map(() => (shown ? limit : null)));
  const lines = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: `12px ${color("--font")}` };
  const mark = budget.unit === "usd" ? axis : short;
  return new uPlot({
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), budget.timezone),
    scales: { y: { range: () => [0, (shown ? Math.max(limit, most) : most) * 1.08] } },
    axes: [{ ...lines, grid: { show: false }, size: 28, space: 56, values: (_, splits) => splits.map((at) => tick(at * 1000, budget)) }, { ...lines, size: 58, space: 36, values: (_, splits) => splits.map(mark) }],
    bands: [{ series: [2, 3], fill: color("--band") }],
    series: [
      {},
      { stroke: color("--accent"), fill: color("--under"), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
      { stroke: color("--band"), width: 1, points: { show: false } },
      { stroke: color("--band"), width: 1, points: { show: false } },
      { stroke: color("--accent"), width: 2, dash: [5, 4], points: { show: false } },
      { stroke: color("--over"), width: 1.5, dash: [2, 3], points: { show: false } },
    ],
  }, data, element);
}

/** A sentence that describes the chart to screen readers. */
export function inWords(budget) {
  const { unit, standings: [standing] } = budget;
  const limit = `the limit is ${inUnit(budget.limit, unit)} until ${zoned(budget.end, budget.timezone)}`;
  return `Line chart of spend over time, now ${inUnit(String(standing[`spent_${unit}`]), unit)}; ${limit}.`;
}
