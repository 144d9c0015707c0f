// A flight record as elements: what was decided for one request, and why.

import { h, money, table, wide } from "./dom.js";
import { milliseconds, percent } from "./format.js";

/** `found`: what /v1/requests/ID answered. */
export function decision({ id, route, difficulty, abstained, escalated }) {
  if (!route) return [];
  const graded = difficulty === null ? [] : [`difficulty ${percent(difficulty)}${abstained ? ", unlike what the grader knows" : ""}`];
  const told = [route.reason, ...graded, ...(escalated ? ["a stronger backend answered in the end"] : [])];
  return [
    h("p", {}, `Chosen: ${route.order.join(", then ")} (${told.join("; ")})`),
    wide(`Backends considered for ${id}`, table([
      ["Considered", (one) => one.backend],
      ["Good enough with", (one) => (one.adequacy === null ? "–" : percent(one.adequacy)), "number"],
      ["Expected cost", (one) => (one.cost_usd === null ? "–" : money(one.cost_usd)), "number"],
      ["Left out because", (one) => one.excluded ?? "–"],
    ], route.considered)),
  ];
}

export function notes({ notes }) {
  return h("ol", { class: "notes" }, notes.map(({ ms, what, ...rest }) => {
    const told = Object.entries(rest).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
    return h("li", {}, `${milliseconds(ms)}: ${[what, ...told].join(", ")}`);
  }));
}
