"""Key and value tags (K): where a value ends, how it is typed, what is damaged, duplicated or cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_parser import DIALECTS
from stream_parser.dialect import Call, Dialect, TaggedArguments
from tests.testkit.parser_tools import calls, endings, read


def qwen(*params: str, head: str = "<function=put_note>", tail: str = "</function>\n</tool_call>") -> str:
    return "<tool_call>\n" + head + "\n" + "".join(params) + tail


def param(key: str, value: str) -> str:
    return f"<parameter={key}>\n{value}\n</parameter>\n"


def only(text: str, dialect: str = "qwen3_coder") -> object:
    (name, arguments), *rest = calls(read(dialect, text))
    assert name == "put_note"
    assert not rest
    return arguments


def test_values_are_typed_by_the_schema() -> None:
    text = qwen(
        param("text", "007"),
        param("level", "3"),
        param("urgent", "True"),
        param("tags", '["a"]'),
        param("owner", "null"),
        param("new", "1.5"),
    )
    assert only(text) == {"text": "007", "level": 3, "urgent": True, "tags": ["a"], "owner": None, "new": 1.5}


@pytest.mark.parametrize(
    "value", ["", "\n", "  indented\n", "a\n\nb\n\n", "\t", "</p>", "<parameter", "a </parameter> b"]
)
def test_text_keeps_all_but_one_line_break_at_each_end(value: str) -> None:
    assert only(qwen(param("text", value))) == {"text": value}


@pytest.mark.parametrize(
    "value",
    [
        "Use <parameter=other> here",
        "<parameter=nobody>\nx",
        "close with </tool_call> or </function> and go on",
        "<function=ping>",
        "</parameter> is a tag",
    ],
)
def test_markup_in_a_value_is_text_unless_the_call_goes_on_behind_it(value: str) -> None:
    assert only(qwen(param("text", value))) == {"text": value}


def test_value_without_closer_ends_before_a_declared_parameter() -> None:
    message = read("qwen3_coder", qwen("<parameter=text>\na\n", param("level", "3")))
    assert calls(message) == [("put_note", {"text": "a", "level": 3})]
    assert endings(message) == [("repaired", "unclosed_value")]


def test_parameter_given_before_does_not_end_a_value() -> None:
    assert only(qwen(param("level", "3"), param("text", "see <parameter=level>"))) == {
        "level": 3,
        "text": "see <parameter=level>",
    }


def test_value_without_closer_ends_before_the_next_call() -> None:
    text = qwen("<parameter=text>\na\n") + qwen(head="<function=bare>")
    assert calls(read("qwen3_coder", text)) == [("put_note", {"text": "a"}), ("bare", {})]


@pytest.mark.parametrize("tail", ["</function>\n</tool_call>", "</function>", "</tool_call>", "", "\n", "</parameter>"])
def test_last_value_may_lack_its_closer_at_the_end_of_the_turn(tail: str) -> None:
    message = read("qwen3_coder", qwen("<parameter=text>\na\n", tail=tail))
    text = "a\n" if tail == "\n" else "a"
    assert calls(message) == [("put_note", {"text": text})]
    assert message.tool_calls[0].outcome == "repaired"


@pytest.mark.parametrize("closed", ["</parameter>", "</parameter>\n", "</parameter>\n</function>", "</param"])
def test_call_cut_in_or_behind_a_value_keeps_the_value_open(closed: str) -> None:
    message = read("qwen3_coder", "<tool_call>\n<function=put_note>\n<parameter=text>\nabc\n" + closed, "length")
    arguments = message.tool_calls[0].arguments
    assert '{"text": "abc"}'.startswith(arguments) or message.tool_calls[0].outcome == "ok"
    assert "param" not in arguments


def test_value_that_is_no_text_says_nothing_when_cut() -> None:
    message = read("qwen3_coder", "<tool_call>\n<function=put_note>\n<parameter=level>\n12", "length")
    assert message.tool_calls[0].arguments == '{"level": '
    assert endings(message) == [("truncated", "cut")]


def test_text_between_parameters_is_no_part_of_the_call() -> None:
    header = "<|channel|>analysis to=put_note <|constrain|>xml<|message|>"
    first = '<rfl:parameter name="text">\na\n</rfl:parameter>'
    second = '<rfl:parameter name="level">\n1\n</rfl:parameter>'
    text = f"{header}so: </rfl:parameter>{first}\n<rfl:parameter oops {second}<|call|>"
    assert only(text, "beam") == {"text": "a", "level": 1}


def test_next_call_ends_one_without_any_closer() -> None:
    text = (
        "<tool_call>\n<function=put_note>\n"
        + param("text", "a")
        + "<tool_call>\n<function=bare>\n</function>\n</tool_call>"
    )
    message = read("qwen3_coder", text)
    assert calls(message) == [("put_note", {"text": "a"}), ("bare", {})]
    assert endings(message)[0] == ("repaired", "unclosed_call")


def test_repeated_key_is_written_twice_and_named_or_dropped_where_the_first_wins() -> None:
    message = read("qwen3_coder", qwen(param("text", "a"), param("text", "b")))
    assert message.tool_calls[0].arguments == '{"text": "a", "text": "b"}'
    assert endings(message) == [("repaired", "duplicate_key")]
    pair = "<|tool_arg:start|>text<|tool_arg:value|>{}<|tool_arg:end|>\n"
    text = "<|tool_call:start|>put_note\n" + pair.format("a") + pair.format("b") + "<|tool_call:end|>"
    assert only(text, "solar_open2") == {"text": "a"}


def test_attributes_tell_the_type_where_the_schema_does_not() -> None:
    block = '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="put_note">\n{}</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
    tag = '<｜DSML｜parameter name="{}"{}>{}</｜DSML｜parameter>\n'

    def one(key: str, attribute: str, value: str) -> object:
        return only(block.format(tag.format(key, attribute, value)), "deepseek_v4")

    assert one("text", ' string="true"', "1") == {"text": "1"}
    assert one("level", ' string="false"', "1") == {"level": 1}
    assert one("level", ' string="true"', "1") == {"level": 1}
    assert one("new", ' string="true"', "1") == {"new": "1"}
    assert one("new", ' string="false"', "[1]") == {"new": [1]}
    assert one("new", "", "[1]") == {"new": [1]}
    assert one("new", "", "some text") == {"new": "some text"}
    assert one("text", "", "1") == {"text": "1"}


@pytest.mark.parametrize("key", ["arguments", "input"])
def test_one_parameter_that_holds_everything_is_unwrapped(key: str) -> None:
    tag = f'<｜DSML｜parameter name="{key}" string="false">{{}}</｜DSML｜parameter>'
    text = f'<｜DSML｜invoke name="put_note">{tag}</｜DSML｜invoke>'
    message = read("deepseek_v4", text.format('{"text": "a", "level": 2}'))
    assert calls(message) == [("put_note", {"text": "a", "level": 2})]
    assert endings(message) == [("repaired", "wrapped_arguments")]
    assert only(text.format("{ }"), "deepseek_v4") == {}
    assert only(text.format("plain"), "deepseek_v4") == {key: "plain"}


def test_escapes_in_keys_are_undone_where_the_dialect_has_them() -> None:
    text = (
        '<|open|>call tool="put_note" index="1"<|sep|><|open|>argument key="a&amp;&quot;b" type="number"<|sep|>1'
        "<|close|>argument<|sep|><|close|>call<|sep|>"
    )
    assert only(text, "kimi_k3") == {'a&"b': 1}


def test_cdata_is_taken_verbatim() -> None:
    call = '<function name="put_note"><param name="text">{}</param></function>'
    assert only(call.format("<![CDATA[a </param> ]] b]]>"), "minicpm5") == {"text": "a </param> ]] b"}
    assert only(call.format("<![CDATA[a]]>\n"), "minicpm5") == {"text": "a"}
    assert only(call.format("<![CD"), "minicpm5") == {"text": "<![CD"}
    assert (
        read("minicpm5", '<function name="put_note"><param name="text"><![CDATA[a]', "length").tool_calls[0].arguments
        == '{"text": "a'
    )
    assert only('<function name="put_note"><param name="text"><![CDATA[a]]', "minicpm5") == {"text": "a]]"}
    assert only('<function name="put_note"><param name="text">', "minicpm5") == {"text": ""}


def test_values_of_a_stripping_dialect_lose_their_edges() -> None:
    call = "<tool_call>put_note\n<arg_key>text</arg_key>\n<arg_value> a \n</arg_value>\n</tool_call>"
    assert only(call, "hyperclovax") == {"text": "a"}


def test_python_literals_are_values_where_models_write_them() -> None:
    call = "<seed:tool_call><function=put_note><parameter=tags>['a', 'b']</parameter></function></seed:tool_call>"
    assert only(call, "seed_oss") == {"tags": ["a", "b"]}


def test_call_without_any_closer_ends_with_the_turn() -> None:
    tags = TaggedArguments(params=("<k {key}>",), closes=("</k>",))
    dialect = Dialect(name="d", families=(), syntax="", calls=(Call(tags, opens=("@",), heads=("{name}=",)),))
    assert calls(read(dialect, "@put_note=<k text>a</k>\n<k level>1</k>")) == [("put_note", {"text": "a", "level": 1})]


def test_dialect_that_demands_closers_ends_a_value_at_its_closer_only() -> None:
    strict = replace(DIALECTS["glm47"], recovery=frozenset())
    value = "a<arg_key>level</arg_key><arg_value>1"
    text = f"<tool_call>put_note<arg_key>text</arg_key><arg_value>{value}</arg_value></tool_call>"
    assert calls(read(strict, text)) == [("put_note", {"text": value})]
