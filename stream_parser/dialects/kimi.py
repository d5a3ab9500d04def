"""Moonshot's Kimi: the call tokens of K2 with ids as names, and the tags of K3."""

from stream_parser.dialect import USUAL, Call, Dialect, JsonArguments, Span, TaggedArguments

_K2_TOKENS = (
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_section_begin|>",
    "<|tool_call_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)

KIMI_K2 = Dialect(
    name="kimi_k2",
    families=("Kimi K2", "Kimi K2 Thinking", "Kimi K2.5", "Kimi K2.6", "Kimi-VL"),
    syntax="<|tool_call_begin|>functions.NAME:N<|tool_call_argument_begin|>OBJECT<|tool_call_end|> in a section",
    reasoning=(Span(opens=("<think>", "◁think▷"), closes=("</think>", "◁/think▷")),),
    sections=(
        Span(
            opens=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),
            closes=("<|tool_calls_section_end|>", "<|tool_call_section_end|>"),
        ),
    ),
    calls=(
        Call(
            JsonArguments(),
            opens=("<|tool_call_begin|>",),
            heads=("{id}\n<|tool_call_argument_begin|>",),
            closes=("<|tool_call_end|>",),
        ),
    ),
    drop=("<|im_end|>",),
    special=_K2_TOKENS,
    turns=("<|im_assistant|>assistant<|im_middle|>",),
    ids="functions_counter",
    recovery=USUAL | {"name_from_args"},
    aliases=("kimi", "kimi_k2_5", "kimi_vl"),
    fingerprints=(("<|tool_call_begin|>", "<|tool_call_argument_begin|>"),),
)

KIMI_K3 = Dialect(
    name="kimi_k3",
    families=("Kimi K3",),
    syntax='<|open|>call tool="NAME" index="N"<|sep|><|open|>argument key="KEY" type="TYPE"<|sep|>VALUE<|close|>…',
    reasoning=(Span(opens=("<|open|>{ws}think{ws}<|sep|>",), closes=("<|close|>{ws}think{ws}<|sep|>",)),),
    answer=(
        Span(
            opens=("<|open|>{ws}response{ws}<|sep|>",),
            closes=("<|close|>{ws}response{ws}<|sep|>",),
            ends_reasoning=True,
        ),
    ),
    sections=(
        Span(
            opens=("<|open|>{ws}tools{ws}<|sep|>",),
            closes=("<|close|>{ws}tools{ws}<|sep|>", "<|close|>{ws}message{ws}<|sep|>"),
        ),
    ),
    calls=(
        Call(
            TaggedArguments(
                params=(
                    '<|open|>{ws}argument key="{key}" type="{type}"{ws}<|sep|>',
                    '<|open|>{ws}argument key="{key}"{ws}<|sep|>',
                ),
                closes=("<|close|>{ws}argument{ws}<|sep|>",),
                typing="attribute",
                text_types=("string",),
                unescape_keys=True,
            ),
            heads=(
                '<|open|>{ws}call tool="{name}" index="{index}"{ws}<|sep|>',
                '<|open|>{ws}call tool="{name}"{ws}<|sep|>',
            ),
            tails=("<|close|>{ws}call{ws}<|sep|>",),
        ),
    ),
    drop=("<|end_of_msg|>",),
    special=("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
    ids="name_counter",
    fingerprints=(("<|open|>", "<|close|>", "<|sep|>"), ("<|open|>", "<|sep|>")),
)
