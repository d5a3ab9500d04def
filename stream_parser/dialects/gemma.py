"""Google's Gemma 4 and FunctionGemma: lax objects with string delimiters."""

from stream_parser.dialect import Call, Dialect, LaxArguments, Span

_TOKENS = ("<|tool_call>", "<tool_call|>", "<|channel>", "<channel|>", "<turn|>", "<|tool_response>")

GEMMA4 = Dialect(
    name="gemma4",
    families=("Gemma 4", "DiffusionGemma"),
    syntax='<|tool_call>call:NAME{KEY:<|"|>TEXT<|"|>,KEY:NUMBER}<tool_call|>',
    reasoning=(
        Span(
            opens=("<|channel>thought", "<|channel>"),
            closes=("<channel|>",),
            bare_opens=("thought\n",),
            after_open="\n",
            before_close="\n",
        ),
    ),
    calls=(
        Call(
            LaxArguments('<|"|>'),
            opens=("<|tool_call>",),
            heads=("call:{name}", ":{name}", "{name}"),
            closes=("<tool_call|>",),
        ),
    ),
    drop=("<turn|>", "<|tool_response>", "<eos>"),
    special=_TOKENS,
    turns=("<|turn>model\n",),
    fingerprints=(("<|tool_call>", "<tool_call|>"),),
)

FUNCTIONGEMMA = Dialect(
    name="functiongemma",
    families=("FunctionGemma 270M",),
    syntax="<start_function_call>call:NAME{KEY:<escape>VALUE<escape>}<end_function_call>",
    calls=(
        Call(
            LaxArguments("<escape>"),
            opens=("<start_function_call>",),
            heads=("call:{name}", ":{name}", "{name}"),
            closes=("<end_function_call>",),
        ),
    ),
    drop=("<end_of_turn>", "<start_function_response>", "<eos>"),
    special=("<start_function_call>", "<end_function_call>", "<end_of_turn>"),
    turns=("<start_of_turn>model\n",),
    fingerprints=(("<start_function_call>",),),
)
