"""JSON in `<tool_call>` tags, after the Hermes models; what Qwen2.5 and Qwen3 speak."""

from stream_parser.dialect import Call, Dialect, JsonCall, Span

THINK = Span(opens=("<think>",), closes=("</think>",), after_open="\n", before_close="\n", after_close="\n\n")
CHATML = ("<|im_start|>assistant\n",)
CHATML_END = ("<|im_end|>", "<|endoftext|>")

HERMES = Dialect(
    name="hermes",
    families=("Qwen2.5", "Qwen3", "QwQ", "Hermes 2 Pro to 4", "Granite 4.0/4.1", "EXAONE 4", "SmolLM3", "Bielik 3"),
    syntax='<tool_call>{"name": NAME, "arguments": OBJECT}</tool_call>',
    reasoning=(THINK,),
    calls=(Call(JsonCall(), opens=("<tool_call>",), closes=("</tool_call>",), gap="\n"),),
    drop=CHATML_END,
    turns=CHATML,
    fingerprints=(("<tool_call>", '"arguments"'), ("<tool_call>", "arguments")),
)
