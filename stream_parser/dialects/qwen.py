"""Function and parameter tags after Qwen3-Coder, and the models that write almost the same."""

from dataclasses import replace

from stream_parser.dialect import USUAL, Call, Dialect, JsonCall, Span, TaggedArguments
from stream_parser.dialects.hermes import CHATML, CHATML_END, THINK

_TAGS = TaggedArguments(params=("<parameter={key}>",), closes=("</parameter>",), trim="newline", separator="\n")
_CALL = Call(
    _TAGS,
    opens=("<tool_call>",),
    heads=("<function={name}>", "<function={name}"),
    tails=("</function>",),
    closes=("</tool_call>",),
    gap="\n",
)

QWEN3_CODER = Dialect(
    name="qwen3_coder",
    families=(
        "Qwen3-Coder",
        "Qwen3.5",
        "Qwen3.6",
        "Nemotron 3",
        "Granite 4.2",
        "Step 3.5/3.7/5",
        "Nanbeige",
        "MiniCPM-V 4",
    ),
    syntax="<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>",
    reasoning=(THINK,),
    calls=(_CALL,),
    drop=CHATML_END,
    turns=CHATML,
    recovery=USUAL | {"missing_call_open"},
    aliases=(
        "qwen3_xml",
        "qwen_xml",
        "qwen3_5",
        "step3p5",
        "step3p7",
        "step5",
        "nemotron_v3",
        "nemotron_3",
        "nano_v3",
        "granite_thinking_parser",
        "granite4_thinking",
        "nanbeige",
        "minicpmv",
    ),
    fingerprints=(("<tool_call>", "<function=", "<parameter="),),
)

SEED_OSS = Dialect(
    name="seed_oss",
    families=("Seed-OSS",),
    syntax="<seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></seed:tool_call>",
    reasoning=(Span(opens=("<seed:think>",), closes=("</seed:think>",)),),
    calls=(
        replace(
            _CALL,
            body=replace(_TAGS, typing="python"),
            opens=("<seed:tool_call>",),
            closes=("</seed:tool_call>",),
        ),
    ),
    drop=("<seed:eos>",),
    turns=("<seed:bos>assistant\n",),
    recovery=USUAL | {"missing_call_open"},
    fingerprints=(("<seed:tool_call>",), ("<seed:think>",)),
)

MIMO = replace(
    QWEN3_CODER,
    name="mimo",
    families=("MiMo-V2", "MiMo-V2.6"),
    syntax="<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>, blanks are data",
    calls=(replace(_CALL, body=replace(_TAGS, trim="none")),),
    aliases=("mimo_v2",),
    fingerprints=(("<tool_call>", "<function=", "<parameter=", "MiMo"),),
)

ZAYA = Dialect(
    name="zaya",
    families=("ZAYA1",),
    syntax="<zyphra_tool_call> with a Qwen-Coder or JSON body </zyphra_tool_call>",
    reasoning=(THINK,),
    calls=(
        replace(_CALL, opens=("<zyphra_tool_call>",), closes=("</zyphra_tool_call>",)),
        Call(JsonCall(), opens=("<zyphra_tool_call>",), closes=("</zyphra_tool_call>",), gap="\n"),
    ),
    drop=CHATML_END,
    turns=CHATML,
    recovery=USUAL | {"missing_call_open"},
    fingerprints=(("<zyphra_tool_call>",),),
)

TINY_AYA = replace(
    QWEN3_CODER,
    name="tiny_aya",
    families=("Tiny Aya",),
    syntax="<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>, wrapped answers",
    reasoning=(Span(opens=("<|START_THINKING|>",), closes=("<|END_THINKING|>",)),),
    answer=(Span(opens=("<|START_RESPONSE|>",), closes=("<|END_RESPONSE|>",)),),
    special=("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    drop=("<|END_OF_TURN_TOKEN|>",),
    turns=("<|CHATBOT_TOKEN|>",),
    aliases=(),
    fingerprints=(("<|START_RESPONSE|>", "<function=", "<parameter="),),
)
