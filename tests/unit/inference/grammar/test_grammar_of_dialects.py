"""For every dialect that has calls: what the renderer writes is taken, what is garbled is not, random text parses."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from inference.grammar.errors import DialectNotConstrainable, GrammarError
from inference.grammar.policy import Bounds, Tool
from stream_parser.dialect import Call, Dialect, NoArguments, RawArgument
from stream_parser.dialects import DIALECTS
from stream_parser.renderer import WrittenCall, render
from tests.testkit.grammar_kit import takes
from tests.testkit.grammar_walks import CALLING, NOTE, SCHEMAS, WITHOUT_CALLS, check_walk, source_for
from tests.testkit.parser_streams import parse_message

TOOLS = (Tool("write_note", NOTE), Tool("ping", {}))
WORDS = ["Oslo", "a < b", "it's", '"quoted"', "<p>hi</p>", "é", "東京", "\\n", "x=1, y=2", "f(x)", "null and void"]


def random_arguments(rng: random.Random) -> dict[str, object]:
    """Arguments of write_note in the schema's order, as a model would write them."""
    whole: dict[str, object] = {
        "title": " ".join(rng.choices(WORDS, k=rng.randint(1, 4))),
        "count": rng.randint(-(10**6), 10**6),
        "ratio": rng.choice([0.5, -3.25, 12.0, 1e-05]),
        "urgent": rng.random() < 0.5,
        "kind": rng.choice(["memo", "to do"]),
        "tags": rng.choices(["a", "b c", "é"], k=rng.randint(0, 3)),
        "meta": {"depth": rng.randint(0, 99), **({"label": "up"} if rng.random() < 0.5 else {})},
    }
    return {key: value for key, value in whole.items() if key in NOTE["required"] or rng.random() < 0.6}


@pytest.mark.parametrize("dialect", CALLING, ids=lambda dialect: dialect.name)
def test_what_the_renderer_writes_is_taken(dialect: Dialect) -> None:
    source = source_for(dialect, TOOLS, Bounds())
    rng = random.Random(7)
    for num_calls in (1, 1, 1, 2, 3):
        calls = []
        for _ in range(num_calls):
            arguments = random_arguments(rng)
            calls.append(WrittenCall("write_note", arguments) if rng.random() < 0.8 else WrittenCall("ping", {}))
        text = render(dialect, calls=calls)
        assert takes(source, text), text


def garbled(arguments: dict[str, object]) -> dict[str, WrittenCall]:
    right = {"title": "Oslo", "count": 3} | arguments
    return {
        "another name": WrittenCall("write_memo", right),
        "no required member": WrittenCall("write_note", {"title": "Oslo"}),
        "a wrong type": WrittenCall("write_note", {"title": "Oslo", "count": "three"}),
        "a wrong type inside": WrittenCall("write_note", right | {"meta": {"depth": "deep"}}),
        "an undeclared member": WrittenCall("write_note", right | {"colour": "red"}),
        "a value that is not listed": WrittenCall("write_note", right | {"kind": "letter"}),
    }


@pytest.mark.parametrize("dialect", CALLING, ids=lambda dialect: dialect.name)
def test_a_garbled_call_is_refused(dialect: Dialect) -> None:
    source = source_for(dialect, TOOLS)
    for how, call in garbled({}).items():
        text = render(dialect, calls=[call])
        assert not takes(source, text), (how, text)
    whole = render(dialect, calls=[WrittenCall("write_note", {"title": "Oslo", "count": 3})])
    assert not takes(source, whole[: len(whole) // 2])
    assert not takes(source, "Sure! " + whole)


# One of each kind of body; the others differ in their markers.
WALKED = ("hermes", "qwen3_coder", "lfm2", "gemma4", "minimax_m3")


@pytest.mark.parametrize("name", WALKED)
@pytest.mark.parametrize("kind", SCHEMAS)
def test_random_tokens_under_the_masks_make_valid_calls(name: str, kind: str) -> None:
    check_walk(DIALECTS[name], SCHEMAS[kind], seed=1)


def test_where_the_parser_trims_a_text_has_its_length_without_the_blanks() -> None:
    dialect = DIALECTS["hyperclovax"]
    for low, text in ((2, "ab"), (2, " a"), (2, "\x1ca"), (2, "a\x1f"), (2, "a\u3000"), (0, "ab \n"), (0, "\x1c")):
        bounded = {"type": "string", "minLength": low, "maxLength": 4}
        schema = {"type": "object", "properties": {"a": bounded}, "required": ["a"]}
        written = render(dialect, calls=[WrittenCall("f", {"a": "@"})]).replace("@", text)
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        call = parse_message(dialect, written, [tool]).tool_calls[0]
        is_long_enough = len(json.loads(call.arguments)["a"]) >= low
        assert takes(source_for(dialect, (Tool("f", schema),)), written) == is_long_enough, (low, text)


@pytest.mark.parametrize("name", WITHOUT_CALLS)
def test_a_dialect_without_calls_is_refused_where_one_is_demanded(name: str) -> None:
    with pytest.raises(DialectNotConstrainable, match=name):
        source_for(DIALECTS[name], TOOLS)


def test_a_body_of_one_text_takes_tools_of_one_text_only() -> None:
    call = Call(RawArgument("code"), opens=("<run>",), closes=("</run>",), name="python")
    dialect = replace(DIALECTS["hermes"], name="raw", calls=(call,))
    tool = Tool("python", {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]})
    source = source_for(dialect, (tool,))
    assert takes(source, "<run>print(1)</run>")
    assert not takes(source, "<run>print(1)")
    with pytest.raises(DialectNotConstrainable, match="takes other arguments"):
        source_for(dialect, (TOOLS[0],))


def test_a_body_of_nothing_takes_tools_without_arguments_only() -> None:
    call = Call(NoArguments(), heads=('<go name="{name}"/>',))
    dialect = replace(DIALECTS["hermes"], name="bare", calls=(call,))
    assert takes(source_for(dialect, (TOOLS[1],)), '<go name="ping"/>')
    with pytest.raises(DialectNotConstrainable, match="no arguments"):
        source_for(dialect, TOOLS)


def test_a_name_that_the_syntax_cannot_write_is_refused() -> None:
    with pytest.raises(GrammarError, match=r"tools\[0\]\.name"):
        source_for(DIALECTS["qwen3_coder"], (Tool("a>b", {}),))
    with pytest.raises(GrammarError, match=r"tools\[0\]\.name"):
        source_for(DIALECTS["lfm2"], (Tool("a b", {}),))


def test_a_required_parameter_that_the_syntax_cannot_write_is_refused() -> None:
    tool = Tool("f", {"type": "object", "properties": {"a<b": {"type": "string"}}, "required": ["a<b"]})
    hermes = DIALECTS["hermes"]
    assert takes(source_for(hermes, (tool,)), render(hermes, calls=[WrittenCall("f", {"a<b": "x"})]))
    with pytest.raises(GrammarError, match="required member"):
        source_for(DIALECTS["qwen3_coder"], (tool,))
