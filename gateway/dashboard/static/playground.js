// Sends a prompt with the user's key to one or two models, and shows the answers and the decisions for them.

import { h, money, number } from "./dom.js";
import { decision, notes } from "./flight.js";
import { milliseconds } from "./format.js";
import { t, tn } from "./i18n.js";
import { tierOf } from "./log.js";
import { cacheWords } from "./sections.js";

const SETTLES_MS = 300; // other workers know the record of a finished request after this time
const TRIES = 6;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Playground {
  /** `ask(body, headers, signal, heard)` resolves to `{id, answer, first, took}`, `fetchFlight(id)` to a flight record or
   *  null, `names()` to the models to choose from. */
  constructor(dialog, calls) {
    this.dialog = dialog;
    this.calls = calls;
    this.form = dialog.querySelector("form");
    this.output = dialog.querySelector("#said");
    this.asking = null;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    dialog.querySelector("#close").addEventListener("click", () => dialog.close());
    this.cancel = dialog.querySelector("#cancel");
    this.cancel.addEventListener("click", () => this.asking?.abort());
    dialog.addEventListener("close", () => this.asking?.abort());
    this.form.elements.prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.form.requestSubmit();
    });
  }

  open({ team, scopes }) {
    const may = scopes.includes("inference");
    this.form.hidden = !may;
    this.dialog.querySelector("#who").textContent = may
      ? t("This sends a real request of team {0}, which is charged and counted in the figures.", team)
      : t("This key can read figures but not send requests. To make a key for both: {0}", `thriftgate keys create --team ${team} --scope usage --scope inference`);
    this.dialog.showModal();
    (may ? this.form.elements.prompt : this.dialog.querySelector("#close")).focus();
    if (may) this.calls.names().then((names) => this.dialog.querySelector("#names").replaceChildren(...names.map((value) => h("option", { value }))), () => {});
  }

  forget() {
    this.dialog.close();
    this.form.reset();
    this.output.replaceChildren();
    this.dialog.querySelector("#names").replaceChildren();
  }

  async send() {
    this.asking?.abort();
    const mine = (this.asking = new AbortController());
    const { prompt, model, other, most, bypass } = this.form.elements;
    const names = [model.value.trim() || "auto", other.value.trim()].filter(Boolean);
    const headers = names.length > 1 || bypass.checked ? { "x-thriftgate-cache": "bypass" } : {};
    const body = { messages: [{ role: "user", content: prompt.value }], max_tokens: Number(most.value) };
    const places = names.map(() => h("section", {}));
    this.output.replaceChildren(h("div", { class: places.length > 1 ? "pair" : "" }, places));
    this.cancel.hidden = false;
    await Promise.all(names.map((name, place) => this.one(places[place], name, { model: name, ...body }, headers, mine.signal)));
    if (mine === this.asking) this.cancel.hidden = true;
    this.calls.asked();
  }

  /** Ask one model. The answer is shown in `place` while it arrives. */
  async one(place, name, body, headers, signal) {
    const answer = h("p", { class: "answer" }, t("Sending…"));
    const show = (...below) => place.replaceChildren(h("h3", {}, t("Answer of {0}", name)), answer, ...below);
    show();
    try {
      const found = await this.calls.ask(body, headers, signal, (text) => { answer.textContent = text; });
      answer.textContent = found.answer;
      show(...facts(found, await this.flight(found.id)));
    } catch (error) {
      if (signal.aborted) {
        show(h("p", { class: "notice warn" }, t("Cancelled. What was answered so far is charged.")));
        return;
      }
      const found = error.id ? await this.flight(error.id).catch(() => null) : null;
      answer.textContent = "";
      show(h("p", { class: "notice bad", lang: "en" }, error.message), ...(found ? [...decision(found), notes(found)] : []));
    }
  }

  /** If another worker served the request, its record is available a moment later. */
  async flight(id) {
    for (let tries = 0; tries < TRIES; tries++) {
      const found = await this.calls.fetchFlight(id);
      if (found) return found;
      await pause(SETTLES_MS);
    }
    return null;
  }
}

function facts({ id, first, took }, found) {
  const head = h("h3", {}, t("Decision"));
  if (!found) return [head, h("p", { class: "quiet" }, t("The flight record of {0} is not available yet.", id))];
  const served = found.attempts.findLast((attempt) => attempt.outcome === "ok") ?? found.attempts.at(-1);
  const pairs = [
    [t("Served by"), served ? `${served.backend} (${served.model}, ${tierOf(served.tier)})` : t("the cache")],
    [t("Cost"), found.cost_usd === null ? t("no price") : money(found.cost_usd)],
    [t("Cache"), cacheWords(found.cache)],
    ...(found.saved_usd === null ? [] : [[t("Saved"), money(found.saved_usd)]]),
    ...(served ? [[t("Tokens"), tn("{0} in, {1} out", number(served.input_tokens), number(served.output_tokens))]] : []),
    [t("First byte"), milliseconds(first)],
    [t("Time taken"), milliseconds(took)],
    [t("Request"), h("code", {}, id)],
  ];
  return [head,
    h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    ...decision(found),
    h("details", {}, h("summary", {}, t("Flight record")), notes(found))];
}
