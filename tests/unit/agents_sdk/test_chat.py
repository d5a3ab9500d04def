"""The terminal chat: its screen alone, and the program against the fake server, as a user drives it."""

import io
import os
import signal
import subprocess
import sys
import threading

import pytest
from headrace import (
    ContentDelta,
    ReasoningDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolResult,
    TurnDone,
)
from headrace.chat import main
from headrace.chat_screen import ChatScreen, use_color

from tests.testkit.sdk_server import Refuse, Wait, call, content, done, echo, reasoning

NEVER = Wait(threading.Event())
TOOLS = """
from headrace import tool

@tool
def add(a: int, b: int) -> int:
    return a + b
"""


def shown(*events, color):
    stream = io.StringIO()
    screen = ChatScreen(stream, color=color)
    for event in events:
        screen.show(event)
    return stream.getvalue()


def test_reasoning_is_dimmed_and_stands_apart():
    events = (ReasoningDelta("hm"), ReasoningDelta("!"), ContentDelta("yes"), TurnDone("stop", None))
    assert shown(*events, color=True) == "\x1b[2mhm!\x1b[0m\nyes\n"
    assert shown(*events, color=False) == "hm!\nyes\n"


def test_calls_and_results_have_lines_of_their_own():
    events = (
        ContentDelta("Let me see"),
        ToolCallStart(0, "c", "add"),
        ToolCallEnd(0, '{"a":\n 1}', "repaired", "r"),
        ToolResult(0, "c", "add", "x" * 500, is_error=False),
    )
    assert shown(*events, color=False) == f'Let me see\n→ add {{"a": 1}}  [repaired]\n← add {"x" * 400}...\n'


def test_a_models_text_can_not_steer_the_terminal():
    assert shown(ContentDelta("a\x1b]0;title\x07b\x9b2Jc\td\ne\r"), color=True) == "a]0;titleb2Jc\td\ne"


def test_an_answer_that_was_cut_says_so():
    assert "limit of tokens" in shown(ContentDelta("a"), TurnDone("length", None), color=False)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "color"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(stream, environ, color):
    assert use_color(stream, environ) is color


