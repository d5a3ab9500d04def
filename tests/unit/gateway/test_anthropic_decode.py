"""Messages requests to turns: what the model will read of them, and what the client is warned of."""

import pytest

from gateway.errors import InvalidRequest
from gateway.protocols.anthropic_decode import decode_count_tokens, decode_messages_request
from gateway.types import ChatMessage, NamedTool, ToolUse

BILLING = "x-anthropic-billing-header: version=1; entry=cli;"


def body(*messages, **fields):
    return {"max_tokens": 100, "messages": list(messages) or [user("Hi")], **fields}


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def system(content):
    return {"role": "system", "content": content}


def text(words, **more):
    return {"type": "text", "text": words, **more}


def tool(name, **more):
    return {"name": name, "input_schema": {"type": "object", "properties": {}}, **more}


def decode(*messages, **fields):
    return decode_messages_request(body(*messages, **fields))


def names(turn):
    return [tool["function"]["name"] for tool in turn.tools]


@pytest.mark.parametrize("role", ["user", "system"])
def test_a_string_and_one_text_block_are_the_same_message(role):
    block = text("Hello", cache_control={"type": "ephemeral"})
    spellings = [decode(user("Hi"), assistant("Yes?"), {"role": role, "content": c}) for c in ("Hello", [block])]
    assert spellings[0].messages == spellings[1].messages


def test_system_blocks_are_joined_and_the_billing_block_is_dropped():
    blocks = [text(BILLING), text("Work well."), text("Be brief.", cache_control={"type": "ephemeral"})]
    assert decode(system=blocks).messages[0] == ChatMessage("system", "Work well.\nBe brief.")
    assert decode(system=f"{BILLING}\nWork well.\nBe brief.").messages == decode(system=blocks).messages


@pytest.mark.parametrize("nothing", [None, "", [], BILLING, [text(BILLING)]])
def test_a_system_of_nothing_is_no_message(nothing):
    assert decode(system=nothing).messages == (ChatMessage("user", "Hi"),)


def test_system_entries_stay_where_they_are():
    turn = decode(user("One."), system("The date changed."), assistant("Two."), user("Three."), system="Work.")
    assert [message.role for message in turn.messages] == ["system", "user", "system", "assistant", "user"]


def test_system_entries_that_are_to_be_cleared_last_until_the_user_speaks_again():
    note = {**system("Only now."), "clear_at": "next_user_message"}
    kept = {**system("Always."), "clear_at": "never"}
    now = decode(user("One."), note, kept)
    assert [message.content for message in now.messages] == ["One.", "Only now.", "Always."]
    later = decode(user("One."), note, kept, assistant("Two."), user("Three."))
    assert [message.content for message in later.messages] == ["One.", "Always.", "Two.", "Three."]


@pytest.mark.parametrize("empty", [{"role": "system"}, {"role": "system", "content": []}])
def test_messages_that_say_nothing_at_all_are_refused(empty):
    with pytest.raises(InvalidRequest) as caught:
        decode(empty)
    assert caught.value.param == "messages"


def test_results_become_messages_of_their_own_in_order():
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "content": [text("a"), text("b")]},
        text("And?"),
        {"type": "tool_result", "tool_use_id": "c2"},
    ]
    assert decode(user(results)).messages == (
        ChatMessage("tool", "a\nb", tool_call_id="c1"),
        ChatMessage("user", "And?"),
        ChatMessage("tool", "", tool_call_id="c2"),
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [("No such file", "Error: No such file"), ("", "Error"), ("TypeError: x", "TypeError: x"), ("error", "error")],
)
def test_a_failed_result_says_so(content, told):
    result = {"type": "tool_result", "tool_use_id": "c", "content": content, "is_error": True}
    assert decode(user([result])).messages[0].content == told


