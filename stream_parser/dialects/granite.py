"""IBM Granite 3 and its function-calling 20B; Granite 4 speaks hermes or qwen3_coder."""

from stream_parser.dialect import Call, Dialect, JsonCall, Span

_END = ("<|end_of_text|>", "<|end_of_role|>", "<|endoftext|>")
_TURN = ("<|start_of_role|>assistant<|end_of_role|>",)
_PROSE = Span(
    opens=("Here is my thought process:", "Here's my thought process:"),
    closes=("Here is my response:", "Here's my response:"),
)

GRANITE3 = Dialect(
    name="granite3",
    families=("Granite 3.0 to 3.3",),
    syntax='<|tool_call|>[{"name": NAME, "arguments": OBJECT}, …]',
    reasoning=(Span(opens=("<think>",), closes=("</think>",)), _PROSE),
    answer=(Span(opens=("<response>",), closes=("</response>",)),),
    calls=(Call(JsonCall(shape="array"), opens=("<|tool_call|>", "<tool_call>"), own_section=True),),
    drop=_END,
    turns=_TURN,
    aliases=("granite", "granite32_reasoning"),
    fingerprints=(("<|tool_call|>", "<|start_of_role|>"), ("<tool_call>", "<|start_of_role|>", "granite-3")),
)

GRANITE_20B_FC = Dialect(
    name="granite_20b_fc",
    families=("Granite 20B Function Calling",),
    syntax='<function_call> {"name": NAME, "arguments": OBJECT}, repeated',
    calls=(Call(JsonCall(), opens=("<function_call>",), gap=" "),),
    drop=_END,
    turns=("ASSISTANT:",),
    aliases=("granite-20b-fc",),
    fingerprints=(("<function_call>",),),
)
