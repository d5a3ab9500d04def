"""Settings files of command-line agents, with this server as their only provider `gw` and its model `script`."""

from __future__ import annotations

import json
from pathlib import Path

_CONTEXT_TOKENS = 100_000
_ANSWER_TOKENS = 4096


def opencode_settings(work: Path, npm: str, base_url: str) -> None:
    limit = {"context": _CONTEXT_TOKENS, "output": _ANSWER_TOKENS}
    provider = {
        "npm": npm,
        "options": {"baseURL": base_url, "apiKey": "x"},
        "models": {"script": {"name": "script", "limit": limit}},
    }
    settings = {
        "provider": {"gw": provider},
        "small_model": "gw/script",
        "autoupdate": False,
        "permission": {"*": "allow"},
    }
    (work / "opencode.json").write_text(json.dumps(settings))


OPENCODE_ENVIRON = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
OPENCODE = ("opencode", "run", "--format", "json", "-m", "gw/script")


def pi_settings(home: Path, api: str, base_url: str) -> None:
    model = {"id": "script", "name": "script", "contextWindow": _CONTEXT_TOKENS, "maxTokens": _ANSWER_TOKENS}
    provider = {"baseUrl": base_url, "api": api, "apiKey": "x", "models": [model]}
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True)
    (folder / "models.json").write_text(json.dumps({"providers": {"gw": provider}}))


PI_ENVIRON = {"PI_OFFLINE": "1"}
PI = ("pi", "-p", "--mode", "json", "--provider", "gw", "--model", "script", "--no-session")
