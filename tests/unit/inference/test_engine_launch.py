"""Processes that are started before anybody knows what they are to serve."""

import socket
import subprocess

import pytest

from inference import engine_launch
from inference.engine_launch import EngineProcess
from inference.engine_process import serve
from inference.runner.phase_clock import PhaseClock


@pytest.fixture
def run_instead(monkeypatch):
    """Has a short program run as the engine's process; its arguments are those of inference.engine_start."""

    def replace(program):
        popen = subprocess.Popen

        def start(command, **options):
            python, _, module, *arguments = command
            programs = {"inference.engine_start": program, "inference.read_ahead": "import time; time.sleep(60)"}
            return popen([python, "-c", programs[module], *arguments], **options)

        monkeypatch.setattr(engine_launch.subprocess, "Popen", start)

    return replace


def test_the_process_gets_its_socket_its_device_and_when_it_was_started(run_instead):
    run_instead(
        "import socket, sys, time; s = socket.socket(fileno=int(sys.argv[1]));"
        "s.sendall(f'{sys.argv[2]} {0 <= time.monotonic() - float(sys.argv[3]) < 60}'.encode())"
    )
    process = EngineProcess("cuda")
    assert process.connection.recv(100) == b"cuda True"
    process.end(patience_s=10)


def test_a_process_that_ends_with_its_connection_is_waited_for(run_instead):
    run_instead("import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); s.sendall(b'.'); s.recv(1)")
    process = EngineProcess("cpu")
    process.connection.recv(1)
    process.end(patience_s=10)
    assert process._process.returncode == 0
    process.end(patience_s=0)


def test_a_process_that_takes_too_long_is_killed(run_instead):
    run_instead("import time; time.sleep(60)")
    process = EngineProcess("cpu")
    process.end(patience_s=0)
    assert process._process.returncode == -9


def test_reading_ahead_ends_when_the_engine_is_loaded_and_with_it(run_instead):
    run_instead("import time; time.sleep(60)")
    for finish in (EngineProcess.loaded, lambda process: process.end(patience_s=0)):
        process = EngineProcess("cpu")
        assert process._reader.poll() is None
        finish(process)
        assert process._reader.returncode == -9
        process.end(patience_s=0)


def test_a_process_whose_gateway_ends_before_it_says_what_to_serve_ends_quietly():
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        assert serve(theirs, PhaseClock()) == 0
