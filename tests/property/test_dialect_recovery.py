"""Damaged answers: what each dialect says it recovers from, it does, at any cut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from stream_parser.dialect import Dialect, JsonArguments, JsonCall, Recovery, TaggedArguments
from stream_parser.dialects import DETECTION_ORDER
from stream_parser.patterns import plain
from stream_parser.renderer import WrittenCall, render
from tests.testkit.parser_streams import comparable, cuts, parse_message, tool

TOOLS = [
    tool(
        "put_note",
        text={"type": "string"},
        level={"type": "integer"},
        tags={"type": "array", "items": {"type": "string"}},
    ),
    tool("ping", host={"type": "string"}),
]
FIRST = WrittenCall("put_note", {"text": 'a "b" <c>\nd', "level": 3, "tags": ["x", "y z"]})
SECOND = WrittenCall("ping", {"host": "db-1"})


@dataclass(frozen=True)
class Damage:
    """A text as some model wrote it, and what is to be read from it."""

    text: str
    reasoning: str = ""
    calls: tuple[WrittenCall, ...] = (FIRST, SECOND)
    prompt_tail: str = ""


def markers(dialect: Dialect) -> tuple[list[str], list[str], list[str], list[str]]:
    """Section openers and closers, call openers, call closers (tails included), as rendered."""
    sections = dialect.sections[:1]
    call = dialect.calls[0]
    return (
        [plain(s.opens[0]) for s in sections],
        [plain(s.closes[0]) for s in sections],
        [plain(call.opens[0])] if call.opens else [],
        [plain(marker[0]) for marker in (call.tails, call.closes) if marker],
    )


def without_section(dialect: Dialect) -> Iterator[Damage]:
    text = render(dialect, calls=(FIRST, SECOND))
    opens, closes, _, _ = markers(dialect)
    if opens:
        yield Damage(text.removeprefix(opens[0]))
        yield Damage(text.removesuffix(closes[0]))
        yield Damage(text.removeprefix(opens[0]).removesuffix(closes[0]))


def without_call_open(dialect: Dialect) -> Iterator[Damage]:
    _, _, opens, _ = markers(dialect)
    if opens and dialect.calls[0].heads:
        yield Damage(render(dialect, calls=(FIRST, SECOND)).replace(opens[0], ""))
        yield Damage(render(dialect, calls=(SECOND,)).replace(opens[0], ""), calls=(SECOND,))


def without_call_close(dialect: Dialect) -> Iterator[Damage]:
    _, _, opens, closes = markers(dialect)
    call = dialect.calls[0]
    if closes and not call.own_section and (opens or call.heads):
        yield Damage(render(dialect, calls=(FIRST, SECOND)).replace(closes[-1], ""))


def without_value_close(dialect: Dialect) -> Iterator[Damage]:
    body = dialect.calls[0].body
    if isinstance(body, TaggedArguments):
        text = render(dialect, calls=(FIRST,))
        close = plain(body.closes[0])
        yield Damage(text.replace(close, "", 1), calls=(FIRST,))


def ended_after_body(dialect: Dialect) -> Iterator[Damage]:
    call = dialect.calls[0]
    if call.own_section or not call.closes or isinstance(call.body, TaggedArguments):
        return
    text = render(dialect, calls=(SECOND,))
    end = text.rindex("}") + 1 if "}" in text else len(text)
    yield Damage(text[:end], calls=(SECOND,))


def reasoning_left_open(dialect: Dialect) -> Iterator[Damage]:
    call = dialect.calls[0]
    if dialect.reasoning and (call.opens or call.heads) and call.anchor == "anywhere" and dialect.reasoning[0].closes:
        span = dialect.reasoning[0]
        opener = plain(span.opens[0]) if span.opens else ""
        body = render(dialect, calls=(FIRST, SECOND))
        if opener:
            yield Damage(opener + span.after_open + "I plan." + "\n" + body, reasoning="I plan.")
        yield Damage("I plan.\n" + body, reasoning="I plan.", prompt_tail=dialect.reasoning_open)


def reasoning_closed_twice(dialect: Dialect) -> Iterator[Damage]:
    if dialect.reasoning and dialect.reasoning[0].closes and dialect.reasoning[0].opens:
        closer = plain(dialect.reasoning[0].closes[0])
        text = render(dialect, reasoning="I plan.", calls=(FIRST, SECOND))
        at = text.index(closer) + len(closer)
        yield Damage(text[:at] + "\n" + closer + text[at:], reasoning="I plan.")


def orphan_closers(dialect: Dialect) -> Iterator[Damage]:
    _, section_closes, _, closes = markers(dialect)
    for closer in (*section_closes, *closes):
        if closer.startswith(("<", "[", "]")):
            yield Damage(render(dialect, calls=(FIRST, SECOND)) + "\n" + closer)


def renamed_keys(dialect: Dialect) -> Iterator[Damage]:
    body = dialect.calls[0].body
    if isinstance(body, JsonCall) and not body.name_is_key:
        text = render(dialect, calls=(FIRST, SECOND))
        other = "parameters" if body.argument_keys[0] == "arguments" else "arguments"
        yield Damage(text.replace(f'"{body.argument_keys[0]}"', f'"{other}"'))


def encoded_arguments(dialect: Dialect) -> Iterator[Damage]:
    body = dialect.calls[0].body
    text = json.dumps(SECOND.arguments)
    if isinstance(body, JsonCall | JsonArguments):
        rendered = render(dialect, calls=(SECOND,))
        assert text in rendered
        yield Damage(rendered.replace(text, json.dumps(text)), calls=(SECOND,))


def wrapped_arguments(dialect: Dialect) -> Iterator[Damage]:
    wrapped = WrittenCall("ping", {"arguments": {"host": "db-1"}})
    yield Damage(render(dialect, calls=(wrapped,)), calls=(SECOND,))


def echoed_body(dialect: Dialect) -> Iterator[Damage]:
    text = render(dialect, calls=(FIRST, SECOND))
    opener = plain(dialect.calls[0].opens[0])
    yield Damage(text + text.removeprefix(opener))
    yield Damage(text + "\n" + text.removeprefix(opener))


UNIVERSAL: dict[str, Callable[[Dialect], Iterator[Damage]]] = {
    "missing_call_close": without_call_close,
    "eof_complete_body": ended_after_body,
    "unclosed_reasoning": reasoning_left_open,
    "dup_reasoning_close": reasoning_closed_twice,
    "stray_marker": orphan_closers,
    "alias_keys": renamed_keys,
    "string_args": encoded_arguments,
}
DAMAGES: dict[Recovery, Callable[[Dialect], Iterator[Damage]]] = {
    "missing_section_open": without_section,
    "missing_call_open": without_call_open,
    "missing_value_close": without_value_close,
    "wrapper_arg": wrapped_arguments,
    "echo_after": echoed_body,
}
CASES = [
    pytest.param(dialect, damage, id=f"{dialect.name}-{switch}-{number}")
    for dialect in DETECTION_ORDER
    if dialect.calls and not dialect.messages
    for switch, damages in [*UNIVERSAL.items(), *((s, d) for s, d in DAMAGES.items() if s in dialect.recovery)]
    for number, damage in enumerate(damages(dialect))
]


@pytest.mark.parametrize(("dialect", "damage"), CASES)
def test_damaged_answers_give_the_calls_that_were_meant(dialect: Dialect, damage: Damage) -> None:
    whole = parse_message(dialect, damage.text, TOOLS, prompt_tail=damage.prompt_tail)

    assert whole.reasoning.rstrip() == damage.reasoning
    assert re.sub(r"\s", "", whole.content) == ""
    assert [call.name for call in whole.tool_calls] == [call.name for call in damage.calls]
    for call, written in zip(whole.tool_calls, damage.calls, strict=True):
        assert call.outcome in ("ok", "repaired"), call
        assert json.loads(call.arguments) == dict(written.arguments)
    for pieces in cuts(damage.text, max_pairs=60):
        assert comparable(parse_message(dialect, pieces, TOOLS, prompt_tail=damage.prompt_tail)) == comparable(whole)