def test_an_assistant_message_keeps_thoughts_text_and_calls():
    blocks = [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        text("It is "),
        text("so.", citations=[]),
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"b": 1, "a": "ü"}},
        {"type": "thinking", "thinking": "Once more.", "signature": "s"},
        {"type": "tool_use", "id": "c2", "name": "g"},
    ]
    uses = (ToolUse("c1", "f", '{"b":1,"a":"ü"}'), ToolUse("c2", "g", "{}"))
    wanted = ChatMessage("assistant", "It is so.", reasoning="Hm.\nOnce more.", tool_uses=uses)
    assert decode(user("Hi"), assistant(blocks), user("Go on.")).messages[1] == wanted


def test_a_thought_without_words_is_none():
    blocks = [{"type": "thinking", "thinking": "", "signature": "s"}, text("Yes.")]
    assert decode(user("Hi"), assistant(blocks), user("Go on.")).messages[1] == ChatMessage("assistant", "Yes.")


def test_neighbours_of_one_role_become_one_message():
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    turn = decode(user("a"), user([text("b"), text("c")]), assistant("d"), assistant([thinking, text("e"), call]))
    assert turn.messages == (
        ChatMessage("user", "a\nb\nc"),
        ChatMessage("assistant", "de", reasoning="Hm.", tool_uses=(ToolUse("c", "f", "{}"),)),
    )


def test_an_empty_message_of_the_user_is_kept():
    assert decode(user([])).messages == (ChatMessage("user", ""),)


def test_a_compacted_past_and_fallback_marks_are_read():
    blocks = [{"type": "compaction", "content": "They met."}, {"type": "fallback", "to": {}}, text(" And then?")]
    assert decode(user("Hi"), assistant(blocks), user("Go on.")).messages[1].content == "They met. And then?"
    failed = [{"type": "compaction", "content": None}]
    assert decode(user("Hi"), assistant(failed), user("Go on.")).messages[1].content == ""


def test_an_answer_that_has_begun_is_continued_without_thinking():
    turn = decode(user("One word."), assistant("It is"), thinking={"type": "adaptive"})
    assert (turn.prefill, turn.messages) == ("It is", (ChatMessage("user", "One word."),))
    assert turn.template_kwargs["enable_thinking"] is False


@pytest.mark.parametrize(
    "last",
    [
        [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
        [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, text("So")],
    ],
)
def test_a_last_message_that_called_or_thought_is_not_continued(last):
    turn = decode(user("Hi"), assistant(last))
    assert turn.prefill == ""
    assert turn.messages[-1].role == "assistant"


def test_a_conversation_of_one_assistant_message_is_taken_as_it_is():
    assert decode(assistant("Hi")).messages == (ChatMessage("assistant", "Hi"),)


def test_tools_are_spelled_as_templates_know_them():
    schema = {"type": "object", "properties": {"z": {}, "a": {}}}
    given = {"input_schema": schema, "name": "f", "description": "d", "strict": True, "cache_control": {}}
    [tool] = decode(tools=[given]).tools
    function = {"name": "f", "description": "d", "parameters": schema, "strict": True}
    assert tool == {"type": "function", "function": function}
    assert list(tool["function"]) == ["name", "description", "parameters", "strict"]


def test_deferred_tools_are_shown_once_they_are_known():
    tools = [tool("search"), tool("a", defer_loading=True), tool("b", defer_loading=True)]
    assert names(decode(tools=tools)) == ["search"]
    loaded = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "tool_reference", "tool_name": "b"}]}
    turn = decode(user([loaded]), tools=tools)
    assert names(turn) == ["search", "b"]
    assert turn.messages[0].content == "The tool b is available now."


def test_deferred_tools_are_all_shown_when_the_server_would_have_searched_them():
    hosted = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert names(decode(tools=[hosted, tool("a", defer_loading=True)])) == ["a"]


def test_tools_that_are_added_and_removed_on_the_way_are_told_in_place():
    reference = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "a"}}
    definition = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool("b")}}
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "c"}}
    changes = system([reference, definition, removal])
    turn = decode(user("Hi"), changes, tools=[tool("a", defer_loading=True), tool("c")])
    assert names(turn) == ["a", "c", "b"]
    told = ["The tool a is available now.", "The tool b is available now.", "The tool c is not available any more."]
    assert turn.messages[1].content == "\n".join(told)


