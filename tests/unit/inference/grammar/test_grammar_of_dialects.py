"""For every dialect that has calls: what the renderer writes is taken, what is garbled is not, random text parses."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import jsonschema
import pytest

from inference.grammar.build import build_grammar
from inference.grammar.errors import DialectNotConstrainable, GrammarError
from inference.grammar.policy import Bounds, CallPolicy, Tool
from inference.grammar.source import GrammarSource
from stream_parser.dialect import Call, Dialect, NoArguments, RawArgument
from stream_parser.dialects import DETECTION_ORDER, DIALECTS
from stream_parser.renderer import WrittenCall, render
from tests.testkit.grammar_kit import SMALL_BOUNDS, SPECIAL_TOKENS, compiler, random_walk, takes
from tests.testkit.parser_streams import parse_message

WITHOUT_CALLS = ("exaone_deep", "plain")
CALLING = [dialect for dialect in DETECTION_ORDER if dialect.name not in WITHOUT_CALLS]
NOTE = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "urgent": {"type": "boolean"},
        "kind": {"enum": ["memo", "to do"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "meta": {
            "type": "object",
            "properties": {"depth": {"type": "integer"}, "label": {"type": "string"}},
            "required": ["depth"],
        },
    },
    "required": ["title", "count"],
}
TOOLS = (Tool("write_note", NOTE), Tool("ping", {}))
WORDS = ["Oslo", "a < b", "it's", '"quoted"', "<p>hi</p>", "é", "東京", "\\n", "x=1, y=2", "f(x)", "null and void"]


def source_for(dialect: Dialect, tools: tuple[Tool, ...] = TOOLS, bounds: Bounds = SMALL_BOUNDS) -> GrammarSource:
    source = build_grammar(
        dialect, CallPolicy("required", tools), bounds=bounds, special_tokens=SPECIAL_TOKENS, max_reasoning_tokens=0
    )
    assert source is not None
    return source


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
    source = source_for(dialect, bounds=Bounds())
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
    source = source_for(dialect)
    for how, call in garbled({}).items():
        text = render(dialect, calls=[call])
        assert not takes(source, text), (how, text)
    whole = render(dialect, calls=[WrittenCall("write_note", {"title": "Oslo", "count": 3})])
    assert not takes(source, whole[: len(whole) // 2])
    assert not takes(source, "Sure! " + whole)


INTEGER, STRING = {"type": "integer"}, {"type": "string"}
SCHEMAS: dict[str, dict[str, object]] = {
    "plain values": NOTE,
    "no parameters": {},
    "nullable and mixed": {
        "properties": {
            "v": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
            "w": {"type": ["boolean", "string"]},
        },
        "required": ["v", "w"],
    },
    "recursive": {
        "properties": {"node": {"$ref": "#/$defs/node"}},
        "required": ["node"],
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
                "required": ["id"],
            }
        },
    },
    "ranges and lengths": {
        "properties": {
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "part": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
            "code": {"type": "string", "minLength": 2, "maxLength": 6},
            "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
        },
        "required": ["days", "part", "code", "list"],
    },
    "listed values": {
        "properties": {"x": {"const": "fixed"}, "y": {"enum": [1, 2.5, "three", None, True]}},
        "required": ["x", "y"],
    },
    "patterns and formats": {
        "properties": {
            "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
            "day": {"type": "string", "format": "date"},
            "mail": {"type": "string", "format": "email"},
        },
        "required": ["code", "day", "mail"],
    },
    "objects in lists": {
        "properties": {
            "rows": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {"k": {"type": "string"}, "on": {"type": "boolean"}},
                    "required": ["k", "on"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["rows"],
    },
    "one of two shapes": {
        "properties": {
            "shape": {
                "oneOf": [
                    {"type": "object", "properties": {"t": {"const": "dot"}, "x": INTEGER}, "required": ["t", "x"]},
                    {"type": "object", "properties": {"t": {"const": "tag"}, "s": STRING}, "required": ["t"]},
                ]
            }
        },
        "required": ["shape"],
    },
    "anything": {"properties": {"any": {}}, "required": ["any"]},
    "names beyond ASCII": {"properties": {"größe": {"type": "number"}, "n_é": STRING}, "required": ["größe"]},
    "an array of arrays": {"properties": {"m": {"type": "array", "items": {"type": "array", "items": INTEGER}}}},
}
# One of each kind of body; the others differ in their markers.
WALKED = ("hermes", "qwen3_coder", "lfm2", "gemma4", "minimax_m3")


def check_walk(dialect: Dialect, schema: dict[str, object], seed: int) -> None:
    schema = {"type": "object", **schema}
    tool = {"type": "function", "function": {"name": "do_it", "parameters": schema}}
    source = source_for(dialect, (Tool("do_it", schema, strict=True),))
    text = random_walk(compiler().matcher(source), random.Random(seed))
    tail = dialect.messages.starts[0] if dialect.messages else ""
    message = parse_message(dialect, text, [tool], prompt_tail=tail)
    assert message.tool_calls, text
    assert not message.content.strip(), text
    for call in message.tool_calls:
        assert (call.name, call.outcome) == ("do_it", "ok"), (text, call)
        jsonschema.validate(json.loads(call.arguments), schema)


@pytest.mark.parametrize("name", WALKED)
@pytest.mark.parametrize("kind", SCHEMAS)
def test_random_tokens_under_the_masks_make_valid_calls(name: str, kind: str) -> None:
    check_walk(DIALECTS[name], SCHEMAS[kind], seed=1)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dialect", CALLING, ids=lambda dialect: dialect.name)
def test_many_random_walks_make_valid_calls(dialect: Dialect) -> None:
    for schema in SCHEMAS.values():
        for seed in range(100, 120):
            check_walk(dialect, schema, seed)


@pytest.mark.parametrize("name", WITHOUT_CALLS)
def test_a_dialect_without_calls_is_refused_where_one_is_demanded(name: str) -> None:
    with pytest.raises(DialectNotConstrainable, match=name):
        source_for(DIALECTS[name])


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
        source_for(dialect)


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
