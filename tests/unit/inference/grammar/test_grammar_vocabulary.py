"""The vocabulary's slices save time, and change no mask."""

from __future__ import annotations

import random

import numpy as np
import pytest
from llguidance import LLMatcher

from inference.grammar.policy import Tool
from inference.grammar.source import GrammarSource
from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import END, compiler, schema_source, vocabulary
from tests.testkit.grammar_walks import SCHEMAS, source_for


def bounded(num_chars: int) -> GrammarSource:
    return schema_source({"type": "string", "maxLength": num_chars})


def tagged(dialect: str, num_chars: int) -> GrammarSource:
    text = {"type": "string", "maxLength": num_chars}
    schema = {"type": "object", "properties": {"a": text}, "required": ["a"]}
    return source_for(DIALECTS[dialect], (Tool("do_it", schema, strict=True),))


SOURCES = {f"{size} characters": bounded(size) for size in (1, 2, 3, 7, 16, 40)}
SOURCES |= {f"{name} and 12 characters": tagged(name, 12) for name in ("qwen3_coder", "glm4", "harmony", "gemma4")}
SOURCES |= {name: schema_source({"type": "object", **schema}) for name, schema in SCHEMAS.items()}


@pytest.mark.parametrize("name", SOURCES)
def test_a_mask_is_the_same_without_slices(name: str) -> None:
    lark, rng = SOURCES[name].lark, random.Random(name)
    unsliced = vocabulary().tokenizer.with_slices([])
    num_places = 0
    for _ in range(3):
        matcher, plain = compiler().matcher(SOURCES[name]), LLMatcher(unsliced, lark, log_level=0)
        row = np.zeros(vocabulary().mask_words, dtype=np.int32)
        while not matcher.is_done and num_places < 150:
            assert matcher.mask(row)
            assert row.tobytes() == plain.compute_bitmask()
            choices = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
            token = int(rng.choice(choices))
            assert matcher.accept(token)
            assert plain.try_consume_tokens([token]) == 1
            num_places += 1
            if token == END:
                break
    assert num_places > 2
