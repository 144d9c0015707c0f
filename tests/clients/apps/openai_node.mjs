// OpenAI's own Node SDK: chat, streams, tools, structured answers, responses, embeddings, completions, errors.

import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { collect, EMBEDDER, includes, KEY, MODEL, raised, run, SPENT_KEY, token, V1 } from "./cases.mjs";

const client = new OpenAI({ baseURL: V1, apiKey: KEY, maxRetries: 0 });
const City = z.object({ name: z.string(), people: z.number() });
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "weather", parameters, strict: true } }];
const flat = ["weather", "time"].map((name) => ({ type: "function", name, parameters, strict: true }));
const user = (content) => [{ role: "user", content }];

await run({
  async plain() {
    const said = token();
    const answer = await client.chat.completions.create({ model: MODEL, messages: user(`Say ${said}`) });
    includes(answer.choices[0].message.content, said);
    assert.ok(answer.usage.prompt_tokens > 0 && answer.usage.completion_tokens > 0);
  },
  async stream() {
    const said = token();
    const chunks = await collect(
      await client.chat.completions.create({
        model: MODEL,
        messages: user(`Stream ${said}`),
        stream: true,
        stream_options: { include_usage: true },
      }),
    );
    includes(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), said);
    assert.ok(chunks.at(-1).usage.prompt_tokens > 0);
  },
  async stream_helper() {
    const said = token();
    const helper = client.chat.completions.stream({ model: MODEL, messages: user(`Help ${said}`) });
    includes(await helper.finalContent(), said);
  },
  async tools() {
    const said = token();
    const messages = user(`Weather in ${said} [[use weather]]`);
    const first = (await client.chat.completions.create({ model: MODEL, messages, tools })).choices[0];
    assert.equal(first.finish_reason, "tool_calls");
    const call = first.message.tool_calls[0];
    assert.deepEqual(JSON.parse(call.function.arguments), { city: said });
    messages.push(first.message, { role: "tool", tool_call_id: call.id, content: `sunny in ${said}` });
    const last = await client.chat.completions.create({ model: MODEL, messages, tools });
    includes(last.choices[0].message.content, `sunny in ${said}`);
  },
  async tool_runner() {
    const said = token();
    const weather = {
      type: "function",
      function: {
        name: "weather",
        description: "weather",
        parameters,
        parse: JSON.parse,
        function: ({ city }) => `sunny in ${city}`,
      },
    };
    const runner = client.chat.completions.runTools({
      model: MODEL,
      messages: user(`Weather in ${said} [[use weather]]`),
      tools: [weather],
      stream: true,
    });
    includes(await runner.finalContent(), `sunny in ${said}`);
  },
  async parse() {
    const said = token();
    const parsed = await client.chat.completions.parse({
      model: MODEL,
      messages: user(`City ${said}`),
      response_format: zodResponseFormat(City, "city"),
    });
    assert.deepEqual(parsed.choices[0].message.parsed, { name: said, people: 1.5 });
  },
  async responses() {
    const said = token();
    const answer = await client.responses.create({ model: MODEL, input: `Say ${said}` });
    assert.equal(answer.status, "completed");
    includes(answer.output_text, said);
  },
  async responses_stream() {
    const said = token();
    const helper = client.responses.stream({ model: MODEL, input: `Stream ${said} [[think]]` });
    const events = await collect(helper);
    assert.equal(events.at(-1).type, "response.completed");
    includes((await helper.finalResponse()).output_text, said);
  },
  async responses_tools() {
    const said = token();
    const input = user(`Both for ${said} [[use weather time]]`);
    const first = await client.responses.create({ model: MODEL, input, tools: flat });
    const calls = first.output.filter((item) => item.type === "function_call");
    assert.deepEqual(calls.map((call) => call.name), ["weather", "time"]);
    input.push(...first.output);
    for (const call of calls) {
      input.push({ type: "function_call_output", call_id: call.call_id, output: `${call.name} of ${said}` });
    }
    const last = await client.responses.create({ model: MODEL, input, tools: flat });
    includes(last.output_text, `weather of ${said} and time of ${said}`);
  },
  async responses_parse() {
    const said = token();
    const parsed = await client.responses.parse({
      model: MODEL,
      input: `City ${said}`,
      text: { format: zodTextFormat(City, "city") },
    });
    assert.deepEqual(parsed.output_parsed, { name: said, people: 1.5 });
  },
  async embeddings() {
    const answer = await client.embeddings.create({ model: EMBEDDER, input: ["a", "bcd"] });
    assert.deepEqual(answer.data.map((row) => [...row.embedding]), [[1, 1, 2, 3], [3, 1, 2, 3]]);
  },
  async completions() {
    const said = token();
    const answer = await client.completions.create({ model: MODEL, prompt: `Say ${said}` });
    includes(answer.choices[0].text, said);
  },
  async models() {
    const found = await collect(client.models.list());
    assert.ok(found.some((model) => model.id === MODEL));
  },
  async errors() {
    const ask = (other, model = MODEL) => other.chat.completions.create({ model, messages: user("hi") });
    const nobody = client.withOptions({ apiKey: "sk-nobody" });
    assert.equal((await raised(OpenAI.AuthenticationError, () => ask(nobody))).code, "invalid_api_key");
    assert.equal((await raised(OpenAI.NotFoundError, () => ask(client, "nothing-such"))).code, "model_not_found");
    const spent = client.withOptions({ apiKey: SPENT_KEY });
    assert.equal((await raised(OpenAI.RateLimitError, () => ask(spent))).code, "insufficient_quota");
    const refused = () => client.responses.create({ model: MODEL, input: `${token()} [[fail 400]]` });
    includes((await raised(OpenAI.BadRequestError, refused)).message, "Scripted refusal");
  },
  async broken_stream() {
    const messages = user(`${token()} one two three four [[break]]`);
    await raised(OpenAI.APIError, async () =>
      collect(await client.chat.completions.create({ model: MODEL, messages, stream: true })),
    );
  },
});
