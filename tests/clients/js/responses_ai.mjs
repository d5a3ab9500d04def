// ai with @ai-sdk/openai over Responses: streamText and generateText with one tool that they run. Its second request
// refers to the items of the first answer by their ids, unless store is false. Usage: SCRIPT BASE_URL KEY.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, apiKey] = process.argv.slice(2);
const model = createOpenAI({ baseURL: `${baseURL}/v1`, apiKey }).responses("script");
const options = (openai) => ({
  model,
  prompt: "Weather in Oslo?",
  stopWhen: stepCountIs(5),
  tools: {
    weather: tool({
      description: "The weather in a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => `4 degrees in ${city}`,
    }),
  },
  providerOptions: { openai },
});
const steps = (list) =>
  list.map((step) => ({
    text: step.text,
    calls: step.toolCalls.map((call) => [call.toolName, call.input]),
    finish: step.finishReason,
    tokens: step.usage.inputTokens,
  }));

const streamed = streamText(options({}));
const kinds = new Set();
for await (const part of streamed.fullStream) kinds.add(part.type);
console.log(JSON.stringify({ kinds: [...kinds].sort(), steps: steps(await streamed.steps) }));
const whole = await generateText(options({}));
console.log(JSON.stringify({ text: whole.text, steps: steps(whole.steps) }));
const stateless = { store: false, reasoningSummary: "auto", include: ["reasoning.encrypted_content"] };
const alone = await generateText(options(stateless));
console.log(JSON.stringify({ text: alone.text, steps: steps(alone.steps) }));
