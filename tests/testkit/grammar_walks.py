"""Random walks under a grammar's masks: tokens drawn evenly, and what they write must parse, and be valid.

Also the schemas and dialects that tests of grammars share.
"""

from __future__ import annotations

import json
import random

import jsonschema

from inference.grammar.build import build_grammar
from inference.grammar.compile import GrammarCompiler
from inference.grammar.policy import Bounds, CallPolicy, Tool
from inference.grammar.source import GrammarSource
from inference.grammar.special_tokens import special_tokens_of
from inference.models import resolve
from stream_parser.dialect import Dialect
from stream_parser.dialects import DETECTION_ORDER
from tests.testkit.grammar_kit import SMALL_BOUNDS, Kit, small_kit
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


def more_schemas() -> dict[str, dict[str, object]]:
    """28 more: pairs of the ones above side by side, each in an object, a list, or as alternatives."""
    names = list(SCHEMAS)
    found: dict[str, dict[str, object]] = {}
    for number in range(28):
        left, right = names[number % len(names)], names[(number * 5 + 3 + number // len(names)) % len(names)]
        parts = [{"type": "object", **{k: v for k, v in SCHEMAS[n].items() if k != "$defs"}} for n in (left, right)]
        kinds: list[dict[str, object]] = [
            {"properties": {"first": parts[0], "second": parts[1]}, "required": ["first"]},
            {"properties": {"list": {"type": "array", "items": parts[0], "maxItems": 2}, "other": parts[1]}},
            {"properties": {"either": {"anyOf": parts}}, "required": ["either"], "additionalProperties": False},
        ]
        defs = {k: v for n in (left, right) for k, v in dict(SCHEMAS[n].get("$defs", {})).items()}  # type: ignore[call-overload]
        kind = kinds[(number + number // len(names)) % 3]
        found[f"{number}: {left} and {right}"] = kind | ({"$defs": defs} if defs else {})
    return found


def source_for(
    dialect: Dialect, tools: tuple[Tool, ...], bounds: Bounds = SMALL_BOUNDS, kit: Kit | None = None
) -> GrammarSource:
    """The grammar of demanded calls."""
    kit = kit or small_kit()
    source = build_grammar(
        dialect, CallPolicy("required", tools), bounds=bounds, special_tokens=kit.special_tokens,
        end_tokens=[kit.end], max_reasoning_tokens=0,
    )  # fmt: skip
    assert source is not None
    return source


def check_walk(dialect: Dialect, schema: dict[str, object], seed: int, kit: Kit | None = None) -> None:
    """A walk parses to calls that are as they were written, and valid."""
    kit = kit or small_kit()
    schema = {"type": "object", **schema}
    tool = {"type": "function", "function": {"name": "do_it", "parameters": schema}}
    source = source_for(dialect, (Tool("do_it", schema, strict=True),), kit=kit)
    text = kit.random_walk(source, random.Random(seed))
    tail = dialect.messages.starts[0] if dialect.messages else ""
    message = parse_message(dialect, text, [tool], prompt_tail=tail)
    assert message.tool_calls, text
    assert not message.content.strip(), text
    for call in message.tool_calls:
        assert (call.name, call.outcome) == ("do_it", "ok"), (text, call)
        jsonschema.validate(json.loads(call.arguments), schema)


def default_model_kit() -> Kit:
    """The vocabulary of the embedded default model, which may be downloaded for it."""
    folder = resolve(None).folder
    special = special_tokens_of((folder / "tokenizer.json").read_text())
    vocab_size = json.loads((folder / "config.json").read_text())["vocab_size"]
    return Kit(GrammarCompiler.from_folder(folder, vocab_size, [special["<|im_end|>"]]), special, "<|im_end|>")
