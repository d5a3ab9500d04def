"""The real server as a process of its own, answering from a script."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
_URL = re.compile(r"http://127\.0\.0\.1:\d+")


class ScriptedServer:
    """`with ScriptedServer(tmp_path, lines) as server:` runs `headrace serve --model scripted:...` on a free port."""

    def __init__(self, folder: Path, lines: Sequence[dict[str, Any]], *options: str, port: int = 0) -> None:
        self._script = folder / "script.jsonl"
        self._script.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        self._options = options
        self._port = port
        self._output: list[str] = []

    def __enter__(self) -> ScriptedServer:
        command = [sys.executable, "-u", "-m", "gateway.cli", "serve", "--model", f"scripted:{self._script}"]
        self.process = subprocess.Popen(
            [*command, "--port", str(self._port), *self._options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.url = self._read_url()
        # Read on, or the server stops when the pipe is full.
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        finally:
            self.kill()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def output(self) -> str:
        return "".join(self._output)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        self.process.stdout.close()  # type: ignore[union-attr]

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        text = httpx.get(f"{self.url}/metrics", trust_env=False).text
        [value] = re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)
        return float(value)

    def metric_sum(self, name: str) -> float:
        """The sum of a metric over its labels."""
        text = httpx.get(f"{self.url}/metrics", trust_env=False).text
        return sum(map(float, re.findall(rf"^{name}{{.*}} (\S+)$", text, re.MULTILINE)))

    def metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", trust_env=False).text

    def wait_until_idle(self) -> None:
        """Wait (5 s at most) until no turn is live."""
        pause = threading.Event()
        for _ in range(250):
            if self.metric("headrace_live_turns") == 0:
                return
            pause.wait(0.02)
        raise AssertionError("turns are still live after 5 s")

    def _read_url(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._output.append(line)
            if match := _URL.search(line):
                return match[0]
        raise AssertionError(f"the server ended before it was ready:\n{self.output}")

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._output.append(line)
