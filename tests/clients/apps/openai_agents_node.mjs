// OpenAI's Agents SDK for Node, over Responses and over chat: tools, streams, structured answers, hand-offs.

import assert from "node:assert/strict";
import {
  Agent,
  OpenAIChatCompletionsModel,
  OpenAIResponsesModel,
  Runner,
  setTracingDisabled,
  tool,
} from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { collect, includes, KEY, MODEL, run, token, V1 } from "./cases.mjs";

setTracingDisabled(true);
const client = new OpenAI({ baseURL: V1, apiKey: KEY, maxRetries: 0 });
const runner = new Runner({ tracingDisabled: true });
const weather = tool({
  name: "weather",
  description: "weather",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `sunny in ${city}`,
});
const models = {
  responses: new OpenAIResponsesModel(client, MODEL),
  chat: new OpenAIChatCompletionsModel(client, MODEL),
};
const cases = {};

for (const [name, model] of Object.entries(models)) {
  cases[`${name}_tools`] = async () => {
    const said = token();
    const agent = new Agent({ name: "weather", model, tools: [weather] });
    const ended = await runner.run(agent, `Weather in ${said} [[use weather]]`);
    includes(ended.finalOutput, `sunny in ${said}`);
  };
  cases[`${name}_streamed`] = async () => {
    const said = token();
    const agent = new Agent({ name: "weather", model, tools: [weather] });
    const streamed = await runner.run(agent, `Weather in ${said} [[use weather]]`, { stream: true });
    const events = await collect(streamed);
    await streamed.completed;
    assert.ok(events.some((event) => event.type === "raw_model_stream_event"));
    includes(streamed.finalOutput, `sunny in ${said}`);
  };
  cases[`${name}_structured`] = async () => {
    const said = token();
    const outputType = z.object({ name: z.string(), old: z.boolean() });
    const ended = await runner.run(new Agent({ name: "city", model, outputType }), `City ${said}`);
    assert.deepEqual(ended.finalOutput, { name: said, old: true });
  };
  cases[`${name}_handoff`] = async () => {
    const said = token();
    const helper = new Agent({ name: "helper", model });
    const first = new Agent({ name: "first", model, handoffs: [helper] });
    const ended = await runner.run(first, `For ${said} [[use transfer_to_helper]]`);
    assert.equal(ended.lastAgent.name, "helper");
    includes(ended.finalOutput, said);
  };
}

await run(cases);
