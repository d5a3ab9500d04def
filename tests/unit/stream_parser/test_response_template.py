"""Templates of checkpoints, imported and read with like any other dialect."""

from __future__ import annotations

import pytest

from stream_parser.dialect import (
    Call,
    Dialect,
    JsonArguments,
    JsonCall,
    LaxArguments,
    PythonCalls,
    Span,
    TaggedArguments,
)
from stream_parser.errors import UnsupportedTemplate
from stream_parser.response_template import import_response_template, read_pattern
from tests.testkit.parser_tools import calls, endings, read

CHATML = "<|im_start|>assistant\n"
CALL_BY_HEAD = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}


def template(calls: object = None, **fields: object) -> dict[str, object]:
    own = {"tool_calls": calls} if calls is not None else {}
    return {"defaults": {"role": "assistant"}, "start_anchor": CHATML, "fields": {**fields, **own}}


def imported(calls: object = None, **fields: object) -> Dialect:
    return import_response_template(template(calls, **fields), "mine")


THINKING = {"open": "<think>", "close": "</think>", "content": "text"}
JSON_CALLS = {
    "open": "<tool_call>\n",
    "close": "\n</tool_call>",
    "repeats": True,
    "content": "json",
    "transform": {"type": "function", "function": "{content}"},
}
TAGGED_CALLS = {
    "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>",
    "close_pattern": r"</function>\s*</tool_call>",
    "repeats": True,
    "content": "xml-inline",
    "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>"},
    "transform": CALL_BY_HEAD,
}
TAGGED_TEXT = (
    "<tool_call>\n<function=put_note>\n<parameter=text>\n007\n</parameter>\n<parameter=level>\n3\n</parameter>\n"
    "</function>\n</tool_call>"
)
LAX_CALLS = {
    "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
    "close": "<tool_call|>",
    "content": "json",
    "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
    "transform": CALL_BY_HEAD,
}


def test_json_in_tags_is_imported_and_read_with() -> None:
    dialect = imported(JSON_CALLS, thinking=THINKING, content={"close": "<|im_end|>", "content": "text"})
    assert dialect == Dialect(
        name="mine",
        families=("imported from a checkpoint",),
        syntax="as the checkpoint's response_template says",
        reasoning=(Span(opens=("<think>",), closes=("</think>",)),),
        calls=(Call(JsonCall(), opens=("<tool_call>",), closes=("</tool_call>",)),),
        drop=("<|im_end|>",),
        turns=(CHATML.strip(),),
    )
    text = 'I look.</think>Yes.<tool_call>{"name": "ping", "arguments": {"host": "db"}}</tool_call><|im_end|>'
    message = read(dialect, text, prompt_tail=CHATML + "<think>\n")
    assert (message.reasoning, message.content) == ("I look.", "Yes.")
    assert calls(message) == [("ping", {"host": "db"})]
    assert endings(message) == [("ok", "")]


@pytest.mark.parametrize("closer", [{}, {"close_pattern": None, "close": "</tool_call>"}])
def test_tagged_values_are_typed_by_the_schema_whatever_closer_is_stated(closer: dict[str, object]) -> None:
    stated = {key: value for key, value in {**TAGGED_CALLS, **closer}.items() if value is not None}
    dialect = imported(stated)
    assert dialect.calls == (
        Call(
            TaggedArguments(params=("<parameter={key}>",), closes=("</parameter>",), trim="newline"),
            heads=("<tool_call>\n<function={name}>",),
            tails=("</function>",),
            closes=("</tool_call>",),
        ),
    )
    message = read(dialect, f"Look:\n{TAGGED_TEXT}{TAGGED_TEXT}")
    assert calls(message) == [("put_note", {"text": "007", "level": 3})] * 2
    assert endings(message) == [("ok", "")] * 2
    assert message.content == "Look:"


def test_values_whose_pattern_takes_no_blanks_away_keep_them() -> None:
    pattern = r"<p (?P<key>\w+)>(?P<value>.*?)</p>"
    dialect = imported({**TAGGED_CALLS, "content_args": {"tag_pattern": pattern}})
    text = "<tool_call><function=ping><p host>\ndb </p></function></tool_call>"
    assert calls(read(dialect, text)) == [("ping", {"host": "\ndb "})]


def test_json_with_string_delimiters_is_read_as_lax_arguments() -> None:
    dialect = imported(LAX_CALLS)
    assert dialect.calls[0].body == LaxArguments('<|"|>')
    text = '<|tool_call>call:put_note{text:<|"|>say "hi"<|"|>,level:3}<tool_call|>'
    assert calls(read(dialect, text)) == [("put_note", {"text": 'say "hi"', "level": 3})]


def test_json_behind_a_name_is_the_arguments() -> None:
    calls_field = {
        "open_pattern": r"\[TOOL\](?P<name>[\w.-]+)\[ARGS\]",
        "close_pattern": r"\[/TOOL\]|$",
        "content": "json",
        "transform": CALL_BY_HEAD,
    }
    dialect = imported(calls_field)
    assert dialect.calls == (Call(JsonArguments(), heads=("[TOOL]{name}[ARGS]",), closes=("[/TOOL]",)),)
    assert calls(read(dialect, '[TOOL]ping[ARGS]{"host": "db"}[/TOOL]')) == [("ping", {"host": "db"})]


