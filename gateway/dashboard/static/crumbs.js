// The way from the organisation down to what is shown: team, key, end user, session, request.

import { h, to } from "./dom.js";
import { t } from "./i18n.js";
import { GROUPS, LEVELS, NONE } from "./models.js";
import { link } from "./route.js";

/** Links to the levels above, and the level that is shown. `at`: its key, end user and session. `figures`: whether the
 *  key may see more than its own requests. */
export function crumbs({ team, admin, figures, at, names, id }) {
  const way = admin ? [[t("Organisation (all teams)"), link("teams", { team: null })]] : [];
  if (team) way.push([t("Team {0}", team), link(figures ? "overview" : "requests", { team })]);
  const filters = { team };
  LEVELS.forEach((level, place) => {
    if (!at[level]) return;
    filters[level] = at[level];
    const next = LEVELS[place + 1];
    way.push([`${t(GROUPS[level])} ${at[level] === NONE ? t("none") : names[at[level]] ?? at[level]}`, figures && next ? link("models", { ...filters, by: next }) : link("requests", filters)]);
  });
  if (id) way.push([`${t("Request")} ${id}`]);
  return way.map(([text, address], place) => [place ? " › " : "", place < way.length - 1 ? to(address, text) : h("span", { "aria-current": "page" }, text)]).flat();
}
