"""What an engine's process does before it has imported anything. Each test runs a process, without torch."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CODE = """
import socket, sys, threading, time
from inference.engine_start import end_with_gateway
assert "torch" not in sys.modules
ours, theirs = socket.socketpair()
watching = threading.Thread(target=end_with_gateway, args=(theirs,), daemon=True)
watching.start()
{gateway}
watching.join(30)
print(theirs.recv(100))
"""


@pytest.mark.parametrize(
    ("gateway", "printed"),
    [("ours.close()", ""), ("ours.sendall(b'what to serve')", "b'what to serve'")],
    ids=["it is gone", "it has said what to serve"],
)
def test_a_process_ends_with_its_gateway_until_it_knows_what_to_serve(gateway, printed):
    command = [sys.executable, "-c", CODE.format(gateway=gateway)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    assert done.stdout.strip() == printed
