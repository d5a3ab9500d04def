"""What each policy lets a model write: free text where nothing is demanded, calls where they are, or none."""

from __future__ import annotations

import random

import numpy as np
import pytest

from inference.grammar.build import Opening, build_grammar
from inference.grammar.compile import GrammarCompiler
from inference.grammar.errors import GrammarError
from inference.grammar.matcher import Matcher
from inference.grammar.policy import (
    FREE_TEXT,
    CallPolicy,
    Choice,
    JsonObject,
    JsonSchema,
    OutputFormat,
    Regex,
    TextGrammar,
    Tool,
)
from inference.grammar.source import GrammarSource
from inference.grammar.vocabulary import Vocabulary
from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import (
    END,
    SMALL_BOUNDS,
    SPECIAL_TOKENS,
    allowed,
    compiler,
    random_walk,
    takes,
    text_of,
    vocabulary,
)
from tests.testkit.parser_streams import parse_message

PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
STRICT = (Tool("get_rain", PLACE, strict=True), Tool("ping", {}, strict=True))
CALL = '<tool_call>\n{"name": "get_rain", "arguments": {"city": "Oslo"}}\n</tool_call>'
PING = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'


def source(
    policy: CallPolicy,
    output: OutputFormat = FREE_TEXT,
    dialect: str = "hermes",
    opening: Opening = "answer",
    max_reasoning_tokens: int | None = None,
) -> GrammarSource:
    found = build_grammar(
        DIALECTS[dialect], policy, output, opening=opening, special_tokens=SPECIAL_TOKENS, end_tokens=["<end>"],
        bounds=SMALL_BOUNDS, max_reasoning_tokens=max_reasoning_tokens,
    )  # fmt: skip
    assert found is not None
    return found


def tokens(text: str) -> list[int]:
    return vocabulary().tokens_of(vocabulary().encode(text, SPECIAL_TOKENS))


def write(matcher: Matcher, text: str) -> None:
    for token in tokens(text):
        assert matcher.accept(token), text_of([token])


def next_texts(matcher: Matcher) -> set[str]:
    found = allowed(matcher)
    assert found is not None
    return {text_of([token]) for token in found}


@pytest.mark.parametrize(
    "policy",
    [CallPolicy(), CallPolicy("auto", (Tool("ping", {}),)), CallPolicy("auto", (Tool("ping", {}),), parallel=False),
     CallPolicy("none")],
)  # fmt: skip
def test_where_nothing_is_demanded_there_is_no_grammar(policy: CallPolicy) -> None:
    assert build_grammar(DIALECTS["hermes"], policy) is None


def test_a_demanded_call_may_follow_reasoning_and_nothing_else() -> None:
    found = source(CallPolicy("required", STRICT))
    assert takes(found, CALL)
    assert takes(found, "<think>\nLet me see.\n</think>\n\n" + CALL)
    assert takes(found, f"{CALL}\n{PING}")
    assert not takes(found, "Well, " + CALL)
    assert not takes(found, CALL + " Done.")
    assert not takes(found, "<think>\nI call <tool_call> now</think>" + CALL)


def test_reasoning_that_the_prompt_opened_is_closed_before_the_call() -> None:
    found = source(CallPolicy("required", STRICT), opening="reasoning")
    assert takes(found, "Let me see.</think>" + CALL)
    assert not takes(found, CALL)


def test_a_named_tool_is_the_only_one() -> None:
    found = source(CallPolicy("required", STRICT[:1]))
    assert takes(found, CALL)
    assert not takes(found, PING)


def test_without_parallel_calls_the_answer_ends_behind_the_first() -> None:
    found = source(CallPolicy("required", STRICT, parallel=False))
    assert takes(found, CALL)
    assert not takes(found, f"{CALL}\n{PING}")


def test_to_demand_a_call_without_tools_is_refused() -> None:
    with pytest.raises(GrammarError, match="no tool"):
        source(CallPolicy("required"))


