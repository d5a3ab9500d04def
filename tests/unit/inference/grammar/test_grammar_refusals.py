"""Refusals name the field, what it says, and what would do instead; whatever the schema, nothing else is raised."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest

from inference.grammar.build import build_grammar
from inference.grammar.errors import GrammarError
from inference.grammar.policy import CallPolicy, TextGrammar, Tool
from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import compiler, schema_source, takes, takes_value
from tests.testkit.grammar_walks import source_for
from tests.testkit.random_schemas import random_schema

NUM_SCHEMAS = 300
def _refusal(schema: Any) -> GrammarError | None:
    try:
        compiler().check(schema_source(schema))
    except GrammarError as error:
        return error
    return None


def test_any_schema_is_compiled_or_refused_by_field_and_keyword() -> None:
    rng = random.Random(20)
    schemas = [random_schema(rng, 3) for _ in range(NUM_SCHEMAS)]
    refusals = [(schema, error) for schema in schemas if (error := _refusal(schema)) is not None]
    for schema, error in refusals:
        assert error.path.startswith("response_format.schema"), (schema, error)
        assert error.keyword, (schema, error)
        assert str(error).startswith(f"{error.path}: "), (schema, error)
    assert NUM_SCHEMAS / 5 < len(refusals) < NUM_SCHEMAS * 4 / 5


@pytest.mark.parametrize(
    ("schema", "path", "said"),
    [
        ({"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
         "tools[1].parameters", '"minProperties" of 1 takes members that are not declared'),
        ({"type": "object", "properties": {"a<b": {}}, "required": ["a<b"]},
         "tools[1].parameters", "\"required\" names 'a<b', a required member that cannot be written in"),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
         "tools[1].parameters.properties.a", "\"pattern\" '(' is no regular expression. Rewrite it"),
        ({"type": "array"}, "tools[1].parameters", '"type" allows no object'),
        ({"type": "object", "minProperties": 2, "properties": {f"p{i}": {} for i in range(500)}},
         "tools[1].parameters", '"minProperties" beside 500 declared members'),
    ],
)  # fmt: skip
def test_a_tool_is_refused_by_its_place_and_its_name(schema: dict[str, Any], path: str, said: str) -> None:
    tools = (Tool("ping", {}), Tool("set_env", schema))
    with pytest.raises(GrammarError) as caught:
        source_for(DIALECTS["qwen3_coder"], tools)
    assert caught.value.path == caught.value.field == path
    assert said in str(caught.value)
    assert str(caught.value).endswith("(tool 'set_env')")


def test_an_object_within_that_the_syntax_cannot_write_is_named_where_it_stands() -> None:
    inner = {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}
    schema = {"type": "object", "properties": {"env": inner}, "required": ["env"]}
    with pytest.raises(GrammarError, match=r'properties\.env: "minProperties" of 1') as caught:
        source_for(DIALECTS["minimax_m3"], (Tool("set_env", schema),))
    assert caught.value.path == "tools[0].parameters.properties.env"


def test_a_tool_knows_its_place_in_the_request_though_it_is_the_only_one_that_may_be_called() -> None:
    tool = Tool("f", {"type": "object", "properties": {"a": {"type": "text!"}}}, place="tools[7]")
    with pytest.raises(GrammarError) as caught:
        build_grammar(DIALECTS["hermes"], CallPolicy("required", (tool,)))
    assert caught.value.path == "tools[7].parameters.properties.a"


@pytest.mark.parametrize(
    ("schema", "path", "said"),
    [
        ({"type": "string", "allOf": [{"minLength": 5}, {"$ref": "#/$defs/short"}],
          "$defs": {"short": {"maxLength": 4}}},
         "response_format.schema.allOf[0]",
         '"minLength" of 5 is more than "maxLength" of 4 at response_format.schema(#/$defs/short)'),
        ({"type": "object", "properties": {"id": {"type": "string", "format": "uuid", "maxLength": 10}},
          "required": ["id"]}, "response_format.schema.properties.id",
         "\"format\" 'uuid' fits no string that also has maxLength 10"),
        ({"type": "integer", "minimum": 1, "maximum": 4, "multipleOf": 5}, "response_format.schema",
         '"minimum" of 1 leaves no multiple of 5 up to "maximum" of 4'),
        ({"type": "string", "enum": [1, 2]}, "response_format.schema",
         '"enum" [1, 2] has no value that all other keywords allow'),
        ({"type": "array", "items": False, "prefixItems": [{}], "minItems": 2}, "response_format.schema",
         '"minItems" of 2 is more than the 1 that there may be'),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "response_format.schema.allOf[1]",
         "\"type\" leaves no type of value that is 'string' and 'integer'"),
    ],
)  # fmt: skip
def test_a_contradiction_is_told_with_both_its_sides(schema: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(GrammarError) as caught:
        schema_source(schema)
    assert str(caught.value) == f"{path}: {said}: the schema allows no value at all."


@pytest.mark.parametrize("keyword", ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
@pytest.mark.parametrize("bound", [-1e19, 1e19, -(2**63) - 1, 2**64, -1e300, 1e300])
@pytest.mark.parametrize("kind", ["integer", "number"])
def test_bounds_beyond_64_bits_are_followed(kind: str, keyword: str, bound: float) -> None:
    """The library's own ranges end the whole process there."""
    schema = {"type": kind, keyword: bound}
    inwards = 1 if keyword.endswith("inimum") else -1
    is_far = (bound < 0) == (inwards > 0)
    exact = int(Decimal(str(bound)))
    assert takes_value(schema, 0 if is_far else exact + inwards)
    assert not takes_value(schema, exact - 5 * inwards)


