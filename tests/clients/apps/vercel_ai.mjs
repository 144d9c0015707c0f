// The Vercel AI SDK over OpenAI's Responses (its default) and chat, and over Anthropic's messages.

import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, embedMany, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { BASE, collect, EMBEDDER, includes, KEY, MODEL, raised, run, token, V1 } from "./cases.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const openai = createOpenAI({ baseURL: V1, apiKey: KEY });
const anthropic = createAnthropic({ baseURL: `${BASE}/v1`, apiKey: KEY });
const models = {
  responses: openai.responses(MODEL),
  chat: openai.chat(MODEL),
  claude: anthropic(MODEL),
};
const weather = tool({
  description: "weather",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `sunny in ${city}`,
});
const cases = {};

for (const [name, model] of Object.entries(models)) {
  cases[`${name}_text`] = async () => {
    const said = token();
    const answer = await generateText({ model, system: "Be brief.", prompt: `Say ${said}`, maxRetries: 0 });
    includes(answer.text, said);
    assert.equal(answer.finishReason, "stop");
    assert.ok(answer.usage.inputTokens > 0);
  };
  cases[`${name}_stream`] = async () => {
    const said = token();
    const answer = streamText({ model, prompt: `Stream ${said}`, maxRetries: 0 });
    const pieces = await collect(answer.textStream);
    assert.ok(pieces.length > 1);
    includes(pieces.join(""), said);
    assert.equal(await answer.finishReason, "stop");
  };
  cases[`${name}_tools`] = async () => {
    const said = token();
    const prompt = `Weather in ${said} [[use weather]]`;
    const answer = await generateText({ model, prompt, tools: { weather }, stopWhen: stepCountIs(3), maxRetries: 0 });
    assert.equal(answer.steps.length, 2);
    includes(answer.text, `sunny in ${said}`);
  };
  cases[`${name}_tools_streamed`] = async () => {
    const said = token();
    const prompt = `Weather in ${said} [[use weather]]`;
    const answer = streamText({ model, prompt, tools: { weather }, stopWhen: stepCountIs(3), maxRetries: 0 });
    includes((await collect(answer.textStream)).join(""), `sunny in ${said}`);
  };
  cases[`${name}_object`] = async () => {
    const said = token();
    const schema = z.object({ name: z.string(), old: z.boolean() });
    const { object } = await generateObject({ model, schema, prompt: `City ${said}`, maxRetries: 0 });
    assert.deepEqual(object, { name: said, old: true });
  };
}

cases.embeddings = async () => {
  const model = openai.embedding(EMBEDDER);
  const { embeddings } = await embedMany({ model, values: ["a", "bcd"], maxRetries: 0 });
  assert.deepEqual(embeddings, [[1, 1, 2, 3], [3, 1, 2, 3]]);
};
cases.errors = async () => {
  const nobody = createOpenAI({ baseURL: V1, apiKey: "sk-nobody" }).chat(MODEL);
  const wrong = () => generateText({ model: nobody, prompt: "hi", maxRetries: 0 });
  assert.equal((await raised(APICallError, wrong)).statusCode, 401);
  const unknown = () => generateText({ model: anthropic("nothing-such"), prompt: "hi", maxRetries: 0 });
  assert.equal((await raised(APICallError, unknown)).statusCode, 404);
};

await run(cases);
