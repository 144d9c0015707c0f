// How figures are written: money is exact decimal text from the server and is only ever formatted here.

const locale = "en"; // as the page itself: 1.234 must not mean two things
const formats = new Map();

function format(kind, make, value) {
  if (!formats.has(kind)) formats.set(kind, make());
  return formats.get(kind).format(value);
}

const number = (options) => () => new Intl.NumberFormat(locale, options);
const moment = (options) => () => new Intl.DateTimeFormat(locale, options);

export const count = (value) => format("count", number({}), value);

export const short = (value) => format("short", number({ notation: "compact", maximumSignificantDigits: 3 }), value);

export const percent = (share) =>
  format("percent", number({ style: "percent", maximumFractionDigits: share < 0.1 ? 1 : 0 }), share);

/** A small share, to two places: 1% and 1.4% are not the same error. */
export const exactly = (share) => format("exactly", number({ style: "percent", maximumFractionDigits: 2 }), share);

const dollars = (places) => number({
  style: "currency", currency: "USD", currencyDisplay: "narrowSymbol", minimumFractionDigits: places, maximumFractionDigits: places,
});

/** Dollars rounded for people: cents, or four places for less than a dollar, and never 0 for what is not. */
export function usd(text) {
  const size = Math.abs(Number(text));
  if (size > 0 && size < 0.00005) return `${text.startsWith("-") ? "−" : ""}< ${format("usd4", dollars(4), "0.0001")}`;
  const places = size > 0 && size < 1 ? 4 : 2;
  return format(`usd${places}`, dollars(places), text);
}

/** An amount of a budget, which is in dollars or in tokens. */
export const inUnit = (text, unit) => (unit === "usd" ? usd(text) : `${count(text)} tokens`);

/** The marks of an axis: as few places as they need. */
export const axis = (value) => format("axis", number({
  style: "currency", currency: "USD", currencyDisplay: "narrowSymbol", minimumFractionDigits: 0, maximumSignificantDigits: 3,
}), value);

export function milliseconds(ms) {
  if (ms === null) return "–";
  const [value, unit, places] = ms < 1000 ? [ms, "millisecond", 0] : [ms / 1000, "second", ms < 10_000 ? 2 : 1];
  const options = { style: "unit", unit, unitDisplay: "narrow", minimumFractionDigits: places, maximumFractionDigits: places };
  return format(`${unit}${places}`, number(options), value);
}

export const date = (text) =>
  format("date", moment({ day: "numeric", month: "short", timeZone: "UTC" }), new Date(text));

export const hour = (text) =>
  format("hour", moment({ hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: "UTC" }), new Date(text));

export const time = (text) => format("time", moment({ dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" }), new Date(text));

/** A mark below the course of a budget: an hour or a day, in the budget's own time zone. */
export function tick(at, { window, timezone: timeZone }) {
  const short = window === "hour" || window === "day";
  const options = short ? { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } : { day: "numeric", month: "short" };
  return format(`tick ${short} ${timeZone}`, moment({ ...options, timeZone }), new Date(at));
}

/** A moment of a budget's window, in the budget's own time zone. */
export function zoned(text, timeZone) {
  return format(`zoned ${timeZone}`, moment({ dateStyle: "medium", timeStyle: "short", hourCycle: "h23", timeZone }), new Date(text));
}
