"""`headrace serve` as a process of its own, on a real model."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]


class ServedModel:
    """A running server: `url`, the text it printed when it was ready, and the process."""

    def __init__(self, process: subprocess.Popen[str], banner: str) -> None:
        self.process = process
        self.banner = banner
        match = re.search(r"Ready: (\S+) serves (\S+)", banner)
        assert match, banner
        self.url, self.model = match[1], match[2]

    def metric(self, name: str) -> float:
        text = httpx.get(f"{self.url}/metrics").text
        match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert match, f"{name} is not among the metrics"
        return float(match[1])

    def wait_until_idle(self, timeout_s: float = 20.0) -> None:
        """Until no turn runs and no turn holds a KV block."""
        deadline = time.monotonic() + timeout_s
        while True:
            busy = {name: self.metric(name) for name in ("headrace_kv_blocks_in_use", "headrace_num_requests_running")}
            if not any(busy.values()):
                return
            assert time.monotonic() < deadline, busy
            time.sleep(0.05)


@contextmanager
def served(*options: str) -> Iterator[ServedModel]:
    command = [sys.executable, "-u", "-m", "gateway.cli", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line)
            if "Ready:" in "".join(lines) and "break'" in line:  # the last line of the last example
                break
        yield ServedModel(process, "".join(lines))
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
        process.stdout.close()
