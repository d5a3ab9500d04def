"""The vocabulary's slices save time, and change no mask."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest
from llguidance import LLMatcher

from inference.grammar.policy import Tool
from inference.grammar.raw_text import Marked
from inference.grammar.source import GrammarSource
from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import END, compiler, schema_source, slices_applied, vocabulary
from tests.testkit.grammar_walks import SCHEMAS, STRING, source_for

# One of each way that a dialect of tags has with text.
BOUNDED_IN_TAGS: dict[str, dict[str, object]] = {
    "qwen3_coder": {"type": ["string", "null"]},  # beside a word that is no text
    "hyperclovax": {"type": "string"},  # trimmed
    "minicpm5": {"type": "string", "minLength": 2},  # beside CDATA
    "minimax_m3": {"type": ["string", "boolean"]},  # in a tree of elements
    "deepseek_v32": {"type": ["string", "null"]},  # where the tag states the type
}


def bounded(num_chars: int) -> GrammarSource:
    return schema_source({"type": "string", "maxLength": num_chars})


def tagged(dialect: str, num_chars: int, text: Mapping[str, object] = STRING) -> GrammarSource:
    text = {**text, "maxLength": num_chars}
    schema = {"type": "object", "properties": {"a": text}, "required": ["a"]}
    return source_for(DIALECTS[dialect], (Tool("do_it", schema, strict=True),))


SOURCES = {f"{size} characters": bounded(size) for size in (1, 2, 3, 7, 16, 40)}
SOURCES |= {
    f"{name} and 12 characters": tagged(name, 12) for name in ("qwen3_coder", "glm4", "harmony", "gemma4", "lfm2")
}
SOURCES |= {f"{name} and a bounded text": tagged(name, 12, text) for name, text in BOUNDED_IN_TAGS.items()}
SOURCES |= {name: schema_source({"type": "object", **schema}) for name, schema in SCHEMAS.items()}


@pytest.mark.parametrize("name", SOURCES)
def test_a_mask_is_the_same_without_slices(name: str) -> None:
    check_masks(SOURCES[name], SOURCES[name].lark, name)


@pytest.mark.parametrize("name", BOUNDED_IN_TAGS)
def test_the_lexeme_that_slices_apply_to_changes_no_mask(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tagged(name, 12, BOUNDED_IN_TAGS[name])
    monkeypatch.setattr(Marked, "simple_text", lambda *_: "")
    plain = tagged(name, 12, BOUNDED_IN_TAGS[name])
    assert plain.lark != source.lark
    check_masks(source, plain.lark, name)


@pytest.mark.parametrize(
    ("source", "before"),
    [(bounded(40), '"'), (tagged("lfm2", 40), "<|tool_call_start|>[do_it(a='"),
     (tagged("lfm2", 40), '<|tool_call_start|>[do_it(a="'), (tagged("gemma4", 40), '<|tool_call>call:do_it{a:<|"|>'),
     (tagged("qwen3_coder", 40), "<tool_call>\n<function=do_it>\n<parameter=a>\n")],
    ids=["JSON", "single quotes", "double quotes", "a delimiter", "a tag"],
)  # fmt: skip
def test_slices_apply_in_whatever_a_text_stands(source: GrammarSource, before: str) -> None:
    assert min(slices_applied(source, f"{before}oslo", num_bytes=4)) > 0


def check_masks(source: GrammarSource, lark: str, name: str) -> None:
    """Random walks under `source` have the masks that `lark` has without slices."""
    rng = random.Random(name)
    unsliced = vocabulary().tokenizer.with_slices([])
    num_places = 0
    for _ in range(3):
        matcher, plain = compiler().matcher(source), LLMatcher(unsliced, lark, log_level=0)
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
