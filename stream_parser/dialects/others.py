"""Dialects of one family each."""

from dataclasses import replace

from stream_parser.dialect import (
    ByFirstChar,
    Call,
    Dialect,
    JsonArguments,
    JsonCall,
    RawArgument,
    Span,
    TaggedArguments,
)
from stream_parser.dialects.hermes import CHATML, CHATML_END, THINK

STEP3 = Dialect(
    name="step3",
    families=("Step-3",),
    syntax='<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="NAME"><steptml:parameter name="KEY">…',
    reasoning=(THINK,),
    sections=(Span(opens=("<｜tool_calls_begin｜>",), closes=("<｜tool_calls_end｜>", "<｜tool_sep｜>")),),
    calls=(
        Call(
            TaggedArguments(params=('<steptml:parameter name="{key}">',), closes=("</steptml:parameter>",)),
            opens=("<｜tool_call_begin｜>",),
            heads=('function<｜tool_sep｜><steptml:invoke name="{name}">', '<steptml:invoke name="{name}">'),
            tails=("</steptml:invoke>",),
            closes=("<｜tool_call_end｜>",),
        ),
    ),
    drop=("<|EOT|>", "<｜end▁of▁sentence｜>"),
    special=(
        "<｜tool_calls_begin｜>",
        "<｜tool_calls_end｜>",
        "<｜tool_call_begin｜>",
        "<｜tool_call_end｜>",
        "<｜tool_sep｜>",
    ),
    turns=("<|BOT|>assistant\n", *CHATML),
    fingerprints=(("steptml:",),),
)

STEP_AUDIO2 = Dialect(
    name="step_audio2",
    families=("Step-Audio 2",),
    syntax="<tool_call>function\\nNAME\\nOBJECT</tool_call>",
    reasoning=(THINK,),
    calls=(Call(JsonArguments(), opens=("<tool_call>",), heads=("function\n{name}\n",), closes=("</tool_call>",)),),
    drop=("<|EOT|>", *CHATML_END),
    turns=("<|BOT|>assistant\n", *CHATML),
    fingerprints=(("<tool_call>function",),),
)

INTERNLM2 = Dialect(
    name="internlm2",
    families=("InternLM2", "InternLM2.5", "Intern-S1"),
    syntax='<|action_start|><|plugin|>{"name": NAME, "parameters": OBJECT}<|action_end|>',
    reasoning=(THINK,),
    calls=(
        Call(
            JsonCall(argument_keys=("parameters", "arguments")),
            opens=("<|action_start|>{ws}<|plugin|>",),
            closes=("<|action_end|>",),
        ),
        Call(
            RawArgument("code"),
            opens=("<|action_start|>{ws}<|interpreter|>",),
            closes=("<|action_end|>",),
            name="python",
        ),
    ),
    drop=CHATML_END,
    special=("<|action_start|>", "<|action_end|>", "<|plugin|>", "<|interpreter|>", *CHATML_END),
    turns=CHATML,
    aliases=("internlm", "interns1"),
    fingerprints=(("<|action_start|>", "<|plugin|>"), ("<|plugin|>",)),
)

APERTUS = Dialect(
    name="apertus",
    families=("Apertus",),
    syntax="<|tools_prefix|>[{NAME: OBJECT}, …]<|tools_suffix|>",
    reasoning=(Span(opens=("<|inner_prefix|>",), closes=("<|inner_suffix|>",)),),
    calls=(
        Call(
            JsonCall(shape="array", name_is_key=True),
            opens=("<|tools_prefix|>",),
            closes=("<|tools_suffix|>",),
            own_section=True,
        ),
    ),
    drop=("<|assistant_end|>", "</s>"),
    special=("<|inner_prefix|>", "<|inner_suffix|>", "<|tools_prefix|>", "<|tools_suffix|>", "<|assistant_end|>"),
    turns=("<|assistant_start|>",),
    aliases=("apertus2509",),
    fingerprints=(("<|tools_prefix|>",),),
)

GIGACHAT3 = Dialect(
    name="gigachat3",
    families=("GigaChat 3", "GigaChat 3.1"),
    syntax='<|function_call|>{"name": NAME, "arguments": OBJECT}<|message_sep|>',
    calls=(
        Call(
            JsonCall(),
            opens=("<|function_call|>", "function call<|role_sep|>"),
            closes=("<|message_sep|>",),
        ),
    ),
    noise=("<|message_sep|>",),
    drop=("</s>",),
    special=("<|function_call|>", "<|message_sep|>", "<|role_sep|>"),
    turns=("assistant<|role_sep|>\n", "assistant<|role_sep|>"),
    aliases=("gigachat3.1", "gigachat31"),
    fingerprints=(("<|message_sep|>", "<|role_sep|>"),),
)

PLAMO3 = Dialect(
    name="plamo3",
    families=("PLaMo 3",),
    syntax="<|plamo:begin_tool_request:plamo|> with name and JSON arguments between more such markers",
    reasoning=(Span(opens=("<|plamo:begin_think:plamo|>",), closes=("<|plamo:end_think:plamo|>",)),),
    sections=(
        Span(
            opens=("<|plamo:begin_tool_requests:plamo|>",),
            closes=("<|plamo:end_tool_requests:plamo|>",),
        ),
    ),
    calls=(
        Call(
            JsonArguments(),
            opens=("<|plamo:begin_tool_request:plamo|>",),
            heads=(
                "<|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|>"
                "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>",
                "<|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>",
            ),
            tails=("<|plamo:end_tool_arguments:plamo|>",),
            closes=("<|plamo:end_tool_request:plamo|>",),
        ),
    ),
    drop=("<|plamo:eos|>", "<|plamo:op|>"),
    fingerprints=(("begin_tool_request", "plamo"),),
)

