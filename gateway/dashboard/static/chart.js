// Charts as SVG: spend over time by model or team, and the course of a budget. Colours come from the style sheet.

import { h } from "./dom.js";
import { axis, date, hour, inUnit, short, tick, usd, zoned } from "./format.js";
import { t } from "./i18n.js";

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 60;
const FLAT = 4; // a limit more than this many times above everything else would flatten the curve, so it is not drawn
const seconds = (text) => Date.parse(text) / 1000;

function s(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Round numbers from 0 to at least `most`, at most about four. */
function marks(most) {
  const rough = (most || 1) / 3;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((times) => times * unit >= rough) * unit;
  return Array.from({ length: Math.ceil((most || 1) / step - 1e-9) + 1 }, (_, place) => place * step);
}

function grid(svg, width, height, most, write) {
  const found = marks(most);
  const top = found.at(-1);
  const y = (value) => 8 + (height - 32) * (1 - value / top);
  for (const value of found) {
    svg.append(s("line", { class: "grid", x1: LEFT, x2: width, y1: y(value), y2: y(value) }), s("text", { class: "mark", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, write(value)));
  }
  return y;
}

/** Redraws when the width changes. */
class Drawn {
  constructor(element) {
    this.element = element;
    this.data = null;
    this.width = 0;
    new ResizeObserver(() => element.clientWidth !== this.width && this.draw()).observe(element);
  }

  draw() {
    this.width = this.element.clientWidth;
    if (this.data && this.width) this.paint(this.width);
  }

  forget() {
    this.data = null;
    this.element.replaceChildren();
    this.element.removeAttribute("aria-label");
  }
}

/** Bars of spend by step, stacked by name. */
export class Stack extends Drawn {
  /** `steps`: `{at, parts: [USD as text], total}`, oldest first, without gaps. `names`: of the parts. `by`: day or hour. */
  show(data) {
    const content = JSON.stringify(data);
    if (content === this.content && this.data) return;
    this.content = content;
    this.data = data;
    this.element.setAttribute("aria-label", describe(data));
    this.draw();
  }

  paint(width) {
    const { steps, names, by } = this.data;
    const height = 230;
    const write = by === "hour" ? hour : date;
    const most = Math.max(...steps.map((step) => Number(step.total)));
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
    const y = grid(svg, width, height, most, axis);
    const each = (width - LEFT) / steps.length;
    const bar = Math.min(56, each * 0.72);
    const wide = 6.5 * Math.max(...steps.map((step) => write(step.at).length)); // of a label, about
    const every = Math.ceil(Math.max(76, wide + 16) / each);
    const said = h("p", { class: "pointed quiet" });
    steps.forEach((step, place) => {
      const x = LEFT + each * place + (each - bar) / 2;
      let base = 0;
      step.parts.forEach((part, number) => {
        const value = Number(part); // only for the height of bars; labels use the exact text
        if (value > 0) svg.append(s("rect", { class: `c${number}`, x, width: bar, y: y(base + value), height: Math.max(0.5, y(base) - y(base + value)) }));
        base += value;
      });
      const beyond = Math.max(0, x + bar / 2 + wide / 2 - width); // the label is moved to the left by this
      const fits = place < every || every * each - beyond >= wide + 6;
      if (place % every === 0 && fits) svg.append(s("text", { class: "mark", x: x + bar / 2 - beyond, y: height - 6, "text-anchor": "middle" }, write(step.at)));
    });
    const line = s("line", { class: "pointer", y1: 8, y2: height - 24, x1: -9, x2: -9 });
    svg.append(line);
    const point = (event) => {
      const place = Math.floor((event.clientX - svg.getBoundingClientRect().left - LEFT) / each);
      const step = steps[Math.min(steps.length - 1, Math.max(0, place))];
      const x = LEFT + each * (steps.indexOf(step) + 0.5);
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
      const parts = step.parts.map((part, number) => [named(names[number]), part]).filter(([, part]) => Number(part));
      said.replaceChildren(h("strong", {}, `${write(step.at)}: ${usd(step.total)}`), parts.map(([name, part]) => ` · ${name} ${usd(part)}`).join(""));
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    const legend = h("p", { class: "key" }, names.map((name, number) => h("span", {}, h("span", { class: `swatch c${number}`, "aria-hidden": "true" }), named(name))));
    said.textContent = t("Choose a bar to see its figures.");
    this.element.replaceChildren(svg, said, legend);
  }
}

const named = (name) => (name === "" ? t("others") : name);

/** A sentence that describes the chart to screen readers. */
function describe({ steps, by }) {
  const dearest = steps.reduce((most, step) => (Number(step.total) > Number(most.total) ? step : most));
  return t("Bar chart of the cost of each of {0} {1}; the most expensive is {2} with {3}. The table below lists all.", steps.length, t(by === "hour" ? "hours" : "days"), (by === "hour" ? hour : date)(dearest.at), usd(dearest.total));
}

export const drawable = (budget) => budget.course.length > 0 && budget.standings.length === 1;

/** The course of a budget: spend so far, forecast with its interval, and limit. */
export class Course extends Drawn {
  show(budget, now) {
    this.data = { budget, now };
    this.draw();
  }

  paint(width) {
    const { budget, now } = this.data;
    const { unit, standings: [standing] } = budget;
    const { forecast } = standing;
    const height = 150;
    const spent = Number(standing[`spent_${unit}`]);
    const [start, end, at] = [budget.start, budget.end, now].map(seconds);
    const ahead = (which) => Number(forecast?.[`total_${unit}${which}`] ?? spent);
    const highest = Math.max(spent, ahead("_high"));
    const limit = Number(budget.limit);
    const shown = limit <= FLAT * highest || highest === 0;
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
    const y = grid(svg, width, height, shown ? Math.max(limit, highest) : highest, unit === "usd" ? axis : short);
    const x = (moment) => LEFT + (width - LEFT - 4) * ((moment - start) / (end - start));
    const points = [[start, 0], ...budget.course.map(([moment, amount]) => [seconds(moment), Number(amount)]), [at, spent]];
    const path = points.map(([moment, amount], place) => (place ? `H${x(moment)}V${y(amount)}` : `M${x(moment)} ${y(amount)}`)).join("");
    svg.append(s("path", { class: "under", d: `${path}V${y(0)}H${x(start)}Z` }), s("path", { class: "spent", d: path }));
    if (forecast && forecast[`total_${unit}`] !== null) {
      // Each line meets the limit when the text says so: the higher the spend, the earlier.
      const line = (which, when) => {
        const met = seconds(forecast[`exhausted_at${when}`] ?? end);
        return [...(spent < limit && met < end ? [[met, limit]] : []), [end, ahead(which)]].map(([moment, value]) => `${x(moment)} ${y(value)}`);
      };
      const from = `${x(at)} ${y(spent)}`;
      const band = [from, ...line("_high", "_low"), ...line("_low", "_high").reverse()];
      svg.append(s("path", { class: "band", d: `M${band.join("L")}Z` }), s("path", { class: "ahead", d: `M${[from, ...line("", "")].join("L")}` }));
    }
    if (shown) svg.append(s("line", { class: "limit", x1: LEFT, x2: width - 4, y1: y(limit), y2: y(limit) }));
    for (const [moment, anchor] of [[start, "start"], [(start + end) / 2, "middle"], [end, "end"]]) {
      svg.append(s("text", { class: "mark", x: x(moment), y: height - 6, "text-anchor": anchor }, tick(moment * 1000, budget)));
    }
    this.element.replaceChildren(svg);
  }
}

/** A sentence that describes the course of a budget to screen readers. */
export function inWords(budget) {
  const { unit, standings: [standing] } = budget;
  return t("Line chart of spend over time, now {0}; the limit is {1} until {2}.", inUnit(String(standing[`spent_${unit}`]), unit), inUnit(budget.limit, unit), zoned(budget.end, budget.timezone));
}
