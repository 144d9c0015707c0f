// Formats figures. Money is exact decimal text from the server; it is only formatted here, never computed.

import { language, locale, t } from "./i18n.js"; // the page's language, so that 1.234 has one meaning

const formats = new Map();

function format(kind, make, value) {
  if (!formats.has(kind)) formats.set(kind, make());
  return formats.get(kind).format(value);
}

const number = (options) => () => new Intl.NumberFormat(locale, options);
const moment = (options) => () => new Intl.DateTimeFormat(locale, options);

export const count = (value) => format("count", number({ useGrouping: "always" }), value);

export const short = (value) => format("short", number({ notation: "compact", maximumSignificantDigits: 3 }), value);

export function percent(share) {
  const places = share < 0.1 ? 1 : 0;
  return format(`percent${places}`, number({ style: "percent", maximumFractionDigits: places }), share);
}

/** A small share with two decimals, to distinguish for example 1% from 1.4%. */
export const exactly = (share) => format("exactly", number({ style: "percent", maximumFractionDigits: 2 }), share);

/** A difficulty from 0 to 1 with two decimals, rounded as the server rounds it in its sentences. */
export const grade = (difficulty) => format("grade", number({ minimumFractionDigits: 2 }), Number(difficulty.toFixed(2)));

/** A tenth of the difficulty, as the label of a column. */
export const tenth = (difficulty) => format("tenth", number({ minimumFractionDigits: 1, maximumFractionDigits: 1 }), difficulty);

/** The dollar's sign and the separator of thousands are those of the server's translated sentences. */
const currency = { useGrouping: "always", style: "currency", currency: "USD", currencyDisplay: language === "pt" ? "symbol" : "narrowSymbol" };

const dollars = (places) => number({
  ...currency, minimumFractionDigits: places, maximumFractionDigits: places,
});

/** Rounded dollars: two decimals, four below a dollar, and never 0 for an amount that is not 0. */
export function usd(text) {
  const size = Math.abs(Number(text));
  if (size > 0 && size < 0.00005) return `${text.startsWith("-") ? "−" : ""}< ${format("usd4", dollars(4), "0.0001")}`;
  const places = size > 0 && size < 1 ? 4 : 2;
  return format(`usd${places}`, dollars(places), text);
}

/** An amount of a budget in USD or tokens. */
export const inUnit = (text, unit) => (unit === "usd" ? usd(text) : t("{0} tokens", count(text)));

/** A label of an axis, with as few decimals as possible. */
export const axis = (value) => format("axis", number({
  ...currency, minimumFractionDigits: 0, maximumSignificantDigits: 3,
}), value);

export function milliseconds(ms) {
  if (ms === null) return "–";
  const [value, unit, places] = ms < 1000 ? [ms, "millisecond", 0] : [ms / 1000, "second", ms < 10_000 ? 2 : 1];
  const options = { style: "unit", unit, unitDisplay: "narrow", minimumFractionDigits: places, maximumFractionDigits: places };
  return format(`${unit}${places}`, number(options), value);
}

export const date = (text) =>
  format("date", moment({ day: "numeric", month: "short", timeZone: "UTC" }), new Date(text));

export const day = (text) => format("day", moment({ dateStyle: "medium", timeZone: "UTC" }), new Date(text));

export const month = (text) =>
  format("month", moment({ month: "long", year: "numeric", timeZone: "UTC" }), new Date(text));

export const hour = (text) =>
  format("hour", moment({ hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: "UTC" }), new Date(`${text}Z`));

let zone = "UTC";
/** Show times in the team's time zone. Days and hours of spend are the zone's already. */
export const setZone = (name = "UTC") => { zone = name; };

export const time = (text) => format(`time ${zone}`, moment({ timeZone: zone, year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" }), new Date(text));

/** A time label of a budget's chart: an hour or a day, in the budget's time zone. */
export function tick(at, { window, timezone: timeZone }) {
  const short = window === "hour" || window === "day";
  const options = short ? { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } : { day: "numeric", month: "short" };
  return format(`tick ${short} ${timeZone}`, moment({ ...options, timeZone }), new Date(at));
}

/** Date and time in the budget's time zone. */
export function zoned(text, timeZone) {
  return format(`zoned ${timeZone}`, moment({ dateStyle: "medium", timeStyle: "short", hourCycle: "h23", timeZone }), new Date(text));
}
