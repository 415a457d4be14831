// Checks of JavaScript clients against a worker: node checks.mjs URL. Prints a line of JSON for each check, as checks.py does.
import { createRequire } from "node:module";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const baseURL = `${process.argv[2]}/v1`;
const question = "Is it sunny today? Answer briefly.";
const most = 600;
const Weather = z.object({ sunny: z.boolean(), days: z.enum(["1", "2", "3"]) });
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const asked = { model, messages: [{ role: "user", content: question }], max_tokens: 20, temperature: 0 };
const sdk = createOpenAI({ baseURL, apiKey: "none" });
const weather = tool({ description: "Forecast.", inputSchema: Weather, execute: async () => "rain" });

const checks = {
  openai: {
    chat: async () => expect((await client.chat.completions.create(asked)).usage.completion_tokens <= 20),
    stream: async () => {
      let count = 0;
      for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) count += chunk.choices.length;
      expect(count > 1);
    },
    parse: async () => {
      const format = zodResponseFormat(Weather, "weather");
      const found = await client.chat.completions.parse({ ...asked, max_tokens: most, response_format: format });
      Weather.parse(found.choices[0].message.parsed);
    },
    "responses stream": async () => {
      const stream = client.responses.stream({ model, input: question, max_output_tokens: 20, temperature: 0, stop: ["."] });
      let text = "";
      for await (const event of stream) if (event.type === "response.output_text.delta") text += event.delta;
      expect(text.length > 0);
    },
  },
  ai: {
    "responses (its default)": async () => {
      const found = await generateText({ model: sdk(model), prompt: question, maxOutputTokens: 20, temperature: 0, maxRetries: 0 });
      expect(found.usage.outputTokens <= 20);
    },
    stream: async () => {
      const found = streamText({ model: sdk(model), prompt: question, maxOutputTokens: 20, temperature: 0, maxRetries: 0 });
      let text = "";
      for await (const part of found.textStream) text += part;
      expect(text === (await found.text));
    },
    "tools and their results": async () => {
      const found = await generateText({
        model: sdk(model), prompt: question, tools: { weather }, toolChoice: "required", maxOutputTokens: most, temperature: 0,
        maxRetries: 0, stopWhen: stepCountIs(2),
      });
      expect(found.steps.length === 2 && found.steps[0].toolResults[0].output === "rain");
    },
    object: async () => {
      const output = Output.object({ schema: Weather });
      const found = await generateText({ model: sdk(model), prompt: question, output, maxOutputTokens: most, temperature: 0, maxRetries: 0 });
      Weather.parse(found.output);
    },
    "chat completions": async () => {
      const found = await generateText({ model: sdk.chat(model), prompt: question, maxOutputTokens: 20, temperature: 0, maxRetries: 0 });
      expect(found.usage.outputTokens <= 20);
    },
  },
};

for (const [name, own] of Object.entries(checks)) {
  const { version } = createRequire(import.meta.url)(`${process.cwd()}/node_modules/${name}/package.json`);
  for (const [check, run] of Object.entries(own)) {
    let error = "";
    try {
      await run();
    } catch (found) {
      error = String(found).slice(0, 300) || "failed";
      console.error(found);
    }
    console.log(JSON.stringify({ client: `${name} (npm)`, version, check, error }));
  }
}

function expect(condition) {
  if (!condition) throw new Error("not as expected");
}
