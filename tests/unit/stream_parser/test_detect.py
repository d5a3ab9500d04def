"""Which dialect a checkpoint speaks, from its chat template and its tokens."""

from __future__ import annotations

import pytest

from stream_parser import DIALECTS, StreamParser, dialect_for
from stream_parser.detect import dialect_named
from stream_parser.dialect import Dialect
from stream_parser.dialects import DETECTION_ORDER
from stream_parser.errors import UnknownDialect, UnsupportedTemplate
from tests.testkit.parser_tools import calls, read

HERMES_TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}
{% for c in m.tool_calls %}<tool_call>{"name": "{{ c.name }}", "arguments": {{ c.arguments | tojson }}}</tool_call>
{% endfor %}<|im_end|>{% endfor %}"""
CODER_TEMPLATE = "<|im_start|>assistant\n<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>"
UNKNOWN_TEMPLATE = "{% for m in messages %}[[{{ m.role }}]] {{ m.content }}{% endfor %}"
RESPONSE_TEMPLATE = {
    "start_anchor": "[[assistant]] ",
    "fields": {"tool_calls": {"open": "[[do]]", "close": "[[done]]", "content": "json"}},
}


@pytest.mark.parametrize(
    ("template", "vocab", "name"),
    [
        (HERMES_TEMPLATE, None, "hermes"),
        (CODER_TEMPLATE, None, "qwen3_coder"),
        (CODER_TEMPLATE + "MiMo", None, "mimo"),
        (CODER_TEMPLATE.replace("<tool_call>", "<seed:tool_call>"), None, "seed_oss"),
        ("", {"<|tool_call_begin|>": 1, "<|tool_call_argument_begin|>": 2}, "kimi_k2"),
        ("", ["<start_function_call>"], "functiongemma"),
        ("...<|tool_call_begin|>...", frozenset({"<|tool_call_argument_begin|>"}), "kimi_k2"),
        ("[TOOL_CALLS]", None, "mistral_v3"),
        ("[TOOL_CALLS][ARGS]", None, "mistral_v13"),
        ("[TOOL_CALLS][CALL_ID][ARGS]", None, "mistral_v11"),
        ("<｜tool▁calls▁begin｜> <think> <｜tool▁sep｜> ```json", None, "deepseek_v3"),
        ("<｜tool▁calls▁begin｜> <think> <｜tool▁sep｜>", None, "deepseek_v31"),
    ],
)
def test_literals_in_template_or_vocabulary_pick_the_dialect(template: str, vocab: object, name: str) -> None:
    assert dialect_for(template, vocab).name == name  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", [d for d in DETECTION_ORDER if d.fingerprints], ids=lambda d: d.name)
def test_every_fingerprint_is_enough_for_its_dialect_or_one_more_specific(dialect: Dialect) -> None:
    order = [d.name for d in DETECTION_ORDER]
    for mark in dialect.fingerprints:
        found = dialect_for(" ".join(mark))
        assert order.index(found.name) <= order.index(dialect.name), (mark, found.name)


def test_every_dialect_with_fingerprints_can_be_picked() -> None:
    picked = {dialect_for(" ".join(mark)).name for dialect in DETECTION_ORDER for mark in dialect.fingerprints}
    assert {dialect.name for dialect in DETECTION_ORDER if dialect.fingerprints} - picked == set()


def test_a_literal_that_speaks_against_a_dialect_outweighs_its_fingerprints() -> None:
    assert dialect_for("<function=NAME></function><|start_header_id|>").name == "functionary_v31"
    assert dialect_for("<function=NAME><parameter=KEY></function><|start_header_id|><tool_call>").name == "qwen3_coder"


def test_a_template_that_fits_none_names_the_nearest_and_how_to_choose() -> None:
    with pytest.raises(UnknownDialect, match=r"no known tool-call dialect fits.*--dialect NAME") as caught:
        dialect_for("<|open|> only, without its other half")
    assert caught.value.nearest == "kimi_k3"
    assert "'kimi_k3'" in str(caught.value)


@pytest.mark.parametrize("template", ["", "<|im_start|>assistant\n"])
def test_of_equally_near_dialects_that_of_most_models_is_named(template: str) -> None:
    with pytest.raises(UnknownDialect) as caught:
        dialect_for(template)
    assert caught.value.nearest == "hermes"


def test_a_known_dialect_wins_over_the_checkpoints_own_template() -> None:
    assert dialect_for(HERMES_TEMPLATE, response_template=RESPONSE_TEMPLATE).name == "hermes"


def test_literals_in_the_checkpoints_own_template_count_however_they_are_escaped() -> None:
    field = {"open_pattern": r"<\|START_ACTION\|>", "close": "<|END_ACTION|>", "content": "json"}
    answer = {"open": "<|START_RESPONSE|>", "close": "<|END_RESPONSE|>"}
    spec = {"fields": {"tool_calls": field, "content": answer}}
    assert dialect_for("", response_template=spec).name == "cohere_command3"


def test_a_template_of_its_own_is_imported_where_no_dialect_fits() -> None:
    dialect = dialect_for(UNKNOWN_TEMPLATE, response_template=RESPONSE_TEMPLATE)
    assert dialect.name == "response_template"
    assert calls(read(dialect, '[[do]]{"name": "bare", "arguments": {}}[[done]]')) == [("bare", {})]


def test_a_template_of_its_own_that_cannot_be_imported_is_told_with_the_nearest_dialect() -> None:
    with pytest.raises(UnknownDialect, match="it has no fields") as caught:
        dialect_for(UNKNOWN_TEMPLATE, response_template={})
    assert isinstance(caught.value.__cause__, UnsupportedTemplate)
    assert caught.value.nearest


def test_dialects_are_found_by_name_and_by_alias() -> None:
    assert dialect_named("hermes") is dialect_named("qwen3") is DIALECTS["hermes"]


def test_a_name_that_is_none_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownDialect, match=r"no dialect is called 'hermit'; there are .*hermes, ") as caught:
        dialect_named("hermit")
    assert str(caught.value).endswith(sorted(DIALECTS)[-1])
    with pytest.raises(UnknownDialect):
        StreamParser("hermit")


def test_plain_text_that_many_vocabularies_hold_names_no_dialect():
    """Code models have tokens such as these; seen with a template that is known to nobody."""
    common = [">>>", "functools", "tools", "```", "json", "[", "]", "Action", "->", "<|im_start|>", "<|im_end|>"]
    with pytest.raises(UnknownDialect):
        dialect_for("{% for m in messages %}[[{{ m.role }}]]{{ m.content }}{% endfor %}", common)
