"""Schemas at random: what their grammars let be written is valid, or of a keyword that is said not to be enforced."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing.exceptions import Unresolvable

from inference.grammar.errors import GrammarError
from inference.grammar.source import GrammarSource
from inference.grammar.validation import Undecided, Validator
from tests.testkit.grammar_kit import SMALL_BOUNDS, compiler, random_walk, schema_source
from tests.testkit.random_schemas import random_schema

NUM_SEEDS = 40
NUM_SCHEMAS = 6  # of each seed


def _source(schema: Any) -> GrammarSource | None:
    try:
        source = schema_source(schema, SMALL_BOUNDS)
        compiler().check(source)
    except GrammarError:
        return None
    return source


def _is_valid(schema: Any, value: Any) -> bool | None:
    """None where the judge has no answer: where a keyword is malformed that no grammar reads, or leads nowhere. And it
    follows a reference within `not` to itself until the process ends."""
    text = json.dumps(schema)
    if '"$ref"' in text and '"not"' in text:
        return None
    try:
        Draft202012Validator.check_schema(schema)
        return Draft202012Validator(schema).is_valid(value)
    except (SchemaError, Unresolvable):
        return None


def _is_found_valid(schema: Any, value: Any) -> bool | None:
    try:
        return Validator(schema).first_fault(value) is None
    except Undecided:
        return None


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_what_a_grammar_lets_be_written_is_valid_or_its_keyword_is_named(seed: int) -> None:
    rng = random.Random(seed)
    for schema in [random_schema(rng, rng.choice((2, 3))) for _ in range(NUM_SCHEMAS)]:
        source = _source(schema)
        if source is None:
            continue
        value = json.loads(random_walk(source, rng))
        is_valid = _is_valid(schema, value)
        if is_valid is not None:
            assert is_valid or source.not_enforced, (schema, value)
            assert _is_found_valid(schema, value) in (is_valid, None), (schema, value)
