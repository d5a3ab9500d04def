"""Mistral: the JSON array of the early tokenizers, name and arguments since v11."""

from dataclasses import replace

from stream_parser.dialect import Call, Dialect, JsonArguments, JsonCall, Span

_TOKENS = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[/TOOL_CALLS]", "[THINK]", "[/THINK]")
_ARRAY = Call(JsonCall(shape="array"), opens=("[TOOL_CALLS]",), closes=("[/TOOL_CALLS]",), own_section=True)
_NAMED = Call(
    JsonArguments(),
    opens=("[TOOL_CALLS]",),
    heads=("{name}[ARGS]", "{name}[CALL_ID]{id}[ARGS]", "{name}[CALL_ID]{id}", "{name}"),
)

MISTRAL_V13 = Dialect(
    name="mistral_v13",
    families=("Devstral 2507 and 2", "Ministral 3", "Magistral 2509", "Mistral Large 3", "Mistral Small 4"),
    syntax="[TOOL_CALLS]NAME[ARGS]OBJECT",
    reasoning=(Span(opens=("[THINK]", "<think>"), closes=("[/THINK]", "</think>")),),
    calls=(_NAMED, _ARRAY),
    drop=("</s>",),
    special=_TOKENS,
    turns=("[/INST]",),
    ids="alnum9",
    aliases=("magistral", "ministral", "mistral", "devstral"),
    fingerprints=(("[TOOL_CALLS]", "[ARGS]"),),
    unless=("[CALL_ID]",),
)

MISTRAL_V11 = replace(
    MISTRAL_V13,
    name="mistral_v11",
    families=("Mistral Small 3.2", "Magistral 2507"),
    syntax="[TOOL_CALLS]NAME[CALL_ID]ID[ARGS]OBJECT",
    reasoning=(
        Span(opens=("<think>", "[THINK]"), closes=("</think>", "[/THINK]"), after_open="\n", before_close="\n"),
    ),
    calls=(
        replace(_NAMED, heads=("{name}[CALL_ID]{id}[ARGS]", "{name}[ARGS]", "{name}[CALL_ID]{id}", "{name}")),
        _ARRAY,
    ),
    aliases=(),
    fingerprints=(("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),),
    unless=(),
)

MISTRAL_V3 = replace(
    MISTRAL_V13,
    name="mistral_v3",
    families=("Mistral 7B v0.3", "Mistral Nemo", "Mistral Large 2407", "Mistral Small 3.0/3.1"),
    syntax='[TOOL_CALLS][{"name": NAME, "arguments": OBJECT, "id": ID}, …]',
    reasoning=(Span(opens=("<think>", "[THINK]"), closes=("</think>", "[/THINK]")),),
    calls=(_ARRAY, _NAMED),
    aliases=("mistral_nemo",),
    fingerprints=(("[TOOL_CALLS]",),),
    unless=("[ARGS]",),
)
