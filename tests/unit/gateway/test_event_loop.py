"""Which event loop serves: uvloop's where it is installed, asyncio's own otherwise."""

import asyncio
import sys

import pytest

from gateway.serve_command import _run


async def _loop_module(found: list[str]) -> None:
    found.append(type(asyncio.get_running_loop()).__module__.partition(".")[0])


def test_uvloop_runs_where_it_is_installed():
    pytest.importorskip("uvloop", reason="not to be had on Windows")
    found: list[str] = []
    _run(_loop_module(found))
    assert found == ["uvloop"]


def test_asyncio_runs_where_it_is_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    found: list[str] = []
    _run(_loop_module(found))
    assert found == ["asyncio"]
