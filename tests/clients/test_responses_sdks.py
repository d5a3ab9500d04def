"""OpenAI's SDKs, and the libraries over them, speak Responses with the real server: text, a call that they run, its
result, an answer; as event streams, whole, and over the WebSocket."""

import pytest

from tests.testkit.client_script import ANSWER, BEFORE_CALL, GREETING, weather_script
from tests.testkit.scripted_server import ScriptedServer

pytestmark = pytest.mark.clients

KEY = "secret"
CALL = {"city": "Oslo"}
EVENTS = {
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
    "response.completed",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("script")
    with ScriptedServer(folder, weather_script(), "--api-key", KEY, "--served-model-name", "script") as server:
        yield server


def test_the_python_sdk_streams_stores_follows_and_compacts(py, server):
    steps = {step["step"]: step for step in py.run("responses_openai.py", server.url, KEY).events}
    for how in ("raw", "helper", "whole", "socket"):
        assert steps[how]["text"] == ANSWER
    for how in ("raw", "helper", "socket"):
        assert set(steps[how]["kinds"]) == EVENTS
    assert steps["raw"]["tokens"] == steps["helper"]["tokens"] == steps["whole"]["tokens"] > 0
    assert (steps["stored"]["same"], steps["stored"]["items"]) == (True, 1)
    assert (steps["background"]["same"], steps["background"]["helped"]) == (True, [1, 2])
    assert (steps["others"]["tokens"], steps["others"]["text"]) == (2, GREETING)
    assert steps["not found"]["code"] == "model_not_found"
    assert (steps["socket"]["lane"], steps["socket"]["error"]) == ("lane-1", "previous_response_not_found")


def test_an_openai_agent_runs_its_tool_over_both_transports(py, server):
    over_events, over_socket, last = py.run("responses_agents.py", server.url, KEY).events
    for run in (over_events, over_socket):
        assert run["text"] == ANSWER
        assert set(run["kinds"]) == EVENTS
        assert run["tokens"] > 0
    assert last["cities"] == ["Oslo", "Oslo"]


def test_a_pydantic_agent_runs_its_tool_over_both_transports(py, server):
    over_events, over_socket, last = py.run("responses_pydantic.py", server.url, KEY).events
    for run in (over_events, over_socket):
        assert run["text"] == ANSWER
        assert run["parts"] == ["user-prompt", "thinking", "text", "tool-call", "tool-return", "text"]
    assert (last["whole"], last["cities"]) == (ANSWER, ["Oslo"] * 3)


def test_langchain_binds_a_tool_and_counts_tokens(py, server):
    for run in py.run("responses_langchain.py", server.url, KEY).events:
        assert (run["first"], run["last"]) == (BEFORE_CALL, ANSWER)
        assert run["calls"] == [{"name": "weather", "args": CALL}]
        assert min(run["tokens"]) > 0


def test_the_javascript_sdk_streams_and_uses_the_socket(js, server):
    steps = {step["step"]: step for step in js.run("responses_openai.mjs", server.url, KEY).events}
    texts = {how: step["text"] for how, step in steps.items()}
    assert texts == dict.fromkeys(("raw", "helper", "whole", "socket"), ANSWER)


def test_the_ai_sdk_refers_to_items_of_the_answer_before(js, server):
    streamed, whole, stateless = js.run("responses_ai.mjs", server.url, KEY).events
    assert {"text-delta", "reasoning-start", "tool-input-delta", "tool-result", "finish"} <= set(streamed["kinds"])
    for run in (streamed, whole, stateless):
        first, last = run["steps"]
        assert (first["text"], first["calls"], first["finish"]) == (BEFORE_CALL, [["weather", CALL]], "tool-calls")
        assert (last["text"], last["finish"]) == (ANSWER, "stop")
        assert last["tokens"] > first["tokens"] > 0
