// @anthropic-ai/sdk: a stream, a tool loop with thinking sent back, the tool runner, counting, models, errors.
// Usage: node anthropic_sdk.mjs BASE_URL KEY. Prints one JSON object a step.
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

const [baseURL, key] = process.argv.slice(2);
const client = new Anthropic({ baseURL, authToken: key, apiKey: null });
const model = "script";
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tool = { name: "weather", description: "The weather in a city.", input_schema: schema };
const show = (step, values = {}) => console.log(JSON.stringify({ step, ...values }));
const question = () => [{ role: "user", content: "Weather in Oslo?" }];

const stream = client.messages.stream({ model, max_tokens: 100, messages: [{ role: "user", content: "Hi" }] });
let text = "";
stream.on("text", (piece) => (text += piece));
await stream.finalMessage();
show("text", { text });

for (const streams of [true, false]) {
  const messages = question();
  const body = { model, max_tokens: 2000, tools: [tool], thinking: { type: "enabled", budget_tokens: 1024 } };
  for (;;) {
    const message = streams
      ? await client.messages.stream({ ...body, messages }).finalMessage()
      : await client.messages.create({ ...body, messages });
    show("message", message);
    if (message.stop_reason !== "tool_use") break;
    messages.push({ role: "assistant", content: message.content });
    const calls = message.content.filter((block) => block.type === "tool_use");
    const result = (call) => ({ type: "tool_result", tool_use_id: call.id, content: `4 degrees in ${call.input.city}` });
    messages.push({ role: "user", content: calls.map(result) });
  }
}

const run = async ({ city }) => `4 degrees in ${city}`;
const runnable = betaTool({ name: "weather", description: tool.description, inputSchema: schema, run });
const options = { model, max_tokens: 500, messages: question(), tools: [runnable], stream: true };
const last = await client.beta.messages.toolRunner(options).runUntilDone();
show("runner", { content: last.content });

const count = await client.messages.countTokens({ model, messages: [{ role: "user", content: "Hello there" }] });
show("count", { tokens: count.input_tokens });
const ids = [];
for await (const entry of client.models.list()) ids.push(entry.id);
show("models", { ids });
try {
  await client.messages.create({ model: "no-such-model", max_tokens: 1, messages: question() });
} catch (error) {
  show("not found", { status: error.status, kind: error.error.error.type, request_id: error.requestID });
}
show("end");
