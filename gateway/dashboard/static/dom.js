// Elements from values. Text is only ever text: what clients send never becomes markup.

import { count, inUnit, short, usd } from "./format.js";

/** `h("td", { class: "number" }, "12")`; children may be nodes, text, lists, or null for none. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null));
  return element;
}

/** An amount: rounded to read, exact in `value` and on hovering. */
export function money(text) {
  return text === null ? h("span", { class: "quiet" }, "no price") : h("data", { value: text, title: `${text} USD` }, usd(text));
}

/** A number of a budget's `unit`, exact in `value`. */
export const amount = (text, unit) => (unit === "usd" ? money(text) : h("data", { value: text }, inUnit(text, unit)));

export const number = (value) => h("data", { value: String(value) }, count(value));

/** A large number, short to read, exact in `value` and on hovering. */
export const rough = (value) => h("data", { value: String(value), title: count(value) }, short(value));

/** A table from `[title, cell of a row, "number"?]` columns. */
export function table(columns, rows) {
  const kind = (column) => ({ class: column[2] ?? null });
  return h("table", {},
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", ...kind(column) }, column[0])))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((column, place) =>
      place ? h("td", kind(column), column[1](row)) : h("th", { scope: "row", ...kind(column) }, column[1](row)))))));
}

/** On a narrow screen `table` scrolls by itself, by keyboard too. */
export const wide = (label, table) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);

/** What a group has cost; where attempts have no price that is said, for unknown is not zero. */
export function spent({ cost_usd, unpriced }) {
  if (!unpriced) return money(cost_usd);
  return h("span", { class: "partly" }, Number(cost_usd) ? [money(cost_usd), " + "] : null, h("span", { class: "warn" }, "no price"));
}

/** A bar `share` (0..1) long; the figure beside it says the same in words. */
export function bar(share, kind = "") {
  const filled = h("span", { class: `filled ${kind}` });
  filled.style.width = `${Math.min(1, Math.max(0, share)) * 100}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, filled);
}

const painted = new Map();

/** Fill the element with what `build` makes of `value`, unless that is what it shows already. */
export function paint(id, value, build) {
  const said = JSON.stringify(value);
  if (painted.get(id) === said) return;
  painted.set(id, said);
  const element = document.getElementById(id);
  const restore = place(element);
  element.replaceChildren(...[build(value)].flat());
  restore();
}

/** Where the reader is inside `element`: what is focused, how far tables are scrolled. */
function place(element) {
  const regions = () => [...element.querySelectorAll(".scroll")];
  const before = regions().map((region) => [region.scrollLeft, region.scrollTop, region === document.activeElement]);
  return () => regions().forEach((region, number) => {
    const [left, top, focused] = before[number] ?? [0, 0, false];
    region.scrollLeft = left;
    region.scrollTop = top;
    if (focused) region.focus({ preventScroll: true });
  });
}

/** Empty everything that was painted: figures must not outlive the key that they were fetched with. */
export function forget() {
  for (const id of painted.keys()) document.getElementById(id).replaceChildren();
  painted.clear();
}
