"""Routed messages: Harmony and Beam, Functionary, Muse; and frames whose headers are plain markers."""

from dataclasses import replace

from stream_parser.dialect import (
    ByFirstChar,
    Call,
    Dialect,
    JsonArguments,
    JsonCall,
    Messages,
    RawArgument,
    Route,
    Span,
    TaggedArguments,
)

_HARMONY_TOKENS = (
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|constrain|>",
    "<|return|>",
    "<|call|>",
)
_JSON_OR_CODE = ByFirstChar(choices=(('{"', JsonArguments()),), otherwise=RawArgument("code"))

HARMONY = Dialect(
    name="harmony",
    families=("gpt-oss-20b", "gpt-oss-120b"),
    syntax="<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>OBJECT<|call|>",
    messages=Messages(
        starts=("<|start|>assistant", "<|start|>"),
        message="<|message|>",
        ends=("<|end|>", "<|call|>", "<|return|>"),
        tokens=("<|channel|>", "<|constrain|>"),
        openings=("<|channel|>", " to=", "to=", "<|message|>", "<|constrain|>"),
        routes=(
            Route(
                r"to=(?:functions\.)*(?!assistant\b|user\b)(?P<name>[^\s<]+)",
                "call",
                render="<|channel|>commentary to=functions.{name} <|constrain|>json",
            ),
            Route(r"analysis\s*(?:$|<|to=)", "reasoning", render="<|channel|>analysis"),
            Route(r"", "content", render="<|channel|>final"),
        ),
        body=_JSON_OR_CODE,
    ),
    special=_HARMONY_TOKENS,
    turns=("<|start|>assistant",),
    prompt_opens="<|start|>assistant<|channel|>analysis<|message|>",
    keep_edges=True,
    aliases=("gpt_oss", "gpt-oss", "openai", "openai_gptoss", "gptoss"),
    fingerprints=(("<|channel|>", "<|message|>", "<|start|>"),),
    unless=("<rfl:parameter",),
)

BEAM = replace(
    HARMONY,
    name="beam",
    families=("Beam",),
    syntax=' to=NAME<|channel|>analysis <|constrain|>xml<|message|><rfl:parameter name="KEY">VALUE</rfl:parameter>',
    messages=Messages(
        starts=("<|start|>assistant", "<|start|>"),
        message="<|message|>",
        ends=("<|end|>", "<|call|>", "<|return|>"),
        tokens=("<|channel|>", "<|constrain|>"),
        openings=("<|channel|>", " to=", "to=", "<|message|>", "<|constrain|>"),
        routes=(
            Route(
                r"to=(?:functions\.)*(?!assistant\b|user\b)(?P<name>[^\s<]+)",
                "call",
                render=" to={name}<|channel|>analysis <|constrain|>xml",
            ),
            Route(r"analysis\s*(?:$|<|to=)", "reasoning", render="<|channel|>analysis"),
            Route(r"", "content", render="<|channel|>final"),
        ),
        body=TaggedArguments(
            params=('<rfl:parameter name="{key}">',),
            closes=("</rfl:parameter>",),
            trim="newline",
            separator="\n",
        ),
    ),
    aliases=(),
    fingerprints=(("<rfl:parameter", "<|channel|>"), ("<rfl:parameter",)),
    unless=(),
)

FUNCTIONARY_V32 = Dialect(
    name="functionary_v32",
    families=("Functionary v3.2",),
    syntax=">>>NAME\\nOBJECT; >>>all\\nTEXT",
    messages=Messages(
        starts=(">>>",),
        message="\n",
        ends=(),
        tokens=(),
        header_chars=r"[\w.\-]",
        openings=("all",),
        routes=(
            Route(r"^all$", "content", render="all"),
            Route(r"^(?P<name>[\w.\-]+)$", "call", render="{name}"),
        ),
        body=_JSON_OR_CODE,
        known_names=True,
    ),
    drop=("<|eot_id|>", "<|eom_id|>"),
    special=("<|eot_id|>", "<|eom_id|>"),
    keep_edges=True,
    aliases=("functionary", "functionary_v3.2"),
    fingerprints=((">>>all",), (">>>${recipient}",)),
)

