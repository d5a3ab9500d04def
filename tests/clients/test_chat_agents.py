"""Command-line agents over Chat Completions, as a user starts them: each runs a command that the model asks for, sends
its output back and shows the answer. The command leaves a file, which proves that it ran."""

import json

import pytest

from tests.testkit.agent_settings import OPENCODE, OPENCODE_ENVIRON, PI, PI_ENVIRON, opencode_settings, pi_settings
from tests.testkit.client_script import AGENT_ANSWER, PROOF, SHELL_COMMAND, agent_script
from tests.testkit.scripted_server import ScriptedServer

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

PROMPT = "Run the command."
SHELL_TOOLS = {
    "qwen": ("run_shell_command", {"command": SHELL_COMMAND, "is_background": False}),
    "opencode": ("bash", {"command": SHELL_COMMAND, "description": "Leave a proof"}),
    "pi": ("bash", {"command": SHELL_COMMAND}),
    "cline": ("run_commands", {"commands": [SHELL_COMMAND]}),
}


@pytest.fixture
def server(request, tmp_path):
    name, arguments = SHELL_TOOLS[request.param]
    script = agent_script(name, json.dumps(arguments))
    with ScriptedServer(tmp_path, script, "--served-model-name", "script") as server:
        yield server
        server.wait_until_idle()


@pytest.mark.parametrize("server", ["qwen"], indirect=True)
def test_qwen_code_runs_a_command_and_reports(js, server, home, work):
    environ = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_MODEL": "script"}
    options = ["-y", "-o", "stream-json", "--include-partial-messages", "--telemetry=false"]
    done = js.run_cli("qwen", *options, PROMPT, environ=environ, home=home, cwd=work)
    assert (work / PROOF).read_text() == "done\n"
    assert (done.last["type"], done.last["result"]) == ("result", AGENT_ANSWER)


@pytest.mark.parametrize("server", ["opencode"], indirect=True)
def test_opencode_runs_a_command_and_reports(js, server, home, work):
    opencode_settings(work, "@ai-sdk/openai-compatible", f"{server.url}/v1")
    done = js.run_cli(*OPENCODE, PROMPT, environ=OPENCODE_ENVIRON, home=home, cwd=work)
    assert (work / PROOF).read_text() == "done\n"
    texts = [event["part"]["text"] for event in done.events if event["type"] == "text"]
    assert texts[-1] == AGENT_ANSWER


@pytest.mark.parametrize("server", ["pi"], indirect=True)
def test_pi_runs_a_command_and_reports(js, server, home, work):
    pi_settings(home, "openai-completions", f"{server.url}/v1")
    done = js.run_cli(*PI, PROMPT, environ=PI_ENVIRON, home=home, cwd=work)
    assert (work / PROOF).read_text() == "done\n"
    message = [event["message"] for event in done.events if event["type"] == "message_end"][-1]
    assert [part["text"] for part in message["content"] if part["type"] == "text"] == [AGENT_ANSWER]


@pytest.mark.parametrize("server", ["cline"], indirect=True)
def test_cline_runs_a_command_and_reports(js, server, home, work):
    provider = ["-p", "openai-compatible", "-k", "x", "-m", "script", "-b", f"{server.url}/v1"]
    js.run_cli("cline", "auth", *provider, environ={}, home=home, cwd=work)
    options = ["-P", "openai-compatible", "--json", "--auto-approve", "true"]
    done = js.run_cli("cline", *options, PROMPT, environ={}, home=home, cwd=work)
    assert (work / PROOF).read_text() == "done\n"
    assert AGENT_ANSWER in json.dumps(done.last)