def test_a_closer_that_is_the_next_opening_ends_a_call_there() -> None:
    calls_field = {
        "open_pattern": r"\[CALLS\](?P<name>[^\[]+)\[ARGS\]",
        "close_pattern": r"(?=\[CALLS\])|</s>",
        "content": "json",
        "transform": CALL_BY_HEAD,
    }
    dialect = imported(calls_field)
    assert dialect.calls[0].closes == ("</s>",)
    message = read(dialect, '[CALLS]ping[ARGS]{"host": "a"}[CALLS]ping[ARGS]{"host": "b"}</s>')
    assert calls(message) == [("ping", {"host": "a"}), ("ping", {"host": "b"})]
    assert endings(message) == [("ok", "")] * 2


def test_transform_tells_under_which_keys_name_and_arguments_are() -> None:
    calls_field = {
        "open": "<|START_ACTION|>",
        "close": "<|END_ACTION|>",
        "content": "json",
        "transform": {
            "type": "function",
            "function": {"name": "{content.tool_name}", "arguments": "{content.parameters}"},
        },
        "transform_each": True,
    }
    dialect = imported(
        calls_field, content={"open": ["<|START_RESPONSE|>", "<|START_TEXT|>"], "close": "<|END_RESPONSE|>"}
    )
    assert dialect.answer == (Span(opens=("<|START_RESPONSE|>", "<|START_TEXT|>"), closes=("<|END_RESPONSE|>",)),)
    assert dialect.drop == ()
    action = '{"tool_name": "ping", "parameters": {"host": "db"}}'
    message = read(dialect, f"<|START_ACTION|>[{action}, {action}]<|END_ACTION|>")
    assert calls(message) == [("ping", {"host": "db"})] * 2
    assert endings(message) == [("ok", "")] * 2
    assert read(dialect, "<|START_RESPONSE|>Hi<|END_RESPONSE|>").content == "Hi"


def test_groups_count_by_what_the_transform_makes_of_them() -> None:
    calls_field = {
        "open_pattern": r"<call (?P<number>\d+)/(?P<call>\w+)/(?P<tool>\w+)>",
        "close": "</call>",
        "content": "json",
        "transform": {"id": "{call}", "function": {"name": "{tool}", "arguments": "{content}"}},
    }
    message = read(imported(calls_field), '<call 3/c7/ping>{"host": "db"}</call>')
    assert calls(message) == [("ping", {"host": "db"})]
    assert message.tool_calls[0].id == "c7"
    with pytest.raises(UnsupportedTemplate, match="told apart"):
        imported({**calls_field, "open_pattern": r"<call (?P<call>\w+)\s(?P<number>\w+)(?P<tool>\w+)>"})


def test_lists_of_python_calls_are_imported() -> None:
    calls_field = {
        "open": "<|tool_call_start|>",
        "close": "<|tool_call_end|>",
        "content": "python-call-list",
        "transform": "{content}",
    }
    dialect = imported(calls_field)
    assert dialect.calls[0].body == PythonCalls()
    message = read(dialect, "<|tool_call_start|>[ping(host='a'), ping(host='b')]<|tool_call_end|>")
    assert calls(message) == [("ping", {"host": "a"}), ("ping", {"host": "b"})]


def test_calls_may_open_with_and_without_a_name() -> None:
    calls_field = {
        "open_pattern": r"<tool>(?:\((?P<name>\w+)\))?",
        "close": "</tool>",
        "content": "python-call-list",
        "transform": CALL_BY_HEAD,
    }
    dialect = imported(calls_field)
    assert [(call.opens, call.heads) for call in dialect.calls] == [((), ("<tool>({name})",)), (("<tool>",), ())]


def test_calls_without_any_opening_count_under_declared_names() -> None:
    dialect = imported({"content": "json", "close": "<eos>"})
    assert calls(read(dialect, '{"name": "ping", "arguments": {"host": "db"}}<eos>')) == [("ping", {"host": "db"})]
    assert read(dialect, '{"name": "unknown", "arguments": {}}<eos>').tool_calls == ()


def test_a_template_without_calls_only_parts_reasoning_from_text() -> None:
    dialect = imported(thinking={**THINKING, "close_pattern": r"</think>\s*</?end>"})
    assert dialect.calls == ()
    assert dialect.reasoning[0].closes == ("</think>{ws}</end>", "</think>{ws}<end>")
    message = read(dialect, "<think>Hm.</think>\n\n</end>Yes.")
    assert (message.reasoning, message.content) == ("Hm.", "Yes.")


def test_a_closer_of_three_tags_is_a_tail_and_a_closer() -> None:
    dialect = imported({**TAGGED_CALLS, "close": "</a>\n</b>\n</c>", "close_pattern": r"</a>\s*</b>\s*</c>|</a>"})
    assert dialect.calls[0].tails == ("</a>",)
    assert dialect.calls[0].closes == ("</b>{ws}</c>",)


