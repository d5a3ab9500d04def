"""Templates render as Transformers renders them, and models without a tools branch still learn of tools."""

import json

import pytest
from transformers import PreTrainedTokenizerFast

from inference.chat_template import DEFAULT_TEMPLATE, ChatTemplate
from inference.errors import InvalidTurn
from tests.unit.inference.test_tokenizer import _byte_level

TOOL = {"type": "function", "function": {"name": "get_weather", "description": 'say "hi" <b>', "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather & more?"},
    {"role": "assistant", "content": "Looking.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
]
TEMPLATES = {
    "plain": DEFAULT_TEMPLATE,
    "tools": (
        "{%- if tools %}\n    {{- tools | tojson(indent=2) }}\n{%- endif %}\n"
        "{% for message in messages %}{{ message.role }}: {{ message.content }}"
        "{% for call in message.tool_calls or [] %} {{ call.function.name }}({{ call.function.arguments | tojson }})"
        "{% endfor %}\n{% endfor %}"
    ),
    "controls": (
        "{% for message in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ message.role }},{% endfor %}"
    ),
    "generation": (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}{{ eos_token }}"
    ),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_rendering_equals_transformers(name):
    tokens = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    reference = PreTrainedTokenizerFast(tokenizer_object=_byte_level(), chat_template=TEMPLATES[name], **tokens)
    template = ChatTemplate(TEMPLATES[name], tokens)
    messages = [{**message, "tool_calls": [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls", [])]} for message in CONVERSATION]
    uses_tools = name == "tools"
    if not uses_tools:
        messages = CONVERSATION[:2]
    expected = reference.apply_chat_template(
        messages, tools=[TOOL] if uses_tools else None, tokenize=False, add_generation_prompt=True
    )
    source = CONVERSATION if uses_tools else CONVERSATION[:2]
    assert template.render(source, [TOOL] if uses_tools else None, add_generation_prompt=True) == expected


def test_a_template_without_tools_gets_them_as_text():
    prompt = ChatTemplate(DEFAULT_TEMPLATE, {}).render(CONVERSATION, [TOOL], add_generation_prompt=True)
    assert prompt.startswith("<|im_start|>system\nBe brief.\n\nYou may call")
    assert json.dumps(TOOL) in prompt
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>' in prompt
    assert "<|im_start|>user\n<tool_response>\nsunny\n</tool_response>" in prompt
    without_system = ChatTemplate(DEFAULT_TEMPLATE, {}).render(CONVERSATION[1:2], [TOOL], add_generation_prompt=False)
    assert without_system.startswith("<|im_start|>system\nYou may call")


def test_arguments_that_are_no_object_stay_text():
    broken = {**CALL, "function": {"name": "f", "arguments": "{oops"}}
    template = ChatTemplate(TEMPLATES["tools"], {})
    prompt = template.render([{"role": "assistant", "content": None, "tool_calls": [broken]}], None,
                             add_generation_prompt=False)
    assert 'f("{oops")' in prompt
    assert "None" not in prompt


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.clear() }}", "{{ messages.__class__.__mro__ }}{{ 1 // 0 }}", "{{ x.y.z }}", "{{ 1 // 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ 2.0 ** 9999 }}",
    ],
)
def test_a_hostile_or_broken_template_ends_in_a_clear_error(source):
    with pytest.raises(InvalidTurn, match="refuses these messages"):
        ChatTemplate(source, {}).render([{"role": "user", "content": "x"}], None, add_generation_prompt=True)