FUNCTIONARY_V2 = Dialect(
    name="functionary_v2",
    families=("Functionary v2",),
    syntax="<|from|>assistant\\n<|recipient|>NAME\\n<|content|>OBJECT<|stop|>",
    messages=Messages(
        starts=("<|from|>assistant\n<|recipient|>",),
        message="{ws}<|content|>",
        ends=("<|stop|>",),
        tokens=(),
        header_chars=r"[\w.\-]",
        openings=("all",),
        routes=(
            Route(r"^all$", "content", render="all\n"),
            Route(r"^(?P<name>[\w.\-]+)$", "call", render="{name}\n"),
        ),
        body=_JSON_OR_CODE,
    ),
    special=("<|from|>", "<|recipient|>", "<|content|>", "<|stop|>"),
    keep_edges=True,
    fingerprints=(("<|recipient|>", "<|content|>", "<|from|>"),),
)

FUNCTIONARY_V31 = Dialect(
    name="functionary_v31",
    families=("Functionary v3.1",),
    syntax="<function=NAME>OBJECT</function>",
    calls=(
        Call(JsonArguments(), heads=("<function={name}>",), closes=("</function>",)),
        Call(RawArgument("code"), opens=("<|python_tag|>",), name="python"),
    ),
    drop=("<|eom_id|>", "<|eot_id|>"),
    special=("<|python_tag|>", "<|eom_id|>", "<|eot_id|>"),
    turns=("<|start_header_id|>assistant<|end_header_id|>\n\n",),
    aliases=("functionary_v3.1",),
    fingerprints=(("<function=", "<|eom_id|>"), ("<function=", "</function>", "<|start_header_id|>")),
    unless=("<parameter=",),
)

MUSE = Dialect(
    name="muse",
    families=("Muse Glimmer", "Muse Spark"),
    syntax=' to=NAME<|message|><atem:invoke name="NAME"><atem:parameter name="KEY">VALUE</atem:parameter>…',
    messages=Messages(
        starts=("<|start|>assistant",),
        message="<|message|>",
        ends=("<|eom|>", "<|eot|>"),
        tokens=(),
        openings=(" to=", "to=", "<|message|>"),
        routes=(
            Route(r"^\s*$", "reasoning", render=""),
            Route(r"to=self\b", "reasoning", render=" to=self"),
            Route(r"to=(?:user|commentary)\b", "content", render=" to=user"),
            Route(r"to=developer\b", "discard"),
            Route(r"to=", "calls", render=" to=tools"),
        ),
    ),
    sections=(Span(opens=("<atem:function_calls>",), closes=("</atem:function_calls>",), after_open="\n"),),
    calls=(
        Call(
            TaggedArguments(params=('<atem:parameter name="{key}">',), closes=("</atem:parameter>",), separator="\n"),
            heads=('<atem:invoke name="{name}">',),
            tails=("</atem:invoke>",),
            gap="\n",
        ),
    ),
    calls_in=("calls",),
    special=("<|start|>", "<|message|>", "<|eom|>", "<|eot|>"),
    turns=("<|start|>assistant",),
    prompt_opens="<|start|>assistant to=self<|message|>",
    keep_edges=True,
    aliases=("muse_glimmer", "musespark1x", "glimmer"),
    fingerprints=(("<atem:invoke", "<|message|>"), ("atem:",)),
)

INKLING = Dialect(
    name="inkling",
    families=("Inkling",),
    syntax='<|message_model|><|content_invoke_tool_json|>{"name": NAME, "args": OBJECT}<|end_message|>',
    reasoning=(
        Span(
            opens=("<|message_model|><|content_thinking|>", "<|content_thinking|>"),
            closes=("<|end_message|>",),
        ),
    ),
    answer=(
        Span(
            opens=("<|message_model|><|content_text|>", "<|content_text|>"),
            closes=("<|end_message|>",),
            ends_reasoning=True,
        ),
    ),
    calls=(
        Call(
            JsonCall(argument_keys=("args",)),
            opens=("<|message_model|><|content_invoke_tool_json|>", "<|content_invoke_tool_json|>"),
            closes=("<|end_message|>",),
        ),
    ),
    noise=("<|message_model|>", "<|end_message|>"),
    drop=("<|content_model_end_sampling|>",),
    special=(
        "<|message_model|>",
        "<|content_thinking|>",
        "<|content_text|>",
        "<|content_invoke_tool_json|>",
        "<|end_message|>",
        "<|content_model_end_sampling|>",
    ),
    keep_edges=True,
    fingerprints=(("<|content_invoke_tool_json|>",),),
)

