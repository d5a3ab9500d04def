"""Cohere's Command models: marked answers and actions, and Command R's plain-text action list."""

from dataclasses import replace

from stream_parser.dialect import Call, Dialect, JsonCall, Span

_CALL = JsonCall(
    shape="array",
    name_keys=("tool_name", "name"),
    argument_keys=("parameters",),
    id_key="tool_call_id",
)

COHERE_COMMAND3 = Dialect(
    name="cohere_command3",
    families=("Command R7B", "Command A"),
    syntax='<|START_ACTION|>[{"tool_call_id": ID, "tool_name": NAME, "parameters": OBJECT}, …]<|END_ACTION|>',
    reasoning=(Span(opens=("<|START_THINKING|>",), closes=("<|END_THINKING|>",)),),
    answer=(
        Span(
            opens=("<|START_RESPONSE|>", "<|START_TEXT|>"),
            closes=("<|END_RESPONSE|>", "<|END_TEXT|>"),
            ends_reasoning=True,
        ),
    ),
    calls=(Call(_CALL, opens=("<|START_ACTION|>",), closes=("<|END_ACTION|>",), own_section=True),),
    drop=("<|END_OF_TURN_TOKEN|>",),
    special=(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_TEXT|>",
        "<|END_TEXT|>",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        "<|END_OF_TURN_TOKEN|>",
    ),
    turns=("<|CHATBOT_TOKEN|>",),
    aliases=("command_a", "command_r7b", "cohere"),
    fingerprints=(("<|START_ACTION|>", "<|START_RESPONSE|>"),),
)

COHERE_COMMAND4 = replace(
    COHERE_COMMAND3,
    name="cohere_command4",
    families=("Command 4", "Cohere2 MoE"),
    answer=(
        Span(
            opens=("<|START_TEXT|>", "<|START_RESPONSE|>"),
            closes=("<|END_TEXT|>", "<|END_RESPONSE|>"),
            ends_reasoning=True,
        ),
    ),
    aliases=("cohere2moe",),
    fingerprints=(("<|START_ACTION|>", "<|START_TEXT|>"),),
)

COMMAND_R = Dialect(
    name="command_r",
    families=("Command R", "Command R+"),
    syntax='Action: ```json [{"tool_name": NAME, "parameters": OBJECT}, …] ```',
    calls=(
        Call(
            replace(_CALL, ignored_names=("directly-answer", "directly_answer")),
            opens=("Action:",),
            closes=("```",),
            gap="\n```json\n",
            own_section=True,
        ),
    ),
    drop=("<|END_OF_TURN_TOKEN|>",),
    turns=("<|CHATBOT_TOKEN|>",),
    fingerprints=(("Action:", "directly-answer"), ("Action:", "directly_answer")),
)