MINICPM5 = Dialect(
    name="minicpm5",
    families=("MiniCPM5",),
    syntax='<function name="NAME"><param name="KEY">VALUE</param></function>',
    reasoning=(THINK,),
    calls=(
        Call(
            TaggedArguments(params=('<param name="{key}">',), closes=("</param>",), typing="python", cdata=True),
            heads=('<function name="{name}">', '<functionname="{name}">'),
            tails=("</function>",),
        ),
    ),
    drop=CHATML_END,
    turns=CHATML,
    fingerprints=(("<function name=", "<param name="), ("<function", "<param")),
    unless=("<parameter",),
)

DOTS = Dialect(
    name="dots",
    families=("dots.llm",),
    syntax='<dots_function_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>…',
    reasoning=(THINK,),
    sections=(Span(opens=("<dots_function_call>",), closes=("</dots_function_call>",), after_open="\n"),),
    calls=(
        Call(
            TaggedArguments(params=('<parameter name="{key}">',), closes=("</parameter>",), separator="\n"),
            heads=('<invoke name="{name}">',),
            tails=("</invoke>",),
            gap="\n",
            known_name=True,
        ),
        Call(JsonCall(), opens=("<dots_function_call>",), closes=("</dots_function_call>",), known_name=True),
    ),
    drop=("<|endofresponse|>", *CHATML_END),
    turns=("<|response|>", *CHATML),
    fingerprints=(("<dots_function_call>",),),
)

CWM = Dialect(
    name="cwm",
    families=("Code World Model",),
    syntax="<tool: LABEL>\\nNAME OBJECT or text</tool>",
    reasoning=(THINK,),
    calls=(
        Call(
            ByFirstChar(choices=(("{", JsonArguments()),), otherwise=RawArgument("command")),
            heads=("<tool:{skip}>\n{name}\n",),
            closes=("</tool>",),
        ),
    ),
    drop=("<|eot_id|>", "<|end_of_text|>"),
    turns=("<|start_header_id|>assistant<|end_header_id|>\n\n",),
    fingerprints=(("<tool: ", "</tool>"),),
)

MCP_XML = Dialect(
    name="mcp_xml",
    families=("MiroThinker",),
    syntax="<use_mcp_tool><server_name>S</server_name><tool_name>NAME</tool_name><arguments>OBJECT</arguments>…",
    reasoning=(THINK,),
    calls=(
        Call(
            JsonArguments(),
            opens=("<use_mcp_tool>",),
            heads=(
                "<server_name>{skip}</server_name>\n<tool_name>{name}</tool_name>\n<arguments>\n",
                "<tool_name>{name}</tool_name>\n<arguments>\n",
            ),
            tails=("</arguments>",),
            closes=("</use_mcp_tool>",),
            gap="\n",
        ),
    ),
    drop=CHATML_END,
    turns=CHATML,
    aliases=("mirothinker",),
    fingerprints=(("<use_mcp_tool>",),),
)

GLM4 = Dialect(
    name="glm4",
    families=("GLM-4-9B", "ChatGLM3"),
    syntax="NAME\\nOBJECT<|observation|>",
    calls=(Call(JsonArguments(), heads=("{name}\n",), closes=("<|observation|>",), known_name=True, anchor="start"),),
    noise=("<|assistant|>",),
    drop=("<|observation|>", "<|user|>", "<|endoftext|>"),
    special=("<|assistant|>", "<|observation|>", "<|user|>", "<|endoftext|>"),
    turns=("<|assistant|>",),
    aliases=("chatglm3",),
    fingerprints=(("[gMASK]", "<|observation|>"),),
    unless=("<arg_key>",),
)

QWEN_AGENT = Dialect(
    name="qwen_agent",
    families=("Qwen-Agent prompts",),
    syntax="✿FUNCTION✿: NAME\\n✿ARGS✿: OBJECT",
    calls=(Call(JsonArguments(), heads=("✿FUNCTION✿: {name}\n✿ARGS✿: ",)),),
    noise=("✿RETURN✿:", "✿RETURN✿"),
    drop=("✿RESULT✿:", "✿RESULT✿", *CHATML_END),
    turns=CHATML,
    fingerprints=(("✿FUNCTION✿",),),
)

REACT = Dialect(
    name="react",
    families=("ReAct prompts",),
    syntax="Thought: TEXT\\nAction: NAME\\nAction Input: OBJECT or text",
    reasoning=(Span(opens=("Thought:",), after_open=" "),),
    answer=(Span(opens=("Final Answer:",), ends_reasoning=True, after_open=" "),),
    calls=(
        Call(
            ByFirstChar(choices=(("{", JsonArguments()),), otherwise=RawArgument("input")),
            heads=("Action: {name}\nAction Input: ",),
        ),
    ),
    drop=("\nObservation:", "Observation:", *CHATML_END),
    turns=CHATML,
    fingerprints=(("Action Input:",),),
)

PLAIN = replace(
    STEP_AUDIO2,
    name="plain",
    families=("models without tool calls",),
    syntax="no tool calls; reasoning in <think>",
    calls=(),
    drop=(),
    turns=(),
    aliases=("none", "think"),
    fingerprints=(),
)
