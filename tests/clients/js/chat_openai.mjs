// openai over Chat Completions: a stream, and runTools, which runs the tool by itself, streamed and whole.
// Usage: node chat_openai.mjs BASE_URL KEY. Prints one JSON object a step.
import OpenAI from "openai";

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${baseURL}/v1`, apiKey });
const model = "script";
const show = (step, values = {}) => console.log(JSON.stringify({ step, ...values }));

let text = "";
const chunks = await client.chat.completions.create({ model, stream: true, messages: [{ role: "user", content: "Hi" }] });
for await (const chunk of chunks) text += chunk.choices[0]?.delta?.content ?? "";
show("text", { text });

for (const stream of [true, false]) {
  const cities = [];
  const run = ({ city }) => {
    cities.push(city);
    return `4 degrees in ${city}`;
  };
  const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const description = "The weather in a city.";
  const tool = { type: "function", function: { name: "weather", description, parameters, function: run, parse: JSON.parse } };
  const messages = [{ role: "user", content: "Weather in Oslo?" }];
  const runner = client.chat.completions.runTools({ model, messages, tools: [tool], stream });
  show("run", { stream, text: await runner.finalContent(), cities, roles: runner.messages.map((m) => m.role) });
}
try {
  await client.chat.completions.create({ model: "no-such-model", messages: [{ role: "user", content: "Hi" }] });
} catch (error) {
  show("not found", { code: error.code, request_id: error.requestID });
}
