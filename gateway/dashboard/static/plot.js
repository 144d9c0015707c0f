// Bar chart of spend per day (for a short period: per hour). The table below the chart has the same figures.

import { axis, date, hour, usd } from "./format.js";

const HEIGHT = 220;
const STEPS = {
  day: { seconds: 86400, label: "Day (UTC)", write: date, marks: [1, 2, 7, 14, 28, 56] },
  hour: { seconds: 3600, label: "Hour (UTC)", write: hour, marks: [1, 3, 6, 12, 24] },
};
const dark = matchMedia("(prefers-color-scheme: dark)");

export class Plot {
  constructor(element) {
    this.element = element;
    this.rows = null;
    this.chart = null;
    new ResizeObserver(() => this.resize()).observe(element);
    dark.addEventListener("change", () => this.draw());
  }

  /** `rows`: `{day or hour, cost_usd, saved_usd}`, oldest first, without gaps. `by`: `day` or `hour`. */
  show(rows, by) {
    const same = this.chart && this.by === by && this.rows.length === rows.length && this.rows[0][by] === rows[0][by] && this.saves(rows) === this.saves(this.rows);
    this.rows = rows;
    this.by = by;
    if (same) this.chart.setData(this.points());
    else this.draw();
  }

  forget() {
    this.chart?.destroy();
    this.chart = this.rows = null;
  }

  saves(rows) {
    return rows.some((row) => Number(row.saved_usd));
  }

  points() {
    const points = [
      this.rows.map((row) => Date.parse(row[this.by]) / 1000),
      this.rows.map((row) => Number(row.cost_usd)), // only for the height of bars; labels use the exact text
    ];
    if (this.saves(this.rows)) points.push(this.rows.map((row) => Number(row.saved_usd)));
    return points;
  }

  resize() {
    if (this.chart && this.element.clientWidth) this.chart.setSize({ width: this.element.clientWidth, height: HEIGHT });
    else this.draw();
  }

  draw() {
    if (!this.rows || !this.element.clientWidth) return;
    this.chart?.destroy();
    const { seconds, label, write, marks } = STEPS[this.by];
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const lines = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: `12px ${color("--font")}` };
    const written = (name) => (_, value, series, index) => (index === null ? "–" : usd(this.rows[index][name]));
    const series = [
      { label, value: (_, value, __, index) => (index === null ? "–" : write(this.rows[index][this.by])) },
      {
        label: "Spent", value: written("cost_usd"), fill: color("--accent"), stroke: color("--accent"), width: 0,
        paths: uPlot.paths.bars({ size: [0.7, 64] }), points: { show: false },
      },
    ];
    if (this.saves(this.rows)) {
      series.push({ label: "Saved by the cache", value: written("saved_usd"), stroke: color("--cached"), width: 2, points: { size: 5 } });
    }
    this.chart = new uPlot({
      width: this.element.clientWidth,
      height: HEIGHT,
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      scales: {
        x: { range: (_, low, high) => [low - seconds / 2, high + seconds / 2] },
        y: { range: (_, __, high) => [0, high > 0 ? high * 1.1 : 1] },
      },
      axes: [
        { ...lines, grid: { show: false }, incrs: marks.map((steps) => steps * seconds), space: 64, values: (_, splits) => splits.map((at) => write(at * 1000)) },
        { ...lines, size: 64, values: (_, splits) => splits.map(axis) },
      ],
      cursor: { drag: { x: false, y: false }, y: false },
      series,
    }, this.points(), this.element);
  }
}
