"""Builds the SDK's wheel from the working tree."""

import importlib.util
import subprocess
import sys
from pathlib import Path

AGENTS = Path(__file__).parents[2] / "agents"


def build_sdk_wheel(target: Path) -> Path:
    # Offline and in a second where hatchling is installed; else pip fetches it for the build.
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, *isolation, "--wheel-dir", target, AGENTS], check=True)
    [wheel] = target.glob("headrace-*.whl")
    return wheel