def test_fields_that_are_no_tables_are_passed_over() -> None:
    dialect = import_response_template({"fields": {"thinking": 1, "content": None, "tool_calls": []}})
    assert (dialect.name, dialect.reasoning, dialect.calls, dialect.turns) == ("response_template", (), (), ())
    assert imported({"content": "json", "open": None, "transform": "x"}).calls[0].opens == ()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, "no fields"),
        ({"fields": []}, "no fields"),
        ({"version": 2, "fields": {}}, "version is 2"),
        (template({"open": "<call>", "content": "kv-lines"}), "'kv-lines'"),
        (template({"open": "<call>"}), "'text'"),
        (template({**TAGGED_CALLS, "content_args": None}), "without a key before its value"),
        (
            template({**TAGGED_CALLS, "content_args": {"tag_pattern": r"<p>(?P<value>.*?)</p>"}}),
            "without a key before its value",
        ),
        (
            template({**TAGGED_CALLS, "content_args": {"tag_pattern": r"(?P<key>\w+)=(?P<value>.*)"}}),
            "cannot be told apart",
        ),
        (template({**TAGGED_CALLS, "open_pattern": r"<call>|<call (?P<name>\w+)>"}), "has no name"),
        (template({**TAGGED_CALLS, "open_pattern": "<call>"}), "has no name"),
        (template({**TAGGED_CALLS, "open_pattern": r"(?P<name>\w+)<sep>"}), "cannot be told apart"),
        (template({**TAGGED_CALLS, "open_pattern": r"<f.(?P<name>\w+).(?P<id>\w+)>"}), "too many groups"),
        (template({**JSON_CALLS, "open_pattern": r"<call \w+>"}), "a part varies"),
        (template(thinking={"open_pattern": "<think[^>]*>", "close": "</think>"}), "a part varies"),
        (template(thinking={"open_pattern": r"(?P<x>"}), "open group"),
        (template({**JSON_CALLS, "open_pattern": r"(?:<call>)?(?=\{)"}), "may be empty"),
    ],
)
def test_what_no_declaration_can_say_is_refused_by_name(spec: dict[str, object], why: str) -> None:
    with pytest.raises(UnsupportedTemplate, match="cannot be imported: ") as caught:
        import_response_template(spec)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "templates"),
    [
        (r"<think>", ["<think>"]),
        (r"<\|a\|>\s*<\|b\|>", ["<|a|>\n<|b|>"]),
        (r"a|b|a", ["a", "b"]),
        (r"<(?:tool|function)_call>", ["<tool_call>", "<function_call>"]),
        (r"x(?:\.|!)?y", ["x.y", "x!y", "xy"]),
        (r"^\Aend\b\Z$", ["end"]),
        (r"<f (?P<name>[^>)\]]+(?:\(x\))?)>", ["<f {name}>"]),
        (r"<f (?P<name>[)]\))>", ["<f {name}>"]),
        (r"<a.*?><[^x]+>", ["<a{skip}><{skip}>", "<a><{skip}>"]),
        (r"\w+:\d{2,3}\S*", ["{skip}:{skip}{skip}", "{skip}:{skip}"]),
        (r"a\n*b\tc\rd", ["a\nb\tc\rd"]),
        (r"\s{2,}<x>\s*?", ["\n<x>\n"]),
        (r"<a>\s*(?=<b>|</a>)", ["<a>\n"]),
        (r"(?=\[NEXT\])|</s>", ["", "</s>"]),
        (r"(?:<a>(?=[)]))<b>", ["<a><b>"]),
        ("", [""]),
    ],
)
def test_patterns_are_read_as_templates(pattern: str, templates: list[str]) -> None:
    assert read_pattern(pattern) == templates


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a)b", "at 1"),
        ("(?:a", "at 5"),
        ("(a)", "with a group at 0"),
        ("(?=a)b", "with a group at 0"),
        ("b(?!a)", "with a group at 1"),
        ("b(?=a", "with an open group"),
        ("(?i)a", "with a group at 0"),
        (r"(?P<q>['\"])x(?P=q)", "with a group at 13"),
        (r"(?P<q>a)\1", r"with \1"),
        (r"\x41", r"with \x"),
        (r"\D", r"with \D"),
        ("a\\", "at 3"),
        ("a+", "that repeats 'a'"),
        ("a*", "that repeats 'a'"),
        ("(?:ab){2}", "that repeats 'ab'"),
        (r"(?:\s|x)*", "that repeats"),
        (r"(?P<name>[^>]+", "with an open group"),
        ("(?:a|b)(?:a|b)(?:a|b)(?:a|b)(?:a|b)", "with more than 16 alternatives"),
    ],
)
def test_patterns_of_a_richer_language_are_refused(pattern: str, why: str) -> None:
    with pytest.raises(UnsupportedTemplate) as caught:
        read_pattern(pattern)
    assert why in str(caught.value)
