"""Marked lists and lines of Python calls: LFM2, Olmo 3, MiniCPM 3 and 4."""

from stream_parser.dialect import USUAL, Call, Dialect, JsonCall, PythonCalls, Span
from stream_parser.dialects.hermes import CHATML, CHATML_END, THINK

LFM2 = Dialect(
    name="lfm2",
    families=("LFM2", "LFM2.5"),
    syntax="<|tool_call_start|>[NAME(KEY=LITERAL, …), …]<|tool_call_end|>",
    reasoning=(THINK,),
    calls=(
        Call(PythonCalls(), opens=("<|tool_call_start|>",), closes=("<|tool_call_end|>",), own_section=True),
        Call(JsonCall(shape="array"), opens=("<|tool_call_start|>",), closes=("<|tool_call_end|>",)),
    ),
    drop=CHATML_END,
    special=("<|tool_call_start|>", "<|tool_call_end|>", *CHATML_END),
    turns=CHATML,
    recovery=USUAL | {"echo_after"},
    fingerprints=(("<|tool_call_start|>",), ("<|tool_list_start|>",)),
    unless=("```python",),
)

OLMO3 = Dialect(
    name="olmo3",
    families=("Olmo 3", "Olmo 3.1"),
    syntax="<function_calls> with one NAME(KEY=LITERAL, …) a line </function_calls>",
    reasoning=(THINK,),
    calls=(
        Call(
            PythonCalls(brackets=False),
            opens=("<function_calls>",),
            closes=("</function_calls>",),
            own_section=True,
        ),
    ),
    drop=CHATML_END,
    turns=CHATML,
    fingerprints=(("<function_calls>",),),
    unless=("｜DSML｜",),
)

MINICPM3 = Dialect(
    name="minicpm3",
    families=("MiniCPM3", "MiniCPM4"),
    syntax="<|tool_call_start|>```python with one NAME(KEY=LITERAL, …) a line ```<|tool_call_end|>",
    reasoning=(Span(opens=("<|thought_start|>",), closes=("<|thought_end|>",), after_open="\n", before_close="\n"),),
    calls=(
        Call(
            PythonCalls(brackets=False),
            opens=("<|tool_call_start|>\n```python", "<|tool_call_start|>"),
            closes=("<|tool_call_end|>",),
            gap="\n",
            own_section=True,
        ),
    ),
    drop=CHATML_END,
    turns=CHATML,
    aliases=("minicpm4",),
    fingerprints=(("<|tool_call_start|>", "```python"),),
)