HYPERCLOVAX_14B = Dialect(
    name="hyperclovax_14b",
    families=("HyperCLOVAX SEED Think 14B",),
    syntax='<|im_start|>assistant -> tool/function_call\\n[{"name": NAME, "arguments": OBJECT}, …]<|im_end|>',
    reasoning=(
        Span(
            opens=("<|im_start|>assistant/think\n",),
            bare_opens=("/think\n",),
            closes=("<|im_end|>",),
            after_close="\n",
        ),
    ),
    answer=(Span(opens=("<|im_start|>assistant\n",), closes=("<|im_end|>",), ends_reasoning=True),),
    calls=(
        Call(
            JsonCall(shape="array"),
            opens=("<|im_start|>assistant -> tool/function_call\n", "-> tool/function_call\n"),
            closes=("<|im_end|>",),
            own_section=True,
        ),
    ),
    drop=("<|im_end|>", "<|endofturn|>", "<|stop|>"),
    special=(
        "<|im_start|>",
        "<|im_end|>",
    ),
    fingerprints=(("-> tool/function_call",),),
)

SOLAR_OPEN = Dialect(
    name="solar_open",
    families=("Solar Open 100B",),
    syntax="<|tool_call:begin|>ID<|tool_call:name|>NAME<|tool_call:args|>OBJECT<|tool_call:end|> in a section",
    reasoning=(Span(opens=("<|begin|>assistant<|think|>", "<|think|>"), closes=("<|end|>",)),),
    answer=(
        Span(
            opens=("<|begin|>assistant<|content|>", "<|content|>"),
            closes=("<|end|>",),
            ends_reasoning=True,
        ),
    ),
    sections=(Span(opens=("<|begin|>assistant<|tool_calls|>", "<|tool_calls|>"), closes=("<|calls|>",)),),
    calls=(
        Call(
            JsonArguments(),
            opens=("<|tool_call:begin|>",),
            heads=("{id}<|tool_call:name|>{name}<|tool_call:args|>", "<|tool_call:name|>{name}<|tool_call:args|>"),
            closes=("<|tool_call:end|>",),
        ),
    ),
    noise=("<|begin|>assistant", "<|begin|>", "<|end|>"),
    drop=("<|flush|>",),
    special=(
        "<|begin|>",
        "<|end|>",
        "<|think|>",
        "<|content|>",
        "<|tool_calls|>",
        "<|calls|>",
        "<|tool_call:begin|>",
        "<|tool_call:end|>",
    ),
    keep_edges=True,
    aliases=("solar_open_100b",),
    fingerprints=(("<|tool_call:begin|>",),),
)

SOLAR_OPEN2 = replace(
    SOLAR_OPEN,
    name="solar_open2",
    families=("Solar Open 2",),
    syntax="<|tool_call:start|>NAME\\n<|tool_arg:start|>KEY<|tool_arg:value|>VALUE<|tool_arg:end|>\\n<|tool_call:end|>",
    calls=(
        Call(
            TaggedArguments(
                params=("<|tool_arg:start|>{key}<|tool_arg:value|>",),
                closes=("<|tool_arg:end|>",),
                first_duplicate_wins=True,
                separator="\n",
            ),
            opens=("<|tool_call:start|>",),
            heads=("{name}\n",),
            closes=("<|tool_call:end|>",),
        ),
    ),
    special=(*SOLAR_OPEN.special, "<|tool_call:start|>"),
    aliases=(),
    fingerprints=(("<|tool_call:start|>",),),
)
