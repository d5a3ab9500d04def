"""OpenAI's SDKs over Chat Completions, and the libraries over them, against the real server: text, a call that they
run, its result, an answer; streamed and not."""

import pytest

from tests.testkit.client_script import ANSWER, BEFORE_CALL, GREETING, THOUGHT, weather_script
from tests.testkit.scripted_server import ScriptedServer

pytestmark = pytest.mark.clients

KEY = "secret"
CALL = ["weather", {"city": "Oslo"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("script")
    with ScriptedServer(folder, weather_script(), "--api-key", KEY, "--served-model-name", "script") as server:
        yield server


def test_the_python_sdk_talks_calls_and_reads_errors(py, server):
    steps = py.run("chat_openai.py", server.url, KEY).events
    by_name = {step["step"]: step for step in steps}
    assert by_name["text"]["text"] == GREETING
    messages = [step for step in steps if step["step"] == "message"]
    assert len(messages) == 4
    for calling, answering in (messages[:2], messages[2:]):
        assert (calling["text"], calling["reasoning"], calling["calls"]) == (BEFORE_CALL, THOUGHT, [CALL])
        assert (calling["finish"], answering["finish"]) == ("tool_calls", "stop")
        assert (answering["text"], answering["calls"]) == (ANSWER, [])
        assert answering["tokens"] > calling["tokens"] > 0
    # The last stream is the answer's: its events come after those of the call.
    assert {"chunk", "content.delta", "content.done"} <= set(by_name["events"]["kinds"])
    [calling, _] = [step["kinds"] for step in steps if step["step"] == "events"]
    assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= set(calling)
    assert by_name["models"]["ids"] == ["script"]
    assert by_name["not found"]["code"] == "model_not_found"
    assert by_name["not found"]["request_id"].startswith("req_")
    assert steps[-1]["step"] == "end"


def test_an_openai_agent_runs_its_tool(py, server):
    streamed, whole, tools = py.run("chat_agents.py", server.url, KEY).events
    assert streamed["text"] == whole["text"] == ANSWER
    assert whole["tokens"] > 0
    assert tools["cities"] == ["Oslo", "Oslo"]


def test_a_pydantic_agent_runs_its_tool(py, server):
    whole, streamed, tools = py.run("chat_pydantic.py", server.url, KEY).events
    assert whole["text"] == streamed["text"] == ANSWER
    assert whole["parts"] == streamed["parts"] == [
        "user-prompt",
        "thinking",
        "text",
        "tool-call",
        "tool-return",
        "text",
    ]
    assert streamed["tokens"] == whole["tokens"] > 0
    assert tools["cities"] == ["Oslo", "Oslo"]


def test_langchain_binds_a_tool_and_counts_tokens(py, server):
    streamed, whole = py.run("chat_langchain.py", server.url, KEY).events
    assert streamed == whole
    assert (whole["first"], whole["last"]) == (BEFORE_CALL, ANSWER)
    assert whole["calls"] == [{"name": "weather", "args": {"city": "Oslo"}}]
    assert whole["tokens"][1] > whole["tokens"][0] > 0


def test_the_javascript_sdk_runs_its_tools(js, server):
    text, streamed, whole, error = js.run("chat_openai.mjs", server.url, KEY).events
    assert text["text"] == GREETING
    for run in (streamed, whole):
        assert (run["text"], run["cities"]) == (ANSWER, ["Oslo"])
        assert run["roles"] == ["user", "assistant", "tool", "assistant"]
    assert error["code"] == "model_not_found"


def test_the_ai_sdk_streams_and_generates_with_both_providers(js, server):
    runs = js.run("chat_ai.mjs", server.url, KEY).events
    assert [run["provider"] for run in runs] == ["openai", "openai", "compatible", "compatible"]
    for run in runs:
        calling, answering = run["steps"]
        assert run["errors"] == []
        assert (calling["text"], calling["calls"], calling["finish"]) == (BEFORE_CALL, [CALL], "tool-calls")
        # OpenAI's own provider reads no reasoning here.
        assert calling.get("reasoning") == (THOUGHT if run["provider"] == "compatible" else None)
        assert (answering["text"], answering["finish"]) == (ANSWER, "stop")
        assert answering["tokens"] > calling["tokens"] > 0
