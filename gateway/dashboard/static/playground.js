// Sends a prompt with the user's key and shows the decision for it.

import { h, money, number } from "./dom.js";
import { decision, notes } from "./flight.js";
import { milliseconds } from "./format.js";
import { t, tn } from "./i18n.js";
import { cacheWords } from "./request.js";

const SETTLES_MS = 300; // other workers know the record of a finished request after this time
const TRIES = 6;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Playground {
  /** `ask(body, headers, signal)` resolves to `{id, answer}`, `fetchFlight(id)` to a flight record or null. */
  constructor(dialog, { ask, fetchFlight, asked }) {
    this.dialog = dialog;
    this.calls = { ask, fetchFlight, asked };
    this.form = dialog.querySelector("form");
    this.output = dialog.querySelector("#said");
    this.asking = null;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    dialog.querySelector("#close").addEventListener("click", () => dialog.close());
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
  }

  forget() {
    this.dialog.close();
    this.form.reset();
    this.output.replaceChildren();
  }

  async send() {
    this.asking?.abort();
    const mine = (this.asking = new AbortController());
    const { prompt, model, most, bypass } = this.form.elements;
    const body = { model: model.value.trim() || "auto", messages: [{ role: "user", content: prompt.value }], max_tokens: Number(most.value) };
    this.show(h("p", { class: "quiet" }, t("Sending…")));
    const began = performance.now();
    try {
      const { id, answer } = await this.calls.ask(body, bypass.checked ? { "x-thriftgate-cache": "bypass" } : {}, mine.signal);
      const took = performance.now() - began;
      const found = await this.flight(id);
      if (mine === this.asking) this.show(...reply(id, answer, found, took));
    } catch (error) {
      if (mine !== this.asking || mine.signal.aborted) return;
      const found = error.id ? await this.flight(error.id).catch(() => null) : null;
      this.show(h("p", { class: "notice bad" }, error.message), ...(found ? [...decision(found), notes(found)] : []));
    }
    this.calls.asked();
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

  show(...elements) {
    this.output.replaceChildren(...elements);
  }
}

function reply(id, answer, found, took) {
  const shown = [h("h3", {}, t("Answer")), h("p", { class: "answer" }, answer), h("h3", {}, t("Decision"))];
  if (!found) return [...shown, h("p", { class: "quiet" }, t("The flight record of {0} is not available yet.", id))];
  const served = found.attempts.findLast((attempt) => attempt.outcome === "ok") ?? found.attempts.at(-1);
  const facts = [
    [t("Served by"), served ? `${served.backend} (${served.model}, ${served.tier})` : t("the cache")],
    [t("Cost"), found.cost_usd === null ? t("no price") : money(found.cost_usd)],
    [t("Cache"), cacheWords(found.cache)],
    ...(found.saved_usd === null ? [] : [[t("Saved"), money(found.saved_usd)]]),
    ...(served ? [[t("Tokens"), tn("{0} in, {1} out", number(served.input_tokens), number(served.output_tokens))]] : []),
    [t("Time"), milliseconds(took)],
    [t("Request"), h("code", {}, id)],
  ];
  return [...shown,
    h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    ...decision(found),
    h("details", {}, h("summary", {}, t("Flight record")), notes(found))];
}
