"""A body that is wrong anywhere is refused by name or answered: nothing a client sends is an error of ours."""

import copy
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import InvalidRequest, NotFound
from gateway.protocols.frames import TurnLabels
from gateway.protocols.responses_compact import compacted
from gateway.protocols.responses_encoder import ResponsesEncoder
from gateway.protocols.responses_request import build_turn, decode_request, resolve_items
from gateway.types import TurnDone, TurnStarted, Usage
from tests.testkit.responses_order import check_order

GOOD = Path(__file__).parents[2] / "fixtures" / "requests" / "responses_good.jsonl"
BODIES = [json.loads(line)["body"] for line in GOOD.read_text().splitlines()]
SCALARS = st.none() | st.booleans() | st.integers(-3, 10**12) | st.floats(allow_nan=False) | st.text(max_size=8)
KEYS = st.sampled_from(["type", "id", "role", "content", "name", "tools", "text", "output", "action", "namespace"])
TYPES = st.sampled_from(["message", "function", "namespace", "custom", "reasoning", "compaction", "item_reference"])
VALUES = st.recursive(
    SCALARS | TYPES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=6,
)


def places(value, path=()):
    """The paths of everything inside."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*path, key)
        yield from places(inner, (*path, key))


@st.composite
def broken_bodies(draw):
    body = copy.deepcopy(draw(st.sampled_from(BODIES)))
    for _ in range(draw(st.integers(1, 2))):
        *way, last = draw(st.sampled_from(sorted(places(body), key=repr)))
        holder = body
        for key in way:
            holder = holder[key]
        holder[last] = draw(VALUES)
    return body


@settings(max_examples=100, deadline=None)
@given(broken_bodies())
def test_a_body_with_anything_anywhere_is_refused_or_answered(body):
    try:
        request = decode_request(body)
        items = resolve_items(request.input, lambda _: None)
        turn = build_turn(request, (), items)
    except (InvalidRequest, NotFound):
        return
    encoder = ResponsesEncoder(TurnLabels("resp_1", "m", 1), turn, lambda: 2.0)
    frames = [frame for item in (TurnStarted(), TurnDone(Usage(1, 1))) for frame in encoder.encode(item)]
    check_order([json.loads(frame.data) for frame in frames])
    build_turn(request, compacted(items), items)