def test_too_many_tools_are_refused():
    with pytest.raises(InvalidRequest) as caught:
        decode(tools=[tool("f")] * 1025)
    assert caught.value.param == "tools"


def test_hosted_tools_servers_and_formats_are_left_out_with_a_warning():
    turn = decode(
        tools=[tool("f"), {"type": "web_search_20250305", "name": "web_search"}, {"type": "x\r\ny: z", "name": "g"}],
        mcp_servers=[{"type": "url"}],
        container="c",
        output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
    )
    assert names(turn) == ["f"]
    told = "; ".join(turn.warnings)
    for word in ("web_search_20250305", "mcp_servers", "container", "output_config.format"):
        assert word in told
    # The words go out as a header.
    assert told.isprintable()


@pytest.mark.parametrize(
    ("choice", "decoded", "is_warned"),
    [
        (None, "auto", False),
        ({"type": "auto"}, "auto", False),
        ({"type": "none"}, "none", False),
        ({"type": "any"}, "required", True),
        ({"type": "tool", "name": "f"}, NamedTool("f"), True),
    ],
)
def test_tool_choices(choice, decoded, is_warned):
    turn = decode(tools=[tool("f")], tool_choice=choice)
    assert turn.tool_choice == decoded
    assert bool(turn.warnings) == is_warned
    assert turn.parallel_calls


def test_parallel_calls_can_be_switched_off():
    assert not decode(tools=[tool("f")], tool_choice={"type": "auto", "disable_parallel_tool_use": True}).parallel_calls


@pytest.mark.parametrize(
    ("thinking", "variables"),
    [
        (None, {}),
        (
            {"type": "enabled", "budget_tokens": 2048},
            {"enable_thinking": True, "thinking": True, "thinking_mode": "enabled", "thinking_budget": 2048},
        ),
        ({"type": "adaptive"}, {"enable_thinking": True, "thinking": True, "thinking_mode": "adaptive"}),
        ({"type": "between_tools"}, {"enable_thinking": True, "thinking": True, "thinking_mode": "enabled"}),
        (
            {"type": "disabled"},
            {"enable_thinking": False, "thinking": False, "thinking_mode": "disabled", "thinking_budget": 0},
        ),
    ],
)
def test_thinking_reaches_the_template_under_the_names_that_templates_use(thinking, variables):
    assert decode(thinking=thinking).template_kwargs == variables


@pytest.mark.parametrize(("max_tokens", "is_warned"), [(2048, True), (2049, False), (0, False)])
def test_a_budget_that_leaves_no_room_for_the_answer_is_warned_of(max_tokens, is_warned):
    turn = decode(thinking={"type": "enabled", "budget_tokens": 2048}, max_tokens=max_tokens)
    assert any("budget_tokens" in warning for warning in turn.warnings) == is_warned
    assert turn.max_reasoning_tokens == 2048


def test_effort_and_the_clients_own_template_arguments():
    given = {"output_config": {"effort": "xhigh"}, "chat_template_kwargs": {"a": 1}}
    assert decode(**given).template_kwargs == {"reasoning_effort": "high", "a": 1}
    assert decode(output_config={"effort": "low"}).template_kwargs == {"reasoning_effort": "low"}


def test_sampling_and_stop_sequences():
    turn = decode(temperature=0.5, top_k=5, top_p=0.9, stop_sequences=["A", "B"], stream=True, model="m")
    assert (turn.params.temperature, turn.params.top_k, turn.params.top_p) == (0.5, 5, 0.9)
    assert (turn.params.max_tokens, turn.stop, turn.stream, turn.model) == (100, ("A", "B"), True, "m")


def test_counting_needs_no_max_tokens_and_reads_the_same_prompt():
    request = {"messages": [user("Hi"), assistant("It is")], "system": "Work.", "tools": [tool("f")], "model": "m"}
    counted, run = decode_count_tokens(request), decode_messages_request({**request, "max_tokens": 1})
    assert (counted.messages, counted.tools, counted.prefill) == (run.messages, run.tools, run.prefill)
    assert (counted.template_kwargs, counted.model) == (run.template_kwargs, run.model)
