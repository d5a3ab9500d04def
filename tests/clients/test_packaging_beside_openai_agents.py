"""The SDK and the OpenAI Agents SDK (package `openai-agents`, import name `agents`) in one environment."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.testkit.sdk_wheel import build_sdk_wheel

pytestmark = pytest.mark.clients

CHECK = """
import agents, headrace
assert hasattr(agents, "Runner"), agents.__file__
assert hasattr(headrace, "AsyncClient"), headrace.__file__

from importlib.metadata import files
ours = {str(path).split("/")[0] for path in files("headrace")}
theirs = {str(path).split("/")[0] for path in files("openai-agents")}
assert not ours & theirs, ours & theirs
print("both")
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("order", ["theirs first", "ours first"])
def test_both_can_be_imported_whichever_is_installed_first(tmp_path: Path, order: str) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    wheel = build_sdk_wheel(tmp_path)
    packages = ["openai-agents", wheel] if order == "theirs first" else [wheel, "openai-agents"]
    for package in packages:
        subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True, cwd=tmp_path)
    checked = subprocess.run([python, "-c", CHECK], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert checked.stdout.strip() == "both"
