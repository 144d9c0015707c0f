// LangChain.js over OpenAI's chat and Responses and Anthropic's messages, and an agent on LangGraph.js.

import assert from "node:assert/strict";
import { ChatAnthropic } from "@langchain/anthropic";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { createAgent } from "langchain";
import { z } from "zod";
import { BASE, collect, EMBEDDER, includes, KEY, MODEL, raised, run, token, V1 } from "./cases.mjs";

const common = { model: MODEL, apiKey: KEY, maxRetries: 0, configuration: { baseURL: V1 } };
const models = {
  chat: new ChatOpenAI(common),
  responses: new ChatOpenAI({ ...common, useResponsesApi: true }),
  claude: new ChatAnthropic({ model: MODEL, apiKey: KEY, anthropicApiUrl: BASE, maxRetries: 0, maxTokens: 500 }),
};
const weather = tool(({ city }) => `sunny in ${city}`, {
  name: "weather",
  description: "weather",
  schema: z.object({ city: z.string() }),
});
const cases = {};

for (const [name, model] of Object.entries(models)) {
  cases[`${name}_invoke`] = async () => {
    const said = token();
    const answer = await model.invoke([["system", "Be brief."], ["user", `Say ${said}`]]);
    includes(answer.text, said);
    assert.ok(answer.usage_metadata.input_tokens > 0);
  };
  cases[`${name}_stream`] = async () => {
    const said = token();
    const chunks = await collect(await model.stream(`Stream ${said}`));
    includes(chunks.map((chunk) => chunk.text).join(""), said);
  };
  cases[`${name}_tools`] = async () => {
    const said = token();
    const bound = model.bindTools([weather]);
    const messages = [new HumanMessage(`Weather in ${said} [[use weather]]`)];
    messages.push(await bound.invoke(messages));
    const call = messages[1].tool_calls[0];
    assert.deepEqual(call.args, { city: said });
    messages.push(new ToolMessage({ content: await weather.invoke(call.args), tool_call_id: call.id }));
    includes((await bound.invoke(messages)).text, `sunny in ${said}`);
  };
  cases[`${name}_structured`] = async () => {
    const said = token();
    const schema = z.object({ name: z.string(), old: z.boolean() });
    assert.deepEqual(await model.withStructuredOutput(schema).invoke(`City ${said}`), { name: said, old: true });
  };
  cases[`${name}_agent`] = async () => {
    const said = token();
    const agent = createAgent({ model, tools: [weather] });
    const ended = await agent.invoke({ messages: [["user", `Weather in ${said} [[use weather]]`]] });
    assert.equal(ended.messages.length, 4);
    includes(ended.messages.at(-1).text, `sunny in ${said}`);
  };
}

cases.embeddings = async () => {
  const embedder = new OpenAIEmbeddings({ model: EMBEDDER, apiKey: KEY, configuration: { baseURL: V1 } });
  assert.deepEqual(await embedder.embedDocuments(["a", "bcd"]), [[1, 1, 2, 3], [3, 1, 2, 3]]);
};
cases.wrong_key = async () => {
  const nobody = new ChatOpenAI({ ...common, apiKey: "sk-nobody" });
  assert.equal((await raised(Error, () => nobody.invoke("hi"))).status, 401);
};

await run(cases);
