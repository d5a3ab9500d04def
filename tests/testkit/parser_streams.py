"""Cuts of a text, the promises that every stream of parser events keeps, and how events are compared."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

from stream_parser import StreamParser, collect
from stream_parser.dialect import Dialect
from stream_parser.events import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    Message,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)

Tool = Mapping[str, object]


def tool(name: str, required: Sequence[str] = (), **properties: object) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def parse(
    dialect: str | Dialect,
    pieces: Iterable[str],
    tools: Sequence[Tool] | None,
    reason: FinishReason = "stop",
    prompt_tail: str = "",
) -> list[Event]:
    parser = StreamParser(dialect, tools, prompt_tail, id_source=counting_ids())
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.finish(reason)
    check_promises(events)
    return events


def parse_message(
    dialect: str | Dialect,
    text: str | Iterable[str],
    tools: Sequence[Tool] | None,
    reason: FinishReason = "stop",
    prompt_tail: str = "",
) -> Message:
    pieces = [text] if isinstance(text, str) else text
    return collect(parse(dialect, pieces, tools, reason, prompt_tail))


def counting_ids() -> object:
    numbers = iter(range(1, 1_000_000))
    return lambda: f"call_{next(numbers)}"


def cuts(text: str, seed: int = 0, random_cuts: int = 4, max_pairs: int = 120) -> Iterator[list[str]]:
    """The text whole, by characters, in two pieces at every place (or a sample), and in random pieces."""
    rng = random.Random(seed)
    yield [text]
    yield list(text)
    places = list(range(1, len(text)))
    if len(places) > max_pairs:
        places = sorted(rng.sample(places, max_pairs))
    for place in places:
        yield [text[:place], text[place:]]
    for _ in range(random_cuts):
        yield random_pieces(text, rng)


def random_pieces(text: str, rng: random.Random) -> list[str]:
    count = min(len(text), rng.randint(2, 12))
    marks = sorted(rng.sample(range(len(text) + 1), count)) if text else []
    return [text[a:b] for a, b in zip([0, *marks], [*marks, len(text)], strict=True)]


def check_promises(events: Sequence[Event]) -> None:
    """What the contract says of every stream, whatever the model wrote."""
    arguments: dict[int, str] = {}
    closed: set[int] = set()
    ids: set[str] = set()
    for position, event in enumerate(events):
        match event:
            case ReasoningDelta(text=text) | ContentDelta(text=text):
                assert text, "an empty delta"
                text.encode()
            case ToolCallStart(index=index, id=call_id, name=name):
                assert index == len(arguments), "indexes count up from 0"
                assert name, "a call without a name"
                assert call_id not in ids, "ids are unique"
                ids.add(call_id)
                arguments[index] = ""
            case ToolCallDelta(index=index, arguments=piece):
                assert piece, "an empty delta"
                assert index in arguments, "delta before its start"
                assert index not in closed, "delta after its end"
                piece.encode()
                arguments[index] += piece
            case ToolCallEnd(index=index, arguments=whole, outcome=outcome, reason=reason):
                assert index not in closed, "ended twice"
                closed.add(index)
                assert arguments[index] == whole, "deltas and end disagree"
                assert (outcome == "ok") == (reason == ""), f"{outcome} with reason {reason!r}"
                if outcome in ("ok", "repaired"):
                    assert isinstance(json.loads(whole), dict)
                if outcome == "truncated":
                    assert is_json_prefix(whole), whole
            case Finish():
                assert position == len(events) - 1, "Finish is the last event"
    assert isinstance(events[-1], Finish)
    assert closed == set(arguments), "a call was left open"


def is_json_prefix(text: str) -> bool:
    """Some valid JSON document begins with `text`, as far as brackets and strings tell."""
    stack: list[str] = []
    in_string = escaped = False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "{[":
            stack.append("}" if char == "{" else "]")
        elif char in "}]" and (not stack or stack.pop() != char):
            return False
    return True


def comparable(message: Message) -> tuple[object, ...]:
    """A message without the ids, which are minted in the order of the calls."""
    calls = tuple((call.name, call.arguments, call.outcome, call.reason) for call in message.tool_calls)
    return message.reasoning, message.content, calls, message.finish_reason
