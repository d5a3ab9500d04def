"""Command-line agents over Anthropic's Messages, as a user starts them: each runs a command that the model asks for,
sends its output back and shows the answer. The command leaves a file, which proves that it ran."""

import json

import pytest

from tests.testkit.agent_settings import OPENCODE, OPENCODE_ENVIRON, PI, PI_ENVIRON, opencode_settings, pi_settings
from tests.testkit.client_script import AGENT_ANSWER, PROOF, SHELL_COMMAND, THOUGHT, agent_script, tool_call
from tests.testkit.scripted_server import ScriptedServer

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

PROMPT = "Run the command."
SHELL_TOOLS = {
    "claude": ("Bash", {"command": SHELL_COMMAND, "description": "Leave a proof"}),
    "qwen": ("run_shell_command", {"command": SHELL_COMMAND, "is_background": False}),
    "opencode": ("bash", {"command": SHELL_COMMAND, "description": "Leave a proof"}),
    "pi": ("bash", {"command": SHELL_COMMAND}),
}


@pytest.fixture
def server(request, tmp_path):
    name, arguments = SHELL_TOOLS[request.param]
    script = agent_script(name, json.dumps(arguments))
    with ScriptedServer(tmp_path, script, "--served-model-name", "script") as server:
        yield server
        server.wait_until_idle()


def texts_of(events, kind):
    return [event for event in events if event.get("type") == kind]


def run_claude(js, url, home, work):
    environ = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "x",
        "ANTHROPIC_MODEL": "script",
        "ANTHROPIC_SMALL_FAST_MODEL": "script",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        # Lets it skip its permission questions as root, as in a container.
        "IS_SANDBOX": "1",
    }
    options = ["--output-format", "stream-json", "--verbose", "--include-partial-messages"]
    done = js.run_cli(
        "claude", "-p", PROMPT, *options, "--dangerously-skip-permissions", environ=environ, home=home, cwd=work
    )
    assert (done.last["type"], done.last["subtype"], done.last["result"]) == ("result", "success", AGENT_ANSWER)
    return done


@pytest.mark.parametrize("server", ["claude"], indirect=True)
def test_claude_code_runs_a_command_and_reports(js, server, home, work):
    done = run_claude(js, server.url, home, work)
    assert (work / PROOF).read_text() == "done\n"
    assert done.last["usage"]["input_tokens"] > 0
    deltas = [event["event"] for event in texts_of(done.events, "stream_event")]
    assert deltas[0]["type"] == "message_start"
    # Its fallback after a stream that it could not read asks for whole answers.
    assert server.metric_sum("headrace_request_success_total") == 2


def test_claude_code_runs_two_commands_of_one_answer_and_sends_its_thoughts_back(js, tmp_path, home, work):
    calls = "\n".join(tool_call("Bash", json.dumps({"command": f"echo {name} > {name}.txt"})) for name in ("a", "b"))
    script = [
        {"text": AGENT_ANSWER, "match": {"last_role": "tool", "contains": THOUGHT}},
        {"text": f"<think>\n{THOUGHT}\n</think>\n{calls}", "match": {"contains": PROMPT}, "chunk": "char"},
    ]
    with ScriptedServer(tmp_path, script, "--served-model-name", "script") as server:
        run_claude(js, server.url, home, work)
    assert [(work / f"{name}.txt").read_text() for name in ("a", "b")] == ["a\n", "b\n"]


@pytest.mark.parametrize("server", ["qwen"], indirect=True)
def test_qwen_code_runs_a_command_and_reports(js, server, home, work):
    environ = {"ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_MODEL": "script"}
    options = ["--auth-type", "anthropic", "-y", "-o", "stream-json", "--telemetry=false"]
    done = js.run_cli("qwen", *options, PROMPT, environ=environ, home=home, cwd=work)
    assert (work / PROOF).read_text() == "done\n"
    assert (done.last["type"], done.last["result"]) == ("result", AGENT_ANSWER)


@pytest.mark.parametrize("server", ["opencode"], indirect=True)
def test_opencode_runs_a_command_and_reports(js, server, home, work):
    opencode_settings(work, "@ai-sdk/anthropic", f"{server.url}/v1")
    done = js.run_cli(*OPENCODE, PROMPT, environ=OPENCODE_ENVIRON, home=home, cwd=work)
    assert (work / PROOF).read_text() == "done\n"
    assert texts_of(done.events, "text")[-1]["part"]["text"] == AGENT_ANSWER


@pytest.mark.parametrize("server", ["pi"], indirect=True)
def test_pi_runs_a_command_and_reports(js, server, home, work):
    pi_settings(home, "anthropic-messages", server.url)
    done = js.run_cli(*PI, PROMPT, environ=PI_ENVIRON, home=home, cwd=work)
    assert (work / PROOF).read_text() == "done\n"
    message = texts_of(done.events, "message_end")[-1]["message"]
    assert [part["text"] for part in message["content"] if part["type"] == "text"] == [AGENT_ANSWER]
