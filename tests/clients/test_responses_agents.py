"""Command-line agents over OpenAI's Responses, as a user starts them: each runs a command that the model asks for,
sends its output back and shows the answer. The command leaves a file, which proves that it ran."""

import json

import pytest

from tests.testkit.agent_settings import OPENCODE, OPENCODE_ENVIRON, PI, PI_ENVIRON, opencode_settings, pi_settings
from tests.testkit.client_script import AGENT_ANSWER, PROOF, SHELL_COMMAND, agent_script
from tests.testkit.scripted_server import ScriptedServer

pytestmark = pytest.mark.clients

PROMPT = "Run the command."
SHELL_TOOLS = {
    "codex": ("exec_command", {"cmd": SHELL_COMMAND}),
    "opencode": ("bash", {"command": SHELL_COMMAND, "description": "Leave a proof"}),
    "pi": ("bash", {"command": SHELL_COMMAND}),
}


@pytest.fixture
def server(request, tmp_path):
    name, *options = request.param
    tool, arguments = SHELL_TOOLS[name]
    script = agent_script(tool, json.dumps(arguments))
    with ScriptedServer(tmp_path, script, "--served-model-name", "script", *options) as server:
        yield server
        server.wait_until_idle()


def run_codex(js, server, home, work, *, has_websocket: bool):
    provider = (
        f'{{name="gw",base_url="{server.url}/v1",env_key="GW_KEY",wire_api="responses",'
        f"supports_websockets={str(has_websocket).lower()}}}"
    )
    options = ["--json", "--skip-git-repo-check", "--ephemeral", "--dangerously-bypass-approvals-and-sandbox"]
    config = ["-c", "model_provider=gw", "-c", f"model_providers.gw={provider}"]
    done = js.run_cli(
        "codex", "exec", *options, "-m", "script", *config, PROMPT, environ={"GW_KEY": "x"}, home=home, cwd=work
    )
    assert (work / PROOF).read_text() == "done\n"
    messages = [event["item"]["text"] for event in done.events if event.get("item", {}).get("type") == "agent_message"]
    assert messages[-1] == AGENT_ANSWER
    [end] = [event for event in done.events if event["type"] == "turn.completed"]
    assert end["usage"]["output_tokens"] > 0
    assert not [event for event in done.events if event["type"] in ("error", "turn.failed")]


@pytest.mark.parametrize("server", [["codex"]], indirect=True)
def test_codex_runs_a_command_over_event_streams(js, server, home, work):
    run_codex(js, server, home, work, has_websocket=False)
    assert server.metric_sum("headrace_request_success_total") == 2


@pytest.mark.parametrize("server", [["codex"]], indirect=True)
def test_codex_runs_a_command_over_the_websocket(js, server, home, work):
    run_codex(js, server, home, work, has_websocket=True)
    assert 'path="/v1/responses"' not in server.metrics(), "codex fell back to event streams"


@pytest.mark.parametrize("server", [["codex", "--no-responses-websocket"]], indirect=True)
def test_codex_falls_back_to_event_streams_where_websockets_are_off(js, server, home, work):
    run_codex(js, server, home, work, has_websocket=True)
    assert 'path="/v1/responses"' in server.metrics()


@pytest.mark.parametrize("server", [["opencode"]], indirect=True)
def test_opencode_runs_a_command_and_reports(js, server, home, work):
    opencode_settings(work, "@ai-sdk/openai", f"{server.url}/v1")
    done = js.run_cli(*OPENCODE, PROMPT, environ=OPENCODE_ENVIRON, home=home, cwd=work)
    assert (work / PROOF).read_text() == "done\n"
    texts = [event["part"]["text"] for event in done.events if event.get("type") == "text"]
    assert texts[-1] == AGENT_ANSWER
    assert 'path="/v1/responses"' in server.metrics()


@pytest.mark.parametrize("server", [["pi"]], indirect=True)
def test_pi_runs_a_command_and_reports(js, server, home, work):
    pi_settings(home, "openai-responses", f"{server.url}/v1")
    done = js.run_cli(*PI, PROMPT, environ=PI_ENVIRON, home=home, cwd=work)
    assert (work / PROOF).read_text() == "done\n"
    message = [event for event in done.events if event.get("type") == "message_end"][-1]["message"]
    assert [part["text"] for part in message["content"] if part["type"] == "text"] == [AGENT_ANSWER]
    assert 'path="/v1/responses"' in server.metrics()
