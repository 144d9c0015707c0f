// How figures are written: money is exact decimal text from the server and is only ever formatted here.

const locale = undefined; // the reader's own
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

const dollars = (places) => number({
  style: "currency", currency: "USD", currencyDisplay: "narrowSymbol", minimumFractionDigits: places, maximumFractionDigits: places,
});

/** Dollars rounded for people: cents, or four places for less than a dollar, and never 0 for what is not. */
export function usd(text) {
  const size = Math.abs(Number(text));
  if (size > 0 && size < 0.00005) return `< ${format("usd4", dollars(4), "0.0001")}`;
  const places = size > 0 && size < 1 ? 4 : 2;
  return format(`usd${places}`, dollars(places), text);
}

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

export const time = (text) => format("time", moment({ dateStyle: "medium", timeStyle: "medium" }), new Date(text));

/** A moment of a budget's window, in the budget's own time zone. */
export function zoned(text, timeZone) {
  return format(`zoned ${timeZone}`, moment({ dateStyle: "medium", timeStyle: "short", timeZone }), new Date(text));
}
