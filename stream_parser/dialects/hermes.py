"""JSON in `<tool_call>` tags, after the Hermes models; what Qwen2.5 and Qwen3 speak, and many others."""

from dataclasses import replace

from stream_parser.dialect import Call, Dialect, JsonCall, PythonCalls, Span

THINK = Span(opens=("<think>",), closes=("</think>",), after_open="\n", before_close="\n", after_close="\n\n")
CHATML = ("<|im_start|>assistant\n",)
CHATML_END = ("<|im_end|>", "<|endoftext|>")

HERMES = Dialect(
    name="hermes",
    families=(
        "Qwen2.5",
        "QwQ",
        "Qwen3",
        "Hermes 2 Pro to 4",
        "Granite 4.0/4.1",
        "EXAONE 4",
        "MiMo-VL",
        "Bielik 3",
        "Reka Edge",
        "Trinity",
        "Youtu-LLM",
        "SmolLM3",
        "Ling/Ring 1 and 2",
        "Falcon-H1",
    ),
    syntax='<tool_call>{"name": NAME, "arguments": OBJECT}</tool_call>',
    reasoning=(THINK,),
    calls=(Call(JsonCall(), opens=("<tool_call>",), closes=("</tool_call>",), gap="\n"),),
    drop=(*CHATML_END, "<|eot_id|>", "<|end_of_text|>", "[|endofturn|]"),
    turns=(
        *CHATML,
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "[|assistant|]",
        "<|start_of_role|>assistant<|end_of_role|>",
    ),
    aliases=(
        "qwen3",
        "qwen",
        "qwen25",
        "qwen3_json",
        "qwen3-thinking",
        "qwen3_thinking",
        "exaone4",
        "granite4",
        "trinity",
        "youtu",
        "reka",
        "bielik",
        "smollm3",
        "holo2",
        "kolibri",
    ),
    fingerprints=(("<tool_call>", "arguments"), ("xml_tools", "<|im_start|>"), ("SmolLM", "<think>")),
)

ERNIE45 = replace(
    HERMES,
    name="ernie45",
    families=("ERNIE-4.5-Thinking",),
    syntax='<tool_call>{"name": NAME, "arguments": OBJECT}</tool_call>, answers in <response>',
    answer=(Span(opens=("<response>",), closes=("</response>",), after_open="\n", before_close="\n"),),
    drop=("<|end_of_sentence|>", "</s>", *CHATML_END),
    turns=("Assistant: ", *CHATML),
    aliases=(),
    fingerprints=(("<tool_call>", "<response>", "</response>"),),
)

LONGCAT = replace(
    HERMES,
    name="longcat",
    families=("LongCat-Flash",),
    syntax='<longcat_tool_call>{"name": NAME, "arguments": OBJECT}</longcat_tool_call>',
    reasoning=(replace(THINK, opens=("<longcat_think>",), closes=("</longcat_think>",)),),
    calls=(Call(JsonCall(), opens=("<longcat_tool_call>",), closes=("</longcat_tool_call>",), gap="\n"),),
    drop=("</longcat_s>",),
    turns=(" ASSISTANT:",),
    aliases=(),
    fingerprints=(("<longcat_tool_call>",),),
)

SMOLLM2 = replace(
    HERMES,
    name="smollm2",
    families=("SmolLM2",),
    syntax='<tool_call>[{"name": NAME, "arguments": OBJECT}, …]</tool_call>',
    reasoning=(THINK,),
    calls=(Call(JsonCall(shape="array"), opens=("<tool_call>",), closes=("</tool_call>",), own_section=True),),
    aliases=(),
    fingerprints=(("SmolLM", "<|im_start|>"),),
    unless=("<tool_call>", "<code>", "<think>"),
)

SMOLLM3_PYTHON = replace(
    HERMES,
    name="smollm3_python",
    families=("SmolLM3 with python_tools",),
    syntax="<code>NAME(KEY=LITERAL, …)</code>",
    calls=(Call(PythonCalls(brackets=False), opens=("<code>",), closes=("</code>",), gap="\n", own_section=True),),
    aliases=(),
    fingerprints=(),
)

JAMBA = Dialect(
    name="jamba",
    families=("Jamba 1.5 to 2",),
    syntax='<tool_calls>[{"name": NAME, "arguments": OBJECT}, …]</tool_calls>',
    reasoning=(THINK,),
    calls=(Call(JsonCall(shape="array"), opens=("<tool_calls>",), closes=("</tool_calls>",), own_section=True),),
    drop=("<|eom|>", *CHATML_END),
    turns=("<|assistant|>", *CHATML),
    fingerprints=(("<tool_calls>", "<|bom|>"),),
)

APRIEL = Dialect(
    name="apriel",
    families=("Apriel 1.5", "Apriel 1.6"),
    syntax='<tool_calls>[{"id": ID, "name": NAME, "arguments": OBJECT}, …]</tool_calls>',
    reasoning=(
        Span(
            bare_opens=("Here are my reasoning steps:\n",),
            closes=("[BEGIN FINAL RESPONSE]",),
            before_close="\n",
            after_close="\n",
        ),
    ),
    answer=(Span(opens=("[BEGIN FINAL RESPONSE]",), closes=("[END FINAL RESPONSE]",)),),
    calls=(Call(JsonCall(shape="array"), opens=("<tool_calls>",), closes=("</tool_calls>",), own_section=True),),
    drop=("<|end|>", "[END FINAL RESPONSE]"),
    turns=("<|assistant|>\n", "<|begin_assistant|>\n"),
    prompt_opens="Here are my reasoning steps:\n",
    aliases=("apriel_1_5", "apriel_1_6"),
    fingerprints=(("<tool_calls>", "[BEGIN FINAL RESPONSE]"), ("<tool_calls>", "Here are my reasoning steps")),
)

NEMOTRON_TOOLCALL = Dialect(
    name="nemotron_toolcall",
    families=("Nemotron Nano v2", "Nemotron Super 49B", "Nemotron Ultra 253B"),
    syntax='<TOOLCALL>[{"name": NAME, "arguments": OBJECT}, …]</TOOLCALL>',
    reasoning=(THINK,),
    calls=(Call(JsonCall(shape="array"), opens=("<TOOLCALL>",), closes=("</TOOLCALL>",), own_section=True),),
    drop=("<SPECIAL_12>", "<|eot_id|>"),
    turns=("<SPECIAL_11>Assistant\n", "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    aliases=("nemotron_v2", "nemotron_deci", "nemotron_json", "llama_nemotron_json"),
    fingerprints=(("<TOOLCALL>",),),
)

PANGU = Dialect(
    name="pangu",
    families=("openPangu",),
    syntax='<|tool_call_start|>[{"name": NAME, "arguments": OBJECT}, …]<|tool_call_end|>',
    reasoning=(Span(opens=("[unused16]", "<think>"), closes=("[unused17]", "</think>")),),
    calls=(
        Call(
            JsonCall(shape="array"),
            opens=("<|tool_call_start|>", "[unused11]"),
            closes=("<|tool_call_end|>", "[unused12]"),
            own_section=True,
        ),
    ),
    drop=("[unused10]",),
    special=("[unused11]", "[unused12]", "[unused16]", "[unused17]", "<|tool_call_start|>", "<|tool_call_end|>"),
    turns=("[unused9]助手：",),
    fingerprints=(("[unused11]", "[unused12]"),),
)
