// Anthropic's own Node SDK: messages, streams, tools, the tool runner, structured answers, count, errors.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { BASE, collect, includes, KEY, MODEL, raised, run, SPENT_KEY, token } from "./cases.mjs";

const client = new Anthropic({ baseURL: BASE, apiKey: KEY, maxRetries: 0 });
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = ["weather", "time"].map((name) => ({ name, description: name, input_schema: schema }));
const ask = (content, more = {}) => ({
  model: MODEL,
  max_tokens: 500,
  messages: [{ role: "user", content }],
  ...more,
});
const textOf = (message) => message.content.map((block) => block.text ?? "").join("");

await run({
  async plain() {
    const said = token();
    const answer = await client.messages.create(ask(`Say ${said}`));
    includes(textOf(answer), said);
    assert.equal(answer.stop_reason, "end_turn");
    assert.ok(answer.usage.input_tokens > 0 && answer.usage.output_tokens > 0);
  },
  async stream() {
    const said = token();
    const events = await collect(await client.messages.create(ask(`Stream ${said}`, { stream: true })));
    assert.equal(events[0].type, "message_start");
    assert.ok(events[0].message.usage.input_tokens > 0);
    assert.equal(events.at(-1).type, "message_stop");
  },
  async stream_helper() {
    const said = token();
    includes(await client.messages.stream(ask(`Help ${said}`)).finalText(), said);
  },
  async tools() {
    const said = token();
    const asked = ask(`Both for ${said} [[use weather time]]`, { tools });
    const first = await client.messages.stream(asked).finalMessage();
    assert.equal(first.stop_reason, "tool_use");
    const calls = first.content.filter((block) => block.type === "tool_use");
    assert.deepEqual(calls.map((call) => call.input), [{ city: said }, { city: said }]);
    const results = calls.map((call) => ({
      type: "tool_result",
      tool_use_id: call.id,
      content: `${call.name} of ${said}`,
    }));
    asked.messages.push({ role: "assistant", content: first.content }, { role: "user", content: results });
    includes(textOf(await client.messages.create(asked)), `weather of ${said} and time of ${said}`);
  },
  async tool_runner() {
    const said = token();
    const weather = betaZodTool({
      name: "weather",
      description: "weather",
      inputSchema: z.object({ city: z.string() }),
      run: ({ city }) => `sunny in ${city}`,
    });
    const asked = ask(`Weather in ${said} [[use weather]]`, { tools: [weather] });
    includes(textOf(await client.beta.messages.toolRunner(asked)), `sunny in ${said}`);
  },
  async parse() {
    const said = token();
    const format = zodOutputFormat(z.object({ name: z.string(), old: z.boolean() }));
    const parsed = await client.messages.parse(ask(`City ${said}`, { output_config: { format } }));
    assert.deepEqual(parsed.parsed_output, { name: said, old: true });
  },
  async thinking() {
    const said = token();
    const more = { max_tokens: 4000, thinking: { type: "enabled", budget_tokens: 1024 } };
    const answer = await client.messages.stream(ask(`Think of ${said} [[think]]`, more)).finalMessage();
    includes(answer.content.find((block) => block.type === "thinking")?.thinking, said);
    includes(textOf(answer), said);
  },
  async count_tokens() {
    const counted = await client.messages.countTokens({
      model: MODEL,
      messages: [{ role: "user", content: "one two three four five" }],
    });
    assert.ok(counted.input_tokens > 0);
  },
  async errors() {
    const create = (other, model = MODEL) => () => other.messages.create(ask("hi", { model }));
    const nobody = client.withOptions({ apiKey: "sk-nobody" });
    const unauthorised = await raised(Anthropic.AuthenticationError, create(nobody));
    assert.equal(unauthorised.error.error.type, "authentication_error");
    const unknown = await raised(Anthropic.NotFoundError, create(client, "nothing-such"));
    assert.equal(unknown.error.error.type, "not_found_error");
    await raised(Anthropic.RateLimitError, create(client.withOptions({ apiKey: SPENT_KEY })));
    const refused = () => client.messages.create(ask(`${token()} [[fail 400]]`));
    includes((await raised(Anthropic.BadRequestError, refused)).message, "Scripted refusal");
  },
  async broken_stream() {
    const asked = ask(`${token()} one two three four [[break]]`);
    await raised(Anthropic.APIError, () => client.messages.stream(asked).finalMessage());
  },
});
