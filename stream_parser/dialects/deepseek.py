"""DeepSeek: the call tokens of V3, R1 and V3.1, and the DSML tags since V3.2."""

from dataclasses import replace

from stream_parser.dialect import USUAL, Call, Dialect, JsonArguments, NoArguments, Span, TaggedArguments

_THINK = Span(opens=("<think>",), closes=("</think>",), after_open="\n", before_close="\n", after_close="\n\n")
_SECTION = Span(opens=("<｜tool▁calls▁begin｜>",), closes=("<｜tool▁calls▁end｜>", "<｜tool▁sep｜>"))
_TOKENS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
_END = ("<｜end▁of▁sentence｜>", "<｜end of sentence｜>")
_TURN = ("<｜Assistant｜>",)

DEEPSEEK_V3 = Dialect(
    name="deepseek_v3",
    families=("DeepSeek V3", "DeepSeek R1", "R1 distills", "Cogito v2"),
    syntax="<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\\n```json\\nOBJECT\\n```<｜tool▁call▁end｜> in a section",
    reasoning=(_THINK,),
    sections=(_SECTION,),
    calls=(
        Call(
            JsonArguments(fence=True),
            opens=("<｜tool▁call▁begin｜>",),
            heads=("function<｜tool▁sep｜>{name}\n", "{skip}<｜tool▁sep｜>{name}\n", "{name}\n"),
            closes=("<｜tool▁call▁end｜>",),
        ),
    ),
    drop=_END,
    special=_TOKENS,
    turns=_TURN,
    aliases=("deepseek_r1", "deepseekv3", "deepseek-r1", "deepseek-v3", "cogito_v2"),
    fingerprints=(("<｜tool▁calls▁begin｜>", "```json"), ("<｜tool▁calls▁begin｜>",), ("<｜Assistant｜>",)),
)

DEEPSEEK_V31 = replace(
    DEEPSEEK_V3,
    name="deepseek_v31",
    families=("DeepSeek V3.1", "DeepSeek V3.2-Exp"),
    syntax="<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>OBJECT<｜tool▁call▁end｜> in a section",
    reasoning=(Span(opens=("<think>",), closes=("</think>",)),),
    calls=(
        Call(
            JsonArguments(),
            opens=("<｜tool▁call▁begin｜>",),
            heads=("{name}<｜tool▁sep｜>",),
            closes=("<｜tool▁call▁end｜>",),
        ),
    ),
    aliases=("deepseekv31",),
    fingerprints=(("<｜tool▁calls▁begin｜>", "<think>", "<｜tool▁sep｜>"),),
    unless=("```json", "```jsonc"),
)

_DSML_TAGS = TaggedArguments(
    params=('<｜DSML｜parameter name="{key}" string="{type}">', '<｜DSML｜parameter name="{key}">'),
    closes=("</｜DSML｜parameter>",),
    typing="attribute",
    separator="\n",
)
_DSML_CALL = Call(
    _DSML_TAGS,
    heads=('<｜DSML｜invoke name="{name}">',),
    tails=("</｜DSML｜invoke>",),
    gap="\n",
)
_DSML_BLOCKS = (
    "<｜DSML｜tool_calls>",
    "<｜DSML｜function_calls>",
    "<｜DSML｜toolcalls>",
    "<｜DSML｜tool>",
    "<｜DSML｜ calls>",
)
_DSML_BLOCK_ENDS = (
    "</｜DSML｜tool_calls>",
    "</｜DSML｜function_calls>",
    "</｜DSML｜toolcalls>",
    "</｜DSML｜tool>",
    "</｜DSML｜ calls>",
)

DEEPSEEK_V4 = Dialect(
    name="deepseek_v4",
    families=("DeepSeek V4",),
    syntax='<｜DSML｜tool_calls><｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY" string=…>VALUE…',
    reasoning=(Span(opens=("<think>",), closes=("</think>",)),),
    sections=(Span(opens=_DSML_BLOCKS, closes=_DSML_BLOCK_ENDS, after_open="\n"),),
    calls=(
        _DSML_CALL,
        replace(_DSML_CALL, body=JsonArguments()),
        replace(_DSML_CALL, body=NoArguments(), heads=('<｜DSML｜invoke name="{name}"/>',), tails=()),
    ),
    drop=_END,
    turns=_TURN,
    recovery=USUAL | {"wrapper_arg"},
    aliases=("deepseekv4", "dsml", "deepseek-v4"),
    fingerprints=(("｜DSML｜", "tool_calls"),),
)

DEEPSEEK_V32 = replace(
    DEEPSEEK_V4,
    name="deepseek_v32",
    families=("DeepSeek V3.2",),
    syntax='<｜DSML｜function_calls><｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY" string=…>VALUE…',
    sections=(
        Span(
            opens=("<｜DSML｜function_calls>", *_DSML_BLOCKS),
            closes=("</｜DSML｜function_calls>", *_DSML_BLOCK_ENDS),
            after_open="\n",
        ),
    ),
    aliases=("deepseekv32",),
    fingerprints=(("｜DSML｜", "function_calls"),),
)

_V41_CALL = replace(
    _DSML_CALL,
    body=replace(
        _DSML_TAGS,
        params=('<｜DSML｜ parameter name="{key}" string="{type}">', '<｜DSML｜ parameter name="{key}">'),
        closes=("</｜DSML｜ parameter>", "</｜DSML｜parameter>"),
    ),
    heads=('<｜DSML｜ invoke name="{name}">',),
    tails=("</｜DSML｜ invoke>", "</｜DSML｜invoke>"),
)

DEEPSEEK_V41 = replace(
    DEEPSEEK_V4,
    name="deepseek_v41",
    families=("DeepSeek V4.1",),
    syntax='<｜DSML｜ calls><｜DSML｜ invoke name="NAME"><｜DSML｜ parameter name="KEY" string=…>VALUE…',
    sections=(
        Span(
            opens=("<｜DSML｜ calls>", *_DSML_BLOCKS), closes=("</｜DSML｜ calls>", *_DSML_BLOCK_ENDS), after_open="\n"
        ),
    ),
    calls=(
        _V41_CALL,
        replace(_V41_CALL, body=JsonArguments()),
        replace(_V41_CALL, body=NoArguments(), heads=('<｜DSML｜ invoke name="{name}"/>',), tails=()),
    ),
    aliases=("deepseekv41",),
    fingerprints=(("｜DSML｜", "DSML_TOKEN + ' calls"), ("｜DSML｜", "｜DSML｜ calls")),
)

_GCML_TAGS = TaggedArguments(
    params=('<｜GCML｜parameter name="{key}" string="{type}">', '<｜GCML｜parameter name="{key}">'),
    closes=("</｜GCML｜parameter>",),
    typing="attribute",
    separator="\n",
)

GIGACHAT35 = replace(
    DEEPSEEK_V4,
    name="gigachat35",
    families=("GigaChat 3.5",),
    syntax='<｜GCML｜tool_calls><｜GCML｜invoke name="NAME"><｜GCML｜parameter name="KEY" string=…>VALUE…',
    sections=(Span(opens=("<｜GCML｜tool_calls>",), closes=("</｜GCML｜tool_calls>",), after_open="\n"),),
    calls=(
        replace(_DSML_CALL, body=_GCML_TAGS, heads=('<｜GCML｜invoke name="{name}">',), tails=("</｜GCML｜invoke>",)),
    ),
    aliases=("gcml",),
    fingerprints=(("｜GCML｜",),),
)
