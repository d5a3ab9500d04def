"""Checks frames of the native protocol against the JSON Schema that is published with it."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

_SCHEMA = json.loads((files("gateway.protocols") / "native_schema.json").read_text())
Draft202012Validator.check_schema(_SCHEMA)


def _validator(side: str) -> Draft202012Validator:
    return Draft202012Validator({**_SCHEMA, "$ref": f"#/$defs/{side}"})


_CLIENT, _SERVER = _validator("client_frame"), _validator("server_frame")


def check_client_frame(frame: Any) -> None:
    """Raises jsonschema.ValidationError."""
    _CLIENT.validate(frame)


def check_server_frame(frame: Any) -> None:
    """Raises jsonschema.ValidationError."""
    _SERVER.validate(frame)
