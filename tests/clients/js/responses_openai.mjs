// openai over Responses: events, the stream helper, and the WebSocket. Usage: node responses_openai.mjs BASE_URL KEY.
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";

const [url, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey });
const model = "script";
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", name: "weather", description: "The weather.", parameters: schema, strict: false }];
const show = (step, values = {}) => console.log(JSON.stringify({ step, ...values }));
const question = () => [{ role: "user", content: "Weather in Oslo?" }];
const results = (items) =>
  items
    .filter((item) => item.type === "function_call")
    .map((item) => ({
      type: "function_call_output",
      call_id: item.call_id,
      output: `4 degrees in ${JSON.parse(item.arguments).city}`,
    }));

async function loop(ask) {
  let input = question();
  let previous_response_id;
  for (;;) {
    const response = await ask({ model, input, tools, previous_response_id });
    const outputs = results(response.output);
    if (!outputs.length) return response;
    [input, previous_response_id] = [outputs, response.id];
  }
}

const raw = await loop(async (body) => {
  let response;
  for await (const event of await client.responses.create({ ...body, stream: true })) response = event.response ?? response;
  return response;
});
show("raw", { text: raw.output.at(-1).content[0].text });
const helped = await loop((body) => client.responses.stream(body).finalResponse());
show("helper", { text: helped.output_text });
const whole = await loop((body) => client.responses.create(body));
show("whole", { text: whole.output_text, tokens: whole.usage.total_tokens });

const socket = new ResponsesWS(client);
const onSocket = await loop(
  (body) =>
    new Promise((resolve, reject) => {
      const listen = (event) => {
        if (event.type !== "response.completed") return;
        socket.off("event", listen);
        resolve(event.response);
      };
      socket.on("event", listen);
      socket.on("error", reject);
      socket.send({ type: "response.create", ...body, store: false });
    }),
);
socket.close();
show("socket", { text: onSocket.output.at(-1).content[0].text });