@pytest.fixture
def chat(server, monkeypatch, capsys):
    """Run the chat on lines of input; return exit status, what it printed, and to stderr."""

    def run(*lines, arguments=()):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        status = main(["--url", server.url, *arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_text_is_answered_until_the_input_ends(server, chat):
    status, out, err = chat("hello", "", "again")
    assert (status, err) == (0, "")
    assert "first-model" in out
    assert "echo: hello\n" in out
    assert [m["content"] for m in server.requests[1]["messages"]] == ["hello", "echo: hello", "again"]


def test_options_go_to_the_server(server, chat):
    options = ["--model", "second-model", "--system", "Be brief.", "--temperature", "0", "--max-tokens", "9"]
    chat("hello", arguments=[*options, "--transport", "sse"])
    [request] = server.requests
    assert request["model"] == "second-model"
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (request["temperature"], request["max_tokens"]) == (0, 9)


def test_commands(server, chat):
    status, out, _ = chat("one", "/reset", "two", "/help", "/nonsense", "/quit", "three")
    assert status == 0
    assert [[m["content"] for m in request["messages"]] for request in server.requests] == [["one"], ["two"]]
    assert "/reset   forget" in out
    assert "no command /nonsense" in out


def test_a_line_that_begins_with_a_slash_and_goes_on_is_a_message(server, chat):
    chat("/etc/hosts is a file")
    assert server.requests[0]["messages"][0]["content"] == "/etc/hosts is a file"


def test_reasoning_goes_back_with_the_conversation(server, chat):
    server.respond = lambda _: [*reasoning("hm"), *content("yes"), *done()]
    _, out, _ = chat("one", "two")
    assert "hm\nyes\n" in out
    assert server.requests[1]["messages"][1] == {"role": "assistant", "content": "yes", "reasoning_content": "hm"}


def test_a_file_of_tools_makes_the_chat_an_agent(server, chat, tmp_path):
    (tmp_path / "my_tools.py").write_text(TOOLS)
    turns = [[*call(0, "add", '{"a": 2, "b": 3}'), *done("tool_calls")], [*content("five"), *done()]]
    server.respond = lambda _: turns.pop(0)
    _, out, _ = chat("2 + 3?", arguments=["--tools", str(tmp_path / "my_tools.py")])
    assert '→ add {"a": 2, "b": 3}\n← add 5\nfive\n' in out


def test_a_call_without_tools_is_shown_and_the_chat_goes_on(server, chat):
    turns = [[*call(0, "add", "{}"), *done("tool_calls")], [*content("fine"), *done()]]
    server.respond = lambda _: turns.pop(0)
    _, out, _ = chat("go", "on")
    assert "→ add {}\n" in out
    assert "--tools" in out
    assert "fine\n" in out
    assert [m["role"] for m in server.requests[1]["messages"]] == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize("text", ["nothing = 1", "def broken(:", "import no_such_module_at_all"])
def test_a_file_without_usable_tools_is_refused(chat, tmp_path, text):
    path = tmp_path / "bad_tools.py"
    path.write_text(text)
    status, _, err = chat(arguments=["--tools", str(path)])
    assert status == 2
    assert err.startswith("headrace chat: ")


def test_a_missing_file_of_tools_is_refused(chat, tmp_path):
    status, _, err = chat(arguments=["--tools", str(tmp_path / "missing.py")])
    assert status == 2
    assert "missing.py" in err


def test_a_failed_answer_is_told_and_leaves_no_trace_in_the_conversation(server, chat):
    turns = [[Refuse(500, "engine_died", "the engine died")], echo({"messages": [{"content": "two"}]})]
    server.respond = lambda _: turns.pop(0)
    status, out, _ = chat("one", "two")
    assert status == 0
    assert "[500 engine_died: the engine died]" in out
    assert [m["content"] for m in server.requests[1]["messages"]] == ["two"]


def test_a_server_that_is_not_there_is_told(unused_tcp_port, capsys):
    assert main(["--url", f"http://127.0.0.1:{unused_tcp_port}"]) == 1
    err = capsys.readouterr().err
    assert f"no server answers at http://127.0.0.1:{unused_tcp_port}" in err
    assert "headrace serve" in err
    assert "Traceback" not in err


def test_a_missing_key_is_told(server, chat):
    server.api_key = "right"
    status, _, err = chat("hello")
    assert status == 1
    assert "--api-key" in err
    assert chat("hello", arguments=["--api-key", "right"])[0] == 0


def test_a_url_that_is_none_is_told(capsys):
    assert main(["--url", "ftp://x"]) == 2
    assert "ftp://x" in capsys.readouterr().err


def test_ctrl_c_cancels_the_answer_and_at_the_prompt_leaves(server):
    server.respond = lambda request: (
        [*content("so far"), NEVER] if len(request["messages"]) == 1 else [*content("fine"), *done()]
    )
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "headrace.chat", "--url", server.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    with process:
        try:
            say(process, "hello")
            read_until(process, "so far")
            process.send_signal(signal.SIGINT)
            read_until(process, "[cancelled]\n")
            server.wait_until(lambda: len(server.cancelled) == 1)
            say(process, "go on")
            read_until(process, "fine\n")
            # When a command has been carried out, the answer before it is over.
            say(process, "/reset")
            read_until(process, "forgotten]\n")
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()
    assert [m["content"] for m in server.requests[1]["messages"]] == ["hello", "so far", "go on"]


def say(process, line):
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def read_until(process, text):
    seen = ""
    while not seen.endswith(text):
        character = process.stdout.read(1)
        assert character, f"the chat ended after {seen!r}: {process.stderr.read()}"
        seen += character
