"""Schemas made to hurt, through the real server: refused or served in time, while another client's stream goes on.

Prints, with `-s`, what became of each and the longest gaps between the other client's pieces.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.testkit.served_model import ServedModel, served

pytestmark = [pytest.mark.soak, pytest.mark.model]

# A grammar has 5 s to compile; then up to MAX_TOKENS are written.
LIMIT_S = 20.0
MAX_TOKENS = 24
SCHEMA_FREE = {"type": "text"}


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "maxLength": 4}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    return schema


def _doubling(levels: int) -> dict[str, Any]:
    """2 ** levels ways, by references."""
    kinds: dict[str, Any] = {"k0": {"enum": [1, 2]}}
    for level in range(1, levels + 1):
        below = {"$ref": f"#/$defs/k{level - 1}"}
        kinds[f"k{level}"] = {
            "anyOf": [
                {"type": "object", "properties": {name: below}, "required": [name], "additionalProperties": False}
                for name in ("a", "b")
            ]
        }
    return {"$ref": f"#/$defs/k{levels}", "$defs": kinds}


def _text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


_OPTIONS = [[{"properties": {f"p{i}{j}": {"type": "string"}}} for j in range(4)] for i in range(12)]
HOSTILE: dict[str, Any] = {
    "10,000 values": {"enum": [f"value {i * 7919 % 100_003}" for i in range(10_000)]},
    "60 levels": _nested(60),
    "200 levels": _nested(200),
    "exponential allOf of anyOf": {"type": "object", "allOf": [{"anyOf": options} for options in _OPTIONS]},
    "2 ** 40 ways by references": _doubling(40),
    "catastrophic regex": _text("^(a|a?)+$"),
    "nested repeats": _text("^((([a-z]{1,90}){1,90}){1,90}){1,90}$"),
    "a far look back": _text("[ab]*a[ab]{200}$"),
    "many wild cards": _text(".*a.*b.*c.*d.*e.*f.*g.*h.*i.*j.*"),
    "long lengths": {"type": "string", "minLength": 30_000, "maxLength": 30_001, "pattern": "^[a-z]+$"},
    "a reference to itself": {"$ref": "#"},
    "a circle of references": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "a tree of eight branches": {
        "type": "object", "properties": {f"b{i}": {"$ref": "#"} for i in range(8)}, "additionalProperties": False,
    },
    "1,900 optional members": {
        "type": "object", "properties": {f"field_{i}": {"type": "integer"} for i in range(1_900)},
    },
    "arrays of arrays": json.loads('{"type": "array", "minItems": 2, "items": ' * 40 + "{}" + "}" * 40),
}  # fmt: skip


class Stream:
    """A client that reads a free answer, one after another, and the times at which its pieces come."""

    def __init__(self, server: ServedModel) -> None:
        self._server = server
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._gaps_s: list[float] = []
        self.has_begun = threading.Event()

    def __enter__(self) -> Stream:
        self._thread.start()
        assert self.has_begun.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def longest_gap_s(self, work: Callable[[], None]) -> float:
        """While `work` runs."""
        self._gaps_s.clear()
        work()
        return max(self._gaps_s, default=0.0)

    def _read(self) -> None:
        body = _body(self._server, SCHEMA_FREE) | {"stream": True, "max_tokens": 4000, "ignore_eos": True}
        while not self._is_over.is_set():
            with httpx.stream("POST", f"{self._server.url}/v1/chat/completions", json=body, timeout=60) as response:
                last_s = None
                for line in response.iter_lines():
                    if line.startswith("data:") and not self._is_over.is_set():
                        now_s = time.monotonic()
                        if last_s is not None:
                            self._gaps_s.append(now_s - last_s)
                            self.has_begun.set()
                        last_s = now_s
                    elif self._is_over.is_set():
                        return


def _body(server: ServedModel, response_format: dict[str, Any]) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Write something."}]
    return {
        "model": server.model, "messages": messages, "temperature": 1.5, "max_tokens": MAX_TOKENS,
        "response_format": response_format,
    }  # fmt: skip


def _format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "hostile", "schema": schema}}


def _ask(server: ServedModel, response_format: dict[str, Any]) -> tuple[int, float, str]:
    """The status, the seconds, and the answer or the error."""
    begun_s = time.monotonic()
    response = httpx.post(f"{server.url}/v1/chat/completions", json=_body(server, response_format), timeout=120)
    answer = response.json()
    said = answer["error"]["message"] if "error" in answer else str(answer["choices"][0]["message"]["content"])
    return response.status_code, time.monotonic() - begun_s, said


@contextmanager
def _server_with_a_stream() -> Iterator[tuple[ServedModel, Stream]]:
    with served() as server, Stream(server) as stream:
        yield server, stream


def test_hostile_schemas_are_refused_or_served_in_time_and_hold_up_nobody():
    outcomes: dict[str, Any] = {}
    with _server_with_a_stream() as (server, stream):

        def ordinary() -> None:
            for _ in range(len(HOSTILE)):
                assert _ask(server, SCHEMA_FREE)[0] == 200

        def hostile(name: str) -> Callable[[], None]:
            def ask() -> None:
                status, seconds, said = _ask(server, _format(HOSTILE[name]))
                outcomes[name] = {"status": status, "seconds": round(seconds, 2), "said": said[:160]}

            return ask

        ordinary()  # the first of a kind also loads code, and the first with a grammar the vocabulary
        first_s = stream.longest_gap_s(lambda: _ask(server, _format({"type": "integer"})))
        alone_s = stream.longest_gap_s(lambda: time.sleep(5))
        beside_ordinary_s = stream.longest_gap_s(ordinary)
        for name in HOSTILE:
            gap_s = stream.longest_gap_s(hostile(name))
            outcomes[name]["longest_gap_s"] = round(gap_s, 3)
            print(f"{name:28}", json.dumps(outcomes[name], ensure_ascii=False))
        beside_hostile_s = max(outcome["longest_gap_s"] for outcome in outcomes.values())
    gaps_s = {
        "beside the first grammar": first_s, "alone": alone_s, "beside ordinary turns": beside_ordinary_s,
        "beside hostile turns": beside_hostile_s,
    }  # fmt: skip
    slowest_s = max(outcome["seconds"] for outcome in outcomes.values())
    print(json.dumps({"longest_gap_s": {k: round(v, 3) for k, v in gaps_s.items()}, "slowest_s": slowest_s}))
    for name, outcome in outcomes.items():
        # What the first mask does not meet ends the turn in its midst.
        gave_up = outcome["status"] == 503 and "The grammar of this turn gave up" in outcome["said"]
        assert outcome["status"] in (200, 400) or gave_up, (name, outcome)
        assert outcome["seconds"] < LIMIT_S, (name, outcome)
    assert {200, 400} <= {outcome["status"] for outcome in outcomes.values()}
    # A stall of the loop or of the step would be seconds; a busy machine's noise is not.
    assert beside_hostile_s < 2 * beside_ordinary_s + 0.5, outcomes