@pytest.mark.parametrize(
    "schema", [{"minLength": 1e30}, {"maxItems": 10**40}, {"minProperties": 2_000_000}, {"minimum": 10**400},
               {"multipleOf": 3, "minimum": 1e30}, {"exclusiveMaximum": float("inf")},
               {"maxItems": float("inf")}, {"minLength": float("nan")}, {"maxProperties": 1.5}],
)  # fmt: skip
def test_numbers_that_no_grammar_can_count_to_are_refused(schema: dict[str, Any]) -> None:
    keyword = next(iter(schema))
    with pytest.raises(GrammarError) as caught:
        schema_source(schema)
    assert caught.value.keyword == keyword


def test_a_clients_own_grammar_brings_no_schema_past_the_reader() -> None:
    text = TextGrammar('start: "a" | %json {"type": "integer", "maximum": -1e20}')
    with pytest.raises(GrammarError, match="uses %json") as caught:
        build_grammar(DIALECTS["plain"], CallPolicy(), text)
    assert caught.value.path == "structured_outputs.grammar"
    quoted = build_grammar(DIALECTS["plain"], CallPolicy(), TextGrammar('start: "%json"'), max_reasoning_tokens=0)
    assert quoted is not None
    assert takes(quoted, "%json")


@pytest.mark.parametrize(
    ("name", "pattern"), [("qwen3_coder", "^</parameter>$"), ("seed_oss", "^</parameter>$"), ("gemma4", '^<\\|"\\|>$')]
)
def test_a_pattern_that_only_a_marker_fits_is_refused_where_it_must_be_written(name: str, pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    with pytest.raises(GrammarError, match="the value of a required member that cannot be written"):
        source_for(DIALECTS[name], (Tool("f", {**schema, "required": ["a"]}),))
    compiler().check(source_for(DIALECTS[name], (Tool("f", schema),)))


def test_options_that_require_as_draft_3_did_are_read() -> None:
    option = {"type": "object", "properties": {"a": {"const": 1, "required": True}}, "required": True}
    assert takes(schema_source({"oneOf": [option, option]}), "{}")
