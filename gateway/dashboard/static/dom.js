// Creates elements from values. Text is never parsed as markup, whatever clients send.

import { count, inUnit, short, usd } from "./format.js";
import { said, t } from "./i18n.js";

/** `h("td", { class: "number" }, "12")`; children may be nodes, text, lists, or null for none. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** A rounded amount; the exact one is in `value` and in the tooltip. */
export function money(text) {
  return text === null ? h("span", { class: "quiet" }, t("no price")) : h("data", { value: text, title: `${text} USD` }, usd(text));
}

/** An amount in a budget's `unit`; the exact one is in `value`. */
export const amount = (text, unit) => (unit === "usd" ? money(text) : h("data", { value: text }, inUnit(text, unit)));

/** A sentence of the server: its translation, or the English text marked as English. `write` may change it. */
export const spoken = (text, write = String) => (said[text] ? write(said[text]) : h("span", { lang: "en" }, write(text)));

export const number = (value) => h("data", { value: String(value) }, count(value));

/** A large number, shortened; the exact one is in `value` and in the tooltip. */
export const rough = (value) => h("data", { value: String(value), title: count(value) }, short(value));

/** A table that scrolls on a narrow screen, also by keyboard. `columns`: [title, function from a row to the cell, optional
 *  class "number"]. */
export function table(label, columns, rows) {
  const kind = (column) => ({ class: column[2] ?? null });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", ...kind(column) }, column[0])))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((column, place) =>
      place ? h("td", { ...kind(column), "data-label": column[0] }, h("span", {}, column[1](row))) : h("th", { scope: "row", ...kind(column) }, column[1](row))))))));
}

/** A link within the page; `address` comes from route.js. */
export const to = (address, ...children) => h("a", { href: address }, ...children);

export const quiet = (...children) => h("p", { class: "quiet" }, ...children);

/** The cost of a group, with a note if some attempts have no price. */
export function spent({ cost_usd, unpriced }) {
  if (!unpriced) return money(cost_usd);
  return h("span", { class: "partly" }, Number(cost_usd) ? [money(cost_usd), " + "] : null, h("span", { class: "warn" }, t("no price")));
}

export const tile = (title, value, note = "") => h("div", { class: "tile" }, h("dt", {}, title), h("dd", {}, value), h("dd", { class: "note" }, note));

/** A bar of length `share` (0..1). The figure next to it is for screen readers. */
export function bar(share, kind = "") {
  const filled = h("span", { class: `filled ${kind}` });
  filled.style.width = `${Math.min(1, Math.max(0, share)) * 100}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, filled);
}

const painted = new Map();

/** Fill the element with `build(value)`, unless it shows the same value already. */
export function paint(id, value, build) {
  const content = JSON.stringify(value);
  if (painted.get(id) === content) return;
  painted.set(id, content);
  const element = document.getElementById(id);
  const restore = place(element);
  element.replaceChildren(...[build(value)].flat());
  restore();
}

/** Remember focus and scroll position of the tables in `element`. Returns a function that restores them. */
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

/** Empty all painted elements, so that no figures remain after signing out. */
export function forget() {
  for (const id of painted.keys()) document.getElementById(id).replaceChildren();
  painted.clear();
}
