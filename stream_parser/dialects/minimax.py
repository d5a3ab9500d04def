"""MiniMax: JSON lines of M1, invoke tags of M2, nested elements of M3."""

from stream_parser.dialect import Call, Dialect, ElementTree, JsonCall, Span, TaggedArguments
from stream_parser.dialects.hermes import THINK

_N = "]<]minimax[>["

MINIMAX_M1 = Dialect(
    name="minimax_m1",
    families=("MiniMax-M1", "MiniMax-Text-01"),
    syntax='<tool_calls> with one {"name": NAME, "arguments": OBJECT} a line </tool_calls>',
    reasoning=(THINK,),
    calls=(
        Call(JsonCall(shape="lines"), opens=("<tool_calls>",), closes=("</tool_calls>",), gap="\n", own_section=True),
    ),
    drop=("<end_of_sentence>",),
    turns=("<beginning_of_sentence>ai name=MiniMax AI\n",),
    fingerprints=(("<tool_calls>", "<beginning_of_sentence>"),),
)

MINIMAX_M2 = Dialect(
    name="minimax_m2",
    families=("MiniMax-M2", "MiniMax-M2.1", "MiniMax-M2.5"),
    syntax='<minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>…',
    reasoning=(THINK,),
    sections=(Span(opens=("<minimax:tool_call>",), closes=("</minimax:tool_call>",), after_open="\n"),),
    calls=(
        Call(
            TaggedArguments(params=('<parameter name="{key}">',), closes=("</parameter>",), separator="\n"),
            heads=('<invoke name="{name}">',),
            tails=("</invoke>",),
            gap="\n",
        ),
    ),
    drop=("[e~[",),
    turns=("]~b]ai\n",),
    aliases=("minimax-m2", "minimax", "minimax_m2_append_think", "minimax-append-think"),
    fingerprints=(("<minimax:tool_call>",),),
)

MINIMAX_M3 = Dialect(
    name="minimax_m3",
    families=("MiniMax-M3",),
    syntax=f'{_N}<tool_call>{_N}<invoke name="NAME">{_N}<KEY>VALUE or elements{_N}</KEY>{_N}</invoke>{_N}</tool_call>',
    reasoning=(Span(opens=("<mm:think>",), closes=("</mm:think>",)),),
    sections=(Span(opens=(_N + "{ws}<tool_call>",), closes=(_N + "{ws}</tool_call>",), after_open="\n"),),
    calls=(
        Call(
            ElementTree(_N),
            heads=(_N + '{ws}<invoke name="{name}">',),
            tails=(_N + "{ws}</invoke>",),
        ),
    ),
    drop=("[e~[",),
    special=(_N,),
    turns=("]~b]ai\n",),
    aliases=("minimax-m3",),
    fingerprints=((_N,), ("]<]minimax", "<mm:think>")),
)
