// Shows a flight record: the decisions for one request and their reasons.

import { h, money, spoken, table } from "./dom.js";
import { grade, milliseconds, percent } from "./format.js";
import { t, tn } from "./i18n.js";

/** The argument is the flight record from /v1/requests/ID. */
export function decision({ id, route, difficulty, abstained, escalated }) {
  if (!route) return [];
  const graded = difficulty === null ? [] : [t("difficulty {0}", grade(difficulty)) + (abstained ? t(", outside the grader's domain") : "")];
  const reasons = [...graded, ...(escalated ? [t("then escalated to a stronger backend")] : [])].map((one) => `; ${one}`);
  return [
    h("p", {}, tn("Chosen: {0} ({1})", route.order.join(", "), [spoken(route.reason), ...reasons])),
    table(t("Backends considered for {0}", id), [
      [t("Backend"), (one) => one.backend],
      [t("Adequacy"), (one) => (one.adequacy === null ? "–" : percent(one.adequacy)), "number"],
      [t("Expected cost"), (one) => (one.cost_usd === null ? "–" : money(one.cost_usd)), "number"],
      [t("Excluded because"), (one) => (one.excluded ? spoken(one.excluded) : "–")],
    ], route.considered),
  ];
}

export function notes({ notes }) {
  return h("ol", { class: "notes", lang: "en" }, notes.map(({ ms, what, ...rest }) => {
    const facts = Object.entries(rest).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
    return h("li", {}, `${milliseconds(ms)}: ${[what, ...facts].join(", ")}`);
  }));
}
