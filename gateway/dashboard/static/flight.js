// Shows a flight record: the decisions for one request and their reasons.

import { h, money, table, wide } from "./dom.js";
import { milliseconds, percent } from "./format.js";

/** The argument is the flight record from /v1/requests/ID. */
export function decision({ id, route, difficulty, abstained, escalated }) {
  if (!route) return [];
  const graded = difficulty === null ? [] : [`difficulty ${percent(difficulty)}${abstained ? ", outside the grader's domain" : ""}`];
  const reasons = [route.reason, ...graded, ...(escalated ? ["then escalated to a stronger backend"] : [])];
  return [
    h("p", {}, `Chosen: ${route.order.join(", then ")} (${reasons.join("; ")})`),
    wide(`Backends considered for ${id}`, table([
      ["Backend", (one) => one.backend],
      ["Adequacy", (one) => (one.adequacy === null ? "–" : percent(one.adequacy)), "number"],
      ["Expected cost", (one) => (one.cost_usd === null ? "–" : money(one.cost_usd)), "number"],
      ["Excluded because", (one) => one.excluded ?? "–"],
    ], route.considered)),
  ];
}

export function notes({ notes }) {
  return h("ol", { class: "notes" }, notes.map(({ ms, what, ...rest }) => {
    const facts = Object.entries(rest).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
    return h("li", {}, `${milliseconds(ms)}: ${[what, ...facts].join(", ")}`);
  }));
}
