"""Anthropic's SDKs, and the libraries over them, against the real server: text, a call that they run, its result, an
answer; streamed and not. One server with a key, so that both ways to send it are proven."""

import pytest

from tests.testkit.client_script import ANSWER, BEFORE_CALL, GREETING, THOUGHT, weather_script
from tests.testkit.scripted_server import ScriptedServer

pytestmark = pytest.mark.clients

KEY = "secret"
CALL = {"city": "Oslo"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("script")
    with ScriptedServer(folder, weather_script(), "--api-key", KEY, "--served-model-name", "script") as server:
        yield server


def check_tool_loops(steps):
    """Two loops of two messages: the first thinks, speaks and calls; the second answers."""
    messages = [step for step in steps if step["step"] == "message"]
    assert len(messages) == 4
    for calling, answering in (messages[:2], messages[2:]):
        thinking, text, call = calling["content"]
        assert (thinking["thinking"], text["text"]) == (THOUGHT, BEFORE_CALL)
        assert (call["name"], call["input"]) == ("weather", CALL)
        assert calling["stop_reason"] == "tool_use"
        assert [block["text"] for block in answering["content"]] == [ANSWER]
        assert answering["stop_reason"] == "end_turn"
        assert answering["usage"]["input_tokens"] > calling["usage"]["input_tokens"] > 0


def check_side_paths(steps):
    by_name = {step["step"]: step for step in steps}
    assert by_name["text"]["text"] == GREETING
    assert by_name["count"]["tokens"] == 2
    assert by_name["models"]["ids"] == ["script"]
    assert by_name["not found"]["kind"] == "not_found_error"
    assert by_name["not found"]["request_id"].startswith("req_")
    assert steps[-1]["step"] == "end"
    return by_name


def test_the_python_sdk_talks_calls_counts_and_reads_errors(py, server):
    steps = py.run("anthropic_sdk.py", server.url, KEY).events
    check_tool_loops(steps)
    by_name = check_side_paths(steps)
    assert (by_name["stop"]["stop_reason"], by_name["stop"]["stop_sequence"]) == ("stop_sequence", "there")
    assert by_name["beta"]["content"][0]["text"] == GREETING
    assert by_name["wrong key"]["kind"] == "authentication_error"


def test_langchain_binds_a_tool_and_counts_tokens(py, server):
    streamed, whole = py.run("anthropic_langchain.py", server.url, KEY).events
    for run in (streamed, whole):
        assert (run["first"], run["last"]) == (BEFORE_CALL, ANSWER)
        assert run["calls"] == [{"name": "weather", "args": CALL}]
        first, last = run["usage"]
        assert last["input_tokens"] > first["input_tokens"] > 0
    assert streamed == whole


def test_a_pydantic_agent_runs_its_tool(py, server):
    whole, streamed = py.run("anthropic_pydantic.py", server.url, KEY).events
    assert whole["output"] == streamed["output"] == ANSWER
    assert whole["cities"] == ["Oslo"]
    assert whole["parts"] == ["user-prompt", "thinking", "text", "tool-call", "tool-return", "text"]
    assert {"part_delta", "function_tool_call", "function_tool_result"} <= set(streamed["kinds"])


def test_the_javascript_sdk_talks_calls_counts_and_reads_errors(js, server):
    steps = js.run("anthropic_sdk.mjs", server.url, KEY).events
    check_tool_loops(steps)
    by_name = check_side_paths(steps)
    assert [block["text"] for block in by_name["runner"]["content"]] == [ANSWER]


def test_the_ai_sdk_streams_and_generates_over_its_tool(js, server):
    streamed, whole = js.run("anthropic_ai.mjs", server.url, KEY).events
    assert "error" not in streamed["kinds"]
    assert whole["text"] == ANSWER
    for run in (streamed, whole):
        calling, answering = run["steps"]
        assert (calling["text"], calling["reasoning"], calling["finish"]) == (BEFORE_CALL, THOUGHT, "tool-calls")
        assert calling["calls"] == [["weather", CALL]]
        assert (answering["text"], answering["finish"]) == (ANSWER, "stop")
        assert answering["tokens"] > calling["tokens"] > 0
