// ai over Chat Completions, with both of its providers: streamText and generateText with one tool that they run.
// Usage: node chat_ai.mjs BASE_URL KEY. Prints one JSON object a run.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [url, apiKey] = process.argv.slice(2);
const baseURL = `${url}/v1`;
const models = {
  openai: createOpenAI({ baseURL, apiKey }).chat("script"),
  compatible: createOpenAICompatible({ name: "gw", baseURL, apiKey, includeUsage: true })("script"),
};
const options = (model) => ({
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
});
const steps = (list) =>
  list.map((step) => ({
    text: step.text,
    reasoning: step.reasoningText,
    calls: step.toolCalls.map((call) => [call.toolName, call.input]),
    finish: step.finishReason,
    tokens: step.usage.inputTokens,
  }));

for (const [provider, model] of Object.entries(models)) {
  const streamed = streamText(options(model));
  const errors = [];
  for await (const part of streamed.fullStream) if (part.type === "error") errors.push(String(part.error));
  console.log(JSON.stringify({ provider, errors, steps: steps(await streamed.steps) }));
  const whole = await generateText(options(model));
  console.log(JSON.stringify({ provider, errors: [], steps: steps(whole.steps) }));
}