def test_in_auto_text_is_free_of_masks_and_a_call_is_not() -> None:
    matcher = compiler().matcher(source(CallPolicy("auto", STRICT)))
    write(matcher, "Rain? < 5 </b> I call")
    assert allowed(matcher) is None
    assert not matcher.is_constrained
    write(matcher, " <tool_call>")
    assert matcher.is_constrained
    assert next_texts(matcher) == {"\n"}
    assert text_of(matcher.forced()) == '\n{"name": "'
    write(matcher, '\n{"name": "get_rain", "arguments": {"city": "Oslo"}}\n</tool_call>')
    assert not matcher.is_constrained
    assert allowed(matcher) is None
    write(matcher, "\nAnd again: " + PING + " Done.")
    assert matcher.accept(END)
    assert matcher.is_done
    assert not matcher.accept(END)


def test_in_auto_no_token_completes_the_opening_and_goes_on_against_the_grammar() -> None:
    matcher = compiler().matcher(source(CallPolicy("auto", STRICT)))
    assert allowed(matcher) is None
    write(matcher, "so <tool_call")
    banned = set(range(vocabulary().vocab_size)) - set(allowed(matcher) or ())
    assert {text_of([token]) for token in banned} == {"></"}
    assert ">\n" in next_texts(matcher)
    write(matcher, ">\n")
    assert text_of(matcher.forced()) == '{"name": "'


def test_in_auto_without_parallel_calls_only_the_end_follows_a_call() -> None:
    matcher = compiler().matcher(source(CallPolicy("auto", STRICT, parallel=False)))
    write(matcher, "Now " + CALL)
    assert matcher.is_done
    assert allowed(matcher) == [END]
    assert not matcher.accept(tokens(" the")[0])
    assert matcher.accept(END)


def test_in_auto_a_call_inside_reasoning_is_constrained_too() -> None:
    matcher = compiler().matcher(source(CallPolicy("auto", STRICT), opening="reasoning", max_reasoning_tokens=100))
    write(matcher, "I need rain <tool_call>")
    assert next_texts(matcher) == {"\n"}


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("llama3_json", '{"name": "ping", "parameters": {}}'),
        ("pythonic", "[ping()]"),
        ("mistral_v13", "[TOOL_CALLS]ping[ARGS]{}"),
        ("qwen3_coder", "<tool_call>\n<function=ping>\n</function>\n</tool_call>"),
        ("harmony", "<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}<|call|>"),
        ("minimax_m2", '<minimax:tool_call>\n<invoke name="ping">\n</invoke>\n</minimax:tool_call>'),
        ("functionary_v32", "ping\n{}"),
        ("glm4", "ping\n{}<|observation|>"),
        ("functionary_v31", "<function=ping>{}</function>"),
    ],
)  # fmt: skip
def test_each_syntax_has_its_openings_in_auto(dialect: str, text: str) -> None:
    matcher = compiler().matcher(source(CallPolicy("auto", STRICT), dialect=dialect))
    constrained = []
    for token in tokens(text):
        constrained.append(matcher.is_constrained)
        assert matcher.accept(token)
    assert not constrained[0]
    assert any(constrained), text
    assert not matcher.is_constrained


