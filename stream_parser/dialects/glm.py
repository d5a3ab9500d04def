"""Key and value pair tags after GLM-4.5, the models that share them, and Tencent's Hunyuan 3 and 4."""

from dataclasses import replace

from stream_parser.dialect import Call, Dialect, JsonArguments, JsonCall, Span, TaggedArguments

_THINK = Span(opens=("<think>",), closes=("</think>",))
_TAGS = TaggedArguments(params=("<arg_key>{key}</arg_key>\n<arg_value>",), closes=("</arg_value>",), separator="\n")
_CALL = Call(
    _TAGS,
    opens=("<tool_call>",),
    heads=("{name}\n", "{name}\\n"),
    closes=("</tool_call>",),
)
_SYNTAX = "<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>"

GLM45 = Dialect(
    name="glm45",
    families=("GLM-4.5", "GLM-4.6"),
    syntax=_SYNTAX + ", on lines",
    reasoning=(_THINK,),
    calls=(_CALL,),
    drop=("<|user|>", "<|observation|>", "<|endoftext|>"),
    special=("<|user|>", "<|observation|>", "<|endoftext|>"),
    turns=("<|assistant|>",),
    aliases=("glm", "glm46"),
    fingerprints=(("<arg_key>", "<arg_value>", "\\n<arg_key>"), ("<arg_key>", "<arg_value>"), ("<arg_key>",)),
)

GLM47 = replace(
    GLM45,
    name="glm47",
    families=("GLM-4.7", "GLM-5", "GLM-5.1", "GLM-5.3"),
    syntax=_SYNTAX,
    calls=(
        replace(
            _CALL,
            body=replace(_TAGS, params=("<arg_key>{key}</arg_key><arg_value>", *_TAGS.params), separator=""),
            heads=("{name}", "{name}\\n"),
        ),
    ),
    aliases=("glm5", "glm51"),
    fingerprints=(("<arg_key>", "<|observation|>", "'<arg_key>' ~ k"), ("<arg_key>", "}}</arg_key><arg_value>{{")),
)

LING3 = replace(
    GLM47,
    name="ling3",
    families=("Ling 3", "Ring 3"),
    drop=("<|role_end|>", "<|endoftext|>"),
    special=("<|endoftext|>",),
    turns=("<role>ASSISTANT</role>",),
    aliases=("bailing_v3",),
    fingerprints=(("<arg_key>", "<role>"), ("<arg_key>", "<|role_end|>")),
)

LAGUNA = replace(
    GLM45,
    name="laguna",
    families=("Laguna XS.2", "Laguna XS-2.1", "Laguna S-2.1"),
    drop=("</assistant>", "<|endoftext|>"),
    special=("<|endoftext|>",),
    turns=("<assistant>",),
    aliases=("poolside_v1",),
    fingerprints=(("<arg_key>", "</assistant>"),),
)

SPARK25 = replace(
    GLM47,
    name="spark25",
    families=("Spark X2.5", "Spark 3"),
    drop=("<｜end▁of▁sentence｜>", "<end>"),
    special=("<｜end▁of▁sentence｜>",),
    turns=("<|Bot|>", "<Bot>"),
    aliases=("spark3", "spark"),
    fingerprints=(("<arg_key>", "<|Bot|>"), ("<arg_key>", "<Bot>")),
)

IQUEST = replace(
    GLM45,
    name="iquest",
    families=("IQuest Q1",),
    syntax="<iquest_tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></iquest_tool_call>",
    calls=(replace(_CALL, opens=("<iquest_tool_call>",), closes=("</iquest_tool_call>",)),),
    turns=("<|im_start|>assistant\n",),
    drop=("<|im_end|>", "<|endoftext|>"),
    special=("<|im_end|>", "<|endoftext|>"),
    aliases=("iquest_q1",),
    fingerprints=(("<iquest_tool_call>",),),
)

HYPERCLOVAX_THINK = replace(
    GLM45,
    name="hyperclovax_seed_think",
    families=("HyperCLOVAX SEED Think 32B",),
    calls=(replace(_CALL, body=replace(_TAGS, trim="strip")),),
    drop=("<|im_end|>", "<|endofturn|>"),
    special=("<|im_end|>",),
    turns=("<|im_start|>assistant\n",),
    aliases=("hyperclovax",),
    fingerprints=(("<arg_key>", "<|im_start|>"),),
)

