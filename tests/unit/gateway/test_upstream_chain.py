"""One Headrace in front of another, whose model is a script: what clients see through both."""

import subprocess
import sys

import httpx
from openai import AsyncOpenAI

from gateway.scripted import ScriptLine
from gateway.upstream_backend import UpstreamBackend
from gateway.upstream_settings import UpstreamSettings
from tests.testkit.gateway_kit import MODEL, running_gateway, scripted, weather_tool

CALL = '<think>Where?</think>So: <tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def sdk(gateway):
    plain = httpx.AsyncClient(trust_env=False, verify=False)
    return AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", http_client=plain, max_retries=0)


async def test_calls_and_reasoning_survive_two_gateways_and_the_engines_errors_too():
    lines = [ScriptLine(CALL), ScriptLine(CALL), ScriptLine("It rains.", finish="length")]
    async with running_gateway(scripted(*lines)) as engine:
        backend = UpstreamBackend(UpstreamSettings(f"{engine.url}/v1"), 8)
        await backend.start()
        async with running_gateway(backend) as gateway, sdk(gateway) as client:
            messages = [{"role": "user", "content": "Weather?"}]
            given = {"model": MODEL, "messages": messages, "tools": [weather_tool()]}
            stream = client.chat.completions.stream(**given, stream_options={"include_usage": True})
            async with stream as events:
                completion = await events.get_final_completion()
            response = await client.responses.create(
                model=MODEL, input="Weather?", tools=[{"type": "function", **weather_tool()["function"]}]
            )
            cut = await client.chat.completions.create(model=MODEL, messages=messages)
            async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, verify=False) as http:
                unscripted = await http.post("/v1/chat/completions", json={"model": MODEL, "messages": messages})
                unknown = await http.post("/v1/chat/completions", json={"model": "x", "messages": messages})
            await engine.settled()

    [choice] = completion.choices
    assert choice.finish_reason == "tool_calls"
    assert (choice.message.content, choice.message.reasoning_content) == ("So:", "Where?")
    assert choice.message.tool_calls[0].function.arguments == '{"city": "Oslo"}'
    assert completion.usage.prompt_tokens > 0
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("It rains.", "length")
    assert (unscripted.status_code, unscripted.json()["error"]["code"]) == (400, "script_no_match")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


def test_nothing_of_an_engine_is_loaded_in_front_of_an_upstream():
    code = """
import sys
from gateway.cli import _parser
from gateway.config import serve_options
from gateway.startup import build_backend
loaded = build_backend(serve_options(_parser().parse_args(["serve", "--upstream", "http://127.0.0.1:1"]), {}))
assert loaded.engine is None
print([name for name in ("torch", "transformers", "numpy", "inference.engine_process") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