@pytest.mark.parametrize(
    ("dialect", "opening"),
    [
        (dialect, opening)
        for dialect in ("llama3_json", "xlam")
        for opening in ('{"name": "get_rain"', '{"name":"get_rain"', '{\n  "name": "get_rain"',
                        '{\n    "name": "get_rain"', 'Well.\n  {"name": "get_rain"',
                        '```json\n{\n  "name": "get_rain"')
    ] + [("xlam", '[\n  {\n    "name": "get_rain"'), ("xlam", '[{"name":"get_rain"'), ("xlam", "Well. <tool_call>"),
         ("llama3_json", "<|python_tag|>"), ("pythonic", "[ get_rain("), ("pythonic", "[\n    get_rain("),
         ("pythonic", "Well. <|python_start|>")],
)  # fmt: skip
def test_a_call_without_a_marker_is_one_however_it_is_laid_out(dialect: str, opening: str) -> None:
    matcher = compiler().matcher(source(CallPolicy("auto", STRICT), dialect=dialect))
    write(matcher, opening)
    assert matcher.is_constrained
    text, rng = opening, random.Random(opening)
    while matcher.is_constrained:
        token = rng.choice(allowed(matcher) or [])
        assert matcher.accept(token)
        text += text_of([token])
    tools = [{"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}} for tool in STRICT]
    message = parse_message(dialect, list(text), tools, "stop")
    assert [call.outcome for call in message.tool_calls] in (["ok"], ["repaired"]), text
    assert matcher.accept(END)


@pytest.mark.parametrize("last", ['",\n', '",\n  ', '","', '",\n  "'])
def test_a_token_that_names_a_tool_and_goes_on_with_other_blanks_leads_into_the_call(last: str) -> None:
    """Where it was guessed, nobody has asked for a mask."""
    own = Vocabulary.from_token_bytes(
        [b"<end>", *(bytes([byte]) for byte in range(256)), last.encode()], 258, [END], [END]
    )
    found = build_grammar(DIALECTS["xlam"], CallPolicy("auto", STRICT), bounds=SMALL_BOUNDS)
    assert found is not None
    matcher = GrammarCompiler(own).matcher(found)
    for byte in b'{\n  "name": "get_rain':
        assert matcher.accept(1 + byte)
    assert matcher.accept(257)
    assert matcher.is_constrained
    assert not matcher.accept(1 + ord("x"))


def test_a_token_that_completes_an_opening_against_the_grammar_is_refused_if_nobody_masked_it() -> None:
    own = Vocabulary.from_token_bytes(
        [b"<end>", *(bytes([byte]) for byte in range(256)), b'","x', b'{"name": "get_rain","x'], 259, [END], [END]
    )
    found = build_grammar(DIALECTS["xlam"], CallPolicy("auto", STRICT), bounds=SMALL_BOUNDS)
    assert found is not None
    matcher = GrammarCompiler(own).matcher(found)
    for byte in b'{"name": "get_rain':
        assert matcher.accept(1 + byte)
    row = np.zeros(own.mask_words, np.int32)
    assert matcher.mask(row)
    assert not row[257 >> 5] >> (257 & 31) & 1
    assert not matcher.accept(257)
    assert not matcher.is_constrained, "nothing has changed"
    for byte in b'",':
        assert matcher.accept(1 + byte)
    assert matcher.is_constrained


def test_json_that_names_no_tool_is_free_text() -> None:
    matcher = compiler().matcher(source(CallPolicy("auto", STRICT), dialect="xlam"))
    write(matcher, '{"name": "Oslo", "rain": true}\nSee {"name": "get_rain"')
    assert not matcher.is_constrained


@pytest.mark.parametrize("dialect", ["hermes", "llama3_json", "pythonic", "mistral_v13", "harmony", "glm4"])
def test_under_none_text_is_free_but_for_calls(dialect: str) -> None:
    found = source(CallPolicy("none", STRICT), dialect=dialect)
    assert takes(found, 'It may rain [1] {"a": 2} (see f(x)), <b>soon</b>.')
    for text in (
        "Now " + CALL,
        '{"name": "ping", "parameters": {}}',
        "[ping()]",
        "[TOOL_CALLS]ping[ARGS]{}",
        "<|channel|>commentary to=functions.ping<|message|>{}",
        "ping\n{}",
    ):
        is_own = {"hermes": "<tool_call>", "llama3_json": '"name"', "pythonic": "[ping(", "mistral_v13": "[TOOL_CALLS]",
                  "harmony": "to=functions", "glm4": "ping\n{"}[dialect] in text  # fmt: skip
        assert takes(found, text) != is_own, text


def test_random_text_under_none_never_opens_a_call() -> None:
    found = source(CallPolicy("none", STRICT))
    for seed in range(3):
        matcher = compiler().matcher(found)
        rng = random.Random(seed)
        written: list[int] = tokens("I would call <tool_call"[:-1])
        for token in written:
            assert matcher.accept(token)
        for _ in range(40):
            token = rng.choice([token for token in allowed(matcher) or () if token != END])
            assert matcher.accept(token)
            written.append(token)
        assert "<tool_call>" not in text_of(written)


def test_reasoning_is_closed_in_the_models_own_way_when_its_budget_is_spent() -> None:
    matcher = compiler().matcher(source(CallPolicy(), opening="reasoning", max_reasoning_tokens=3))
    write(matcher, "see")  # three bytes, three tokens
    assert text_of(matcher.forced()) == "\n</think>\n\n"
    while matcher.forced():
        token = matcher.forced()[0]
        assert allowed(matcher) == [token]
        assert not matcher.accept(END)
        assert matcher.accept(token)
    write(matcher, "It rains.")
    assert allowed(matcher) is None
    assert matcher.accept(END)


def test_a_budget_of_nothing_closes_reasoning_at_once_and_a_spent_one_leads_to_the_call() -> None:
    closed = compiler().matcher(source(CallPolicy(), opening="reasoning", max_reasoning_tokens=0))
    assert text_of(closed.forced()) == "\n</think>\n\n"
    found = source(CallPolicy("required", STRICT), max_reasoning_tokens=2)
    matcher = compiler().matcher(found)
    write(matcher, "<think>xy")
    assert text_of(matcher.forced()) == "\n</think>\n\n"
    write(matcher, "\n</think>\n\n" + CALL)
    assert matcher.accept(END)


def test_a_spent_budget_waits_for_the_end_of_a_character() -> None:
    for policy in (CallPolicy(), CallPolicy("required", STRICT)):
        matcher = compiler().matcher(source(policy, opening="reasoning", max_reasoning_tokens=2))
        for byte in "x🙂".encode():
            assert matcher.forced() == ()
            assert matcher.accept(len(SPECIAL_TOKENS) + byte)
        assert text_of(matcher.forced()) == "\n</think>\n\n"


def test_reasoning_that_ends_by_itself_is_left_alone() -> None:
    matcher = compiler().matcher(source(CallPolicy(), opening="reasoning", max_reasoning_tokens=30))
    write(matcher, "I see.</think>" + "It rains and rains and rains." * 4)
    assert matcher.forced() == ()


@pytest.mark.parametrize(
    ("output", "right", "wrong"),
    [
        (JsonObject(), '{"a": [1, null]}', "[1]"),
        (JsonSchema(PLACE), '{"city": "Oslo"}', '{"town": "Oslo"}'),
        (JsonSchema({"type": "array", "items": {"type": "integer"}}), "[1, 2]", '["1"]'),
        (Regex("^[a-c]{2}-[0-9]+$"), "ab-12", "ab-"),
        (Regex("^one$|two/[0-9]"), "two/2", "one two/2"),
        (Choice(("rain", "rain and sun", "")), "rain and sun", "snow"),
        (TextGrammar('start: "yes" | "no" NUMBER\nNUMBER: /[0-9]+/'), "no12", "maybe"),
        (TextGrammar('root ::= "yes" | "no" [0-9]+'), "no12", "no"),
    ],
)
def test_an_answer_has_the_form_that_was_asked_for(output: OutputFormat, right: str, wrong: str) -> None:
    found = source(CallPolicy(), output)
    assert takes(found, right)
    assert takes(found, "<think>hm</think>" + right)
    assert not takes(found, wrong)
    assert not takes(found, right + " and more")


def test_beside_tools_an_answer_is_a_call_or_has_its_form() -> None:
    found = source(CallPolicy("auto", STRICT), JsonSchema(PLACE))
    assert takes(found, '{"city": "Oslo"}')
    assert takes(found, CALL)
    assert not takes(found, "Oslo")


def test_an_answer_in_messages_stands_in_its_message() -> None:
    found = source(CallPolicy(), JsonSchema(PLACE), dialect="harmony")
    thoughts = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    assert takes(found, thoughts + '<|channel|>final<|message|>{"city": "x"}')
    assert not takes(found, '{"city": "x"}')


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (Choice(()), "nothing to choose"),
        (Regex("(?=a)b"), "structured_outputs.regex.*look-around"),
        (Regex(r"a[^\s\S]"), "structured_outputs.regex.*fits no text"),
        (TextGrammar("start: ~/a/"), "operator ~"),
        (TextGrammar('root ::= "a'), "is no GBNF"),
        (TextGrammar("yes or no"), "is neither Lark"),
        (TextGrammar("x" * 70_000), "longer"),
    ],
)
def test_a_form_that_is_none_is_refused(output: OutputFormat, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        source(CallPolicy(), output)


def test_a_grammar_that_cannot_be_compiled_is_refused_when_it_is_checked() -> None:
    with pytest.raises(GrammarError, match="cannot be compiled"):
        compiler().check(source(CallPolicy(), TextGrammar("start: missing")))


def test_demanded_calls_come_out_of_random_tokens_in_every_mode_of_reasoning() -> None:
    found = source(CallPolicy("required", STRICT), max_reasoning_tokens=5)
    for seed in range(5):
        text = random_walk(found, random.Random(seed))
        assert "<tool_call>" in text
