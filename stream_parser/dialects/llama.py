"""Dialects without markers: Llama's bare JSON, Python lists of calls, and JSON forced by guided decoding."""

from dataclasses import replace

from stream_parser.dialect import Call, Dialect, JsonCall, PythonCalls, RawArgument, Span
from stream_parser.dialects.hermes import CHATML, CHATML_END, THINK

_LLAMA_TURN = ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|header_start|>assistant<|header_end|>\n\n")
_LLAMA_END = ("<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end_of_text|>")
_JSON = JsonCall(shape="lines", argument_keys=("parameters",))

LLAMA3_JSON = Dialect(
    name="llama3_json",
    families=("Llama 3.1", "Llama 3.2", "Llama 3.3", "Llama 4 with JSON"),
    syntax='{"name": NAME, "parameters": OBJECT} as the whole answer, more after ";" or on new lines',
    calls=(
        Call(_JSON, anchor="line"),
        Call(_JSON, opens=("<|python_tag|>", "<|python_start|>"), closes=("<|python_end|>",)),
        Call(PythonCalls(brackets=False), opens=("<|python_tag|>",), heads=("{word}.call(",)),
        Call(RawArgument("code"), opens=("<|python_tag|>",), name="code_interpreter"),
    ),
    reasoning=(THINK,),
    drop=_LLAMA_END,
    special=("<|python_tag|>", "<|python_start|>", "<|python_end|>"),
    turns=_LLAMA_TURN,
    aliases=("llama4_json", "llama3"),
    fingerprints=(
        ('{"name": ', '"parameters": ', "<|start_header_id|>"),
        ('"parameters"', "<|eot_id|>"),
        ("parameters", "<|eot_id|>", "<|python_tag|>"),
        ('"parameters"', "<|eot|>", "<|header_start|>"),
    ),
    unless=("TOOLCALL", "functools", "<function=", "funccall(", "func_name1("),
)

PYTHONIC = Dialect(
    name="pythonic",
    families=("Llama 3.2 zero-shot", "Llama 4", "ToolACE", "Gemma 3"),
    syntax="[NAME(KEY=LITERAL, …), …] as the whole answer",
    calls=(
        Call(PythonCalls(brackets=True), known_name=True),
        Call(PythonCalls(brackets=True), opens=("<|python_start|>", "<|python_tag|>"), closes=("<|python_end|>",)),
        Call(PythonCalls(brackets=False), opens=("```tool_code",), closes=("```",)),
        Call(PythonCalls(brackets=False), anchor="start", known_name=True),
    ),
    reasoning=(THINK,),
    drop=(*_LLAMA_END, "<end_of_turn>", *CHATML_END),
    special=("<|python_start|>", "<|python_tag|>", "<|python_end|>"),
    turns=(*_LLAMA_TURN, "<start_of_turn>model\n"),
    aliases=("llama4_pythonic", "toolace", "gemma3_pythonic"),
    fingerprints=(
        ("func_name1(",),
        ("[func_name",),
        ("<|python_start|>", "python"),
        ("pythonic",),
        ("tool_code",),
    ),
)

XLAM = Dialect(
    name="xlam",
    families=("xLAM 1", "xLAM 2", "any model under guided decoding"),
    syntax='[{"name": NAME, "arguments": OBJECT}, …] as the whole answer',
    reasoning=(THINK,),
    calls=(
        Call(JsonCall(shape="array"), anchor="line"),
        Call(JsonCall(shape="array"), opens=("[TOOL_CALLS]", "<tool_call>"), closes=("</tool_call>", "[/TOOL_CALLS]")),
    ),
    drop=(*_LLAMA_END, *CHATML_END),
    turns=(*_LLAMA_TURN, *CHATML),
    aliases=("bare_json", "json"),
    fingerprints=(("xLAM",), ("xlam",), ("tool_calls", "JSON array")),
)

FUNCTOOLS = Dialect(
    name="phi4_functools",
    families=("Phi-4 mini",),
    syntax='functools[{"name": NAME, "arguments": OBJECT}, …]',
    calls=(
        Call(JsonCall(shape="array"), opens=("functools",), own_section=True),
        Call(JsonCall(), opens=("<|tool_call|>",), closes=("<|/tool_call|>", "</|tool_call|>"), own_section=True),
        Call(JsonCall(shape="lines"), anchor="start"),
    ),
    drop=("<|end|>", "<|endoftext|>"),
    turns=("<|assistant|>",),
    reasoning=(THINK,),
    aliases=("phi4_mini", "phi4_mini_json", "phi4"),
    fingerprints=(("functools", "<|assistant|>"), ("functools", "<|end|>")),
)

PHI4_TAGS = replace(
    FUNCTOOLS,
    name="phi4_tags",
    syntax='<|tool_call|>{"name": NAME, "arguments": OBJECT}<|/tool_call|>',
    calls=(FUNCTOOLS.calls[1], FUNCTOOLS.calls[0]),
    aliases=(),
    fingerprints=(("<|tool_call|>", "<|/tool_call|>"),),
)

FIREFUNCTION = replace(
    FUNCTOOLS,
    name="firefunction_v2",
    families=("Firefunction v2",),
    syntax=' functools[{"name": NAME, "arguments": OBJECT}, …]',
    drop=_LLAMA_END,
    turns=_LLAMA_TURN,
    aliases=(),
    fingerprints=(("functools", "<|eot_id|>"), ("functools",)),
)

SMALL_THINK = Span(opens=("<thought>",), closes=("</thought>",), after_open="\n", before_close="\n")

EXAONE_DEEP = Dialect(
    name="exaone_deep",
    families=("EXAONE Deep",),
    syntax="no tool calls; reasoning in <thought>",
    reasoning=(SMALL_THINK,),
    drop=("[|endofturn|]",),
    turns=("[|assistant|]",),
    fingerprints=(("<thought>", "[|assistant|]"),),
)
