// ai with @ai-sdk/anthropic: streamText and generateText with one tool that they run. Usage: SCRIPT BASE_URL KEY.
import { createAnthropic } from "@ai-sdk/anthropic";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, apiKey] = process.argv.slice(2);
const model = createAnthropic({ baseURL: `${baseURL}/v1`, apiKey })("script");
const options = () => ({
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
  providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } },
});
const steps = (list) =>
  list.map((step) => ({
    text: step.text,
    reasoning: step.reasoningText,
    calls: step.toolCalls.map((call) => [call.toolName, call.input]),
    finish: step.finishReason,
    tokens: step.usage.inputTokens,
  }));

const streamed = streamText(options());
const kinds = new Set();
for await (const part of streamed.fullStream) kinds.add(part.type);
console.log(JSON.stringify({ kinds: [...kinds].sort(), steps: steps(await streamed.steps) }));
const whole = await generateText(options());
console.log(JSON.stringify({ text: whole.text, steps: steps(whole.steps) }));