HY_V3 = Dialect(
    name="hy_v3",
    families=("Hunyuan 3",),
    syntax="<tool_calls><tool_call>NAME<tool_sep><arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>…",
    reasoning=(Span(opens=("<think{suffix}>",), closes=("</think{suffix}>",)),),
    sections=(Span(opens=("<tool_calls{suffix}>",), closes=("</tool_calls{suffix}>",), after_open="\n"),),
    calls=(
        Call(
            TaggedArguments(
                params=("<arg_key{suffix}>{key}</arg_key{suffix}>\n<arg_value{suffix}>",),
                closes=("</arg_value{suffix}>",),
                separator="\n",
            ),
            opens=("<tool_call{suffix}>",),
            heads=("{name}<tool_sep{suffix}>\n", "{name}\n"),
            closes=("</tool_call{suffix}>",),
        ),
    ),
    drop=("<|hy_eos|>", "<｜hy_eos｜>", "<|endoftext|>"),
    turns=("<｜hy_Assistant｜>", "<|hy_Assistant|>", "<｜hy_Assistant{suffix}｜>"),
    aliases=("hunyuan",),
    fingerprints=(("tool_sep", "arg_key"),),
)

HY_V4 = replace(
    HY_V3,
    name="hy_v4",
    families=("Hunyuan 4",),
    syntax="<tool_calls><tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call></tool_calls>",
    calls=(replace(HY_V3.calls[0], heads=("{name}\n", "{name}<tool_sep{suffix}>\n")),),
    aliases=(),
    fingerprints=(("<tool_calls", "<arg_key"),),
)

HUNYUAN_A13B = Dialect(
    name="hunyuan_a13b",
    families=("Hunyuan A13B",),
    syntax='<tool_calls>[{"name": NAME, "arguments": OBJECT}, …]</tool_calls>, answers in <answer>',
    reasoning=(Span(opens=("<think>",), closes=("</think>",), after_open="\n", before_close="\n", after_close="\n"),),
    answer=(Span(opens=("<answer>",), closes=("</answer>",), after_open="\n", before_close="\n"),),
    calls=(Call(JsonCall(shape="array"), opens=("<tool_calls>",), closes=("</tool_calls>",), own_section=True),),
    drop=("<|eos|>", "<|endoftext|>"),
    turns=("<|extra_0|>", "<｜hy_Assistant｜>"),
    fingerprints=(("<tool_calls>", "<answer>"), ("<tool_calls>", "<|extra_0|>")),
)

HUNYUAN_DENSE = replace(
    HUNYUAN_A13B,
    name="hunyuan_dense",
    families=("Hunyuan 0.5B to 7B",),
    syntax="<tool_calls><tool_call>NAME\\n```json\\nOBJECT\\n```</tool_call></tool_calls>",
    sections=(Span(opens=("<tool_calls>",), closes=("</tool_calls>",), after_open="\n"),),
    calls=(
        Call(
            JsonArguments(fence=True),
            opens=("<tool_call>",),
            heads=("{name}\n",),
            closes=("</tool_call>",),
        ),
    ),
    aliases=(),
    fingerprints=(("<tool_calls>", "<tool_call>", "```json"),),
)

K2_HORIZON = Dialect(
    name="k2_horizon",
    families=("K2-V3", "K2 Horizon"),
    syntax="<ifm|tool_call> with JSON or NAME and <ifm|arg_key>/<ifm|arg_value> pairs </ifm|tool_call>",
    reasoning=(
        Span(
            opens=("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
            closes=("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"),
        ),
    ),
    sections=(Span(opens=("<ifm|tool_calls>",), closes=("</ifm|tool_calls>",), after_open="\n"),),
    calls=(
        Call(
            TaggedArguments(
                params=(
                    "<ifm|arg_key>{key}</ifm|arg_key>\n<ifm|arg_value>",
                    "<ifm|arg_key>{key}</ifm|arg_key>\n<ifm|arg_type>{type}</ifm|arg_type>\n<ifm|arg_value>",
                ),
                closes=("</ifm|arg_value>",),
                typing="attribute",
                separator="\n",
            ),
            opens=("<ifm|tool_call>",),
            heads=("{name}\n",),
            closes=("</ifm|tool_call>",),
        ),
        Call(JsonCall(), opens=("<ifm|tool_call>",), closes=("</ifm|tool_call>",)),
    ),
    drop=("<|im_end|>", "<ifm|im_end>"),
    turns=("<|im_start|>assistant\n", "<ifm|im_start>assistant\n"),
    fingerprints=(("<ifm|tool_call",),),
)
