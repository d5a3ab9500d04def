"""Text written from a declaration: every body, frame and wrapper as its models write it."""

from __future__ import annotations

import pytest

from stream_parser import DIALECTS
from stream_parser.dialect import Call, Dialect, JsonCall, NoArguments, PythonCalls, RawArgument
from stream_parser.renderer import WrittenCall, render, render_calls

PING = WrittenCall("ping", {"host": 'a "b"', "n": 1, "on": True, "none": None, "list": [1, "x"], "map": {"k": 2.5}})
BARE = WrittenCall("bare", {})
N = "]<]minimax[>["


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("hermes", '<tool_call>\n{"name": "bare", "arguments": {}}\n</tool_call>'),
        ("smollm2", '<tool_call>[{"name": "bare", "arguments": {}}]</tool_call>'),
        ("minimax_m1", '<tool_calls>\n{"name": "bare", "arguments": {}}\n</tool_calls>'),
        ("apertus", '<|tools_prefix|>[{"bare": {}}]<|tools_suffix|>'),
        ("command_r", 'Action:\n```json\n[{"tool_name": "bare", "parameters": {}}]\n```'),
        ("llama3_json", '{"name": "bare", "parameters": {}}'),
        ("xlam", '[{"name": "bare", "arguments": {}}]'),
        ("pythonic", "[bare()]"),
        ("olmo3", "<function_calls>bare()</function_calls>"),
        (
            "deepseek_v3",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bare\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        ("qwen3_coder", "<tool_call>\n<function=bare>\n</function>\n</tool_call>"),
        ("glm47", "<tool_call>bare</tool_call>"),
        ("gemma4", "<|tool_call>call:bare{}<tool_call|>"),
        (
            "kimi_k2",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.bare:0\n<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        ),
        (
            "minimax_m3",
            f'{N}<tool_call>\n{N}<invoke name="bare">{N}</invoke>\n{N}</tool_call>',
        ),
        ("harmony", "<|channel|>commentary to=functions.bare <|constrain|>json<|message|>{}<|call|>"),
        ("react", "Action: bare\nAction Input: {}"),
        (
            "mcp_xml",
            "<use_mcp_tool>\n<server_name>tools</server_name>\n<tool_name>bare</tool_name>\n<arguments>\n{}</arguments>\n</use_mcp_tool>",
        ),
        ("hy_v3", "<tool_calls>\n<tool_call>bare<tool_sep>\n</tool_call>\n</tool_calls>"),
    ],
)
def test_call_is_written_as_its_models_write_it(dialect: str, text: str) -> None:
    assert render(DIALECTS[dialect], calls=[BARE]) == text


def test_values_of_every_kind_are_written_in_the_bodys_own_way() -> None:
    assert "<parameter=on>\ntrue\n</parameter>" in render(DIALECTS["qwen3_coder"], calls=[PING])
    assert "<parameter=on>\nTrue\n</parameter>" in render(DIALECTS["seed_oss"], calls=[PING])
    assert "host='a \"b\"', n=1, on=True, none=None, list=[1, 'x'], map={'k': 2.5}" in render(
        DIALECTS["lfm2"], calls=[PING]
    )
    assert '{host:<|"|>a "b"<|"|>,n:1,on:true,none:null,list:[1,<|"|>x<|"|>],map:{k:2.5}}' in render(
        DIALECTS["gemma4"], calls=[PING]
    )
    tree = render(DIALECTS["minimax_m3"], calls=[PING]).replace("]<]minimax[>[", "")
    assert (
        "<n>1</n><on>true</on><none>null</none><list><item>1</item><item>x</item></list><map><k>2.5</k></map>" in tree
    )


def test_types_of_values_are_named_where_the_dialect_names_them() -> None:
    text = render(DIALECTS["kimi_k3"], calls=[PING])
    for key, kind in (
        ("host", "string"),
        ("n", "number"),
        ("on", "boolean"),
        ("none", "null"),
        ("list", "array"),
        ("map", "object"),
    ):
        assert f'key="{key}" type="{kind}"' in text
    text = render(DIALECTS["deepseek_v4"], calls=[PING])
    assert 'name="host" string="true"' in text
    assert 'name="n" string="false"' in text
    assert 'key="a&amp;&quot;"' in render(DIALECTS["kimi_k3"], calls=[WrittenCall("x", {'a&"': 1})])


def test_reasoning_and_answer_stand_in_their_wrappers() -> None:
    assert render(DIALECTS["hermes"], "r", "c") == "<think>\nr\n</think>\n\nc"
    assert render(DIALECTS["hunyuan_a13b"], "r", "c") == "<think>\nr\n</think>\n<answer>\nc\n</answer>"
    assert render(DIALECTS["apriel"], "r", "") == "Here are my reasoning steps:\nr\n[BEGIN FINAL RESPONSE]\n"
    assert render(DIALECTS["react"], "r", "c") == "Thought: rFinal Answer: c"


def test_messages_follow_one_another_in_their_frame() -> None:
    assert render(DIALECTS["harmony"], "r", "c") == (
        "<|channel|>analysis<|message|>r<|end|><|start|>assistant<|channel|>final<|message|>c<|end|>"
    )
    assert render(DIALECTS["functionary_v32"], "", "c", [BARE]) == "all\nc>>>bare\n{}"
    assert render(DIALECTS["muse"], "r", "", [BARE]).startswith(
        " to=self<|message|>r<|eom|><|start|>assistant to=tools<|message|>"
    )


def test_ids_are_written_where_they_have_a_place() -> None:
    written = WrittenCall("bare", {}, id="7")
    assert '"tool_call_id": "7"' in render(DIALECTS["command_a"], calls=[written])
    assert "<|tool_call:begin|>7<|tool_call:name|>bare" in render(DIALECTS["solar_open"], calls=[written])


def test_bodies_of_other_shapes_are_written_too() -> None:
    raw = Dialect(
        name="d", families=(), syntax="", calls=(Call(RawArgument("code"), opens=("<r>",), closes=("</r>",)),)
    )
    assert render_calls(raw, [WrittenCall("python", {"code": "x = 1"})]) == "<r>x = 1</r>"
    head = Dialect(name="d", families=(), syntax="", calls=(Call(NoArguments(), heads=("<c {name}/>",)),))
    assert render_calls(head, [BARE, BARE]) == "<c bare/>\n<c bare/>"
    single = Dialect(name="d", families=(), syntax="", calls=(Call(NoArguments(), opens=("<c>",), own_section=True),))
    with pytest.raises(AssertionError, match="one call at a time"):
        render_calls(single, [BARE])
    each = Dialect(name="d", families=(), syntax="", calls=(Call(PythonCalls(), opens=("<p>",), closes=("</p>",)),))
    assert render_calls(each, [BARE, BARE]) == "<p>bare()</p><p>bare()</p>"
    one = Dialect(name="d", families=(), syntax="", calls=(Call(JsonCall(), opens=("<c>",), closes=("</c>",)),))
    assert render_calls(one, [BARE]) == '<c>{"name": "bare", "arguments": {}}</c>'
