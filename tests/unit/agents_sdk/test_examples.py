"""Every example runs, as a program of its own, against the fake server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testkit.sdk_server import call, content, done

EXAMPLES = Path(__file__).parents[3] / "agents" / "examples"


def run(server, name, stdin=""):
    finished = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "HEADRACE_URL": server.url},
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout


def agent_turns(request):
    if request["messages"][-1]["role"] == "tool":
        return [*content("Clear, and 41.5."), *done()]
    return [*call(0, "weather", '{"city": "Oslo"}'), *call(1, "add", '{"numbers": [17.5, 24]}'), *done("tool_calls")]


def test_no_example_is_left_out():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "agent_tools.py",
        "chat.py",
        "many_turns.py",
        "stream_events.py",
    }


def test_stream_events_prints_the_text_and_the_end(server):
    assert "echo: Why is the sky blue" in (out := run(server, "stream_events.py"))
    assert "--- stop" in out


def test_agent_tools_runs_both_tools_and_prints_the_answer(server):
    server.respond = agent_turns
    out = run(server, "agent_tools.py")
    assert '<- weather: {"city": "Oslo", "temperature": 7' in out
    assert "<- add: 41.5" in out
    assert "Clear, and 41.5." in out
    assert "--- 2 turn(s)" in out


def test_many_turns_share_one_socket(server):
    out = run(server, "many_turns.py")
    assert len(out.splitlines()) == 8
    assert server.num_sockets == 1


@pytest.mark.parametrize("lines", ["hello\n\n", "hello\nagain\n\n"])
def test_chat_answers(server, lines):
    out = run(server, "chat.py", stdin=lines)
    assert "echo: hello" in out
    assert len(server.requests) == lines.count("\n") - 1
