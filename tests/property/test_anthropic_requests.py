"""Requests with anything in any place: they become a turn or a refusal, and nothing else."""

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.protocols.anthropic_decode import decode_count_tokens, decode_messages_request

LINES = (Path(__file__).parents[2] / "fixtures" / "requests" / "messages_good.jsonl").read_text().splitlines()
BODIES = [json.loads(line)["body"] for line in LINES]
VALUES = st.sampled_from(
    [None, True, 0, -1, 1.5, "", "text", "user", "system", "tool_result", [], {}, [None], [[]], [{}], {"type": "text"}]
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a body."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [place for item in value.values() for place in places(item)]
    if isinstance(value, list):
        return [(value, i) for i in range(len(value))] + [place for item in value for place in places(item)]
    return []


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_body_with_something_else_somewhere_is_decoded_or_refused(data):
    body = copy.deepcopy(data.draw(st.sampled_from(BODIES)))
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(body)))
        container[key] = copy.deepcopy(data.draw(VALUES))
        if not places(body):
            break
    for decode in (decode_messages_request, decode_count_tokens):
        try:
            turn = decode(body)
        except InvalidRequest:
            continue
        assert turn.messages
        assert all(isinstance(message.content, str) for message in turn.messages)
