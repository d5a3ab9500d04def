"""Items to messages: what belongs together, what is left out, what is refused."""

import pytest

from gateway.errors import InvalidRequest
from gateway.protocols.json_body import MAX_DEPTH
from gateway.protocols.responses_items import item_type, transcribe
from gateway.protocols.responses_opaque import MAX_UNSEALED_BYTES, Unsealer, seal
from gateway.types import ChatMessage, ToolUse

USER = {"role": "user", "content": "Hi"}


def message(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def reasoning(text):
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def call(call_id="c1", name="f", **more):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **more}


def output(value, call_id="c1"):
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def messages_of(*items):
    return list(transcribe((), items, None).messages)


def test_what_the_model_wrote_in_one_go_is_one_message():
    written = messages_of(USER, reasoning("think"), message("look"), call("c1"), call("c2"), output("x"))
    uses = (ToolUse("c1", "f", "{}"), ToolUse("c2", "f", "{}"))
    assert written[1] == ChatMessage("assistant", "look", None, "think", uses)
    assert written[2] == ChatMessage("tool", "x", tool_call_id="c1")


def test_text_after_a_call_stays_in_the_message_of_the_call():
    [_, written] = messages_of(USER, message("before"), call(), message("after"))
    assert (written.content, len(written.tool_uses)) == ("before\nafter", 1)


def test_two_messages_in_a_row_stay_two():
    assert [m.content for m in messages_of(USER, message("one"), message("two"), call())] == ["Hi", "one", "two"]
    assert [len(m.tool_uses) for m in messages_of(message("one"), message("two"), call())] == [0, 1]


def test_instructions_come_first_and_history_before_input():
    transcript = transcribe([USER, message("yes")], [{"role": "developer", "content": "Stop."}], "Be brief.")
    assert [(m.role, m.content) for m in transcript.messages] == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "yes"),
        ("developer", "Stop."),
    ]


def test_a_string_and_its_parts_give_the_same_message():
    parts = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    assert messages_of(USER) == messages_of(parts)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (reasoning("raw"), "raw"),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}]}, "short"),
        ({"type": "reasoning", "summary": [], "encrypted_content": seal("sealed")}, "sealed"),
        ({**reasoning("raw"), "encrypted_content": seal("sealed")}, "raw"),
        ({"type": "reasoning", "summary": [{"text": "short"}], "encrypted_content": seal("sealed")}, "sealed"),
    ],
)
def test_reasoning_comes_back_from_wherever_the_client_kept_it(item, text):
    assert messages_of(item, call())[0].reasoning == text


def test_another_servers_sealed_reasoning_is_ignored_and_said():
    item = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAAB"}
    transcript = transcribe((), [USER, item], None)
    assert [m.role for m in transcript.messages] == ["user"]
    assert "encrypted_content" in transcript.warnings[0]


def test_outputs_of_every_kind_become_text():
    shell = {"type": "shell_call_output", "call_id": "c1", "output": [
        {"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 2}},
        {"stdout": "", "outcome": {"type": "timeout"}},
        {"stdout": "z"},
    ]}  # fmt: skip
    patch = {"type": "apply_patch_call_output", "call_id": "c1", "status": "failed"}
    texts = [m.content for m in messages_of(shell, patch, output({"k": 1}), output("s"), output([]))]
    assert texts == ["a\nb\nexit code 2\ntimed out\nz", "failed", '{"k":1}', "s", ""]


def test_an_image_in_an_output_is_said_and_does_not_stop_the_agent():
    item = output([{"type": "input_text", "text": "ok"}, {"type": "input_image", "image_url": "data:,"}])
    transcript = transcribe((), [item], None)
    assert transcript.messages[0].content == "ok\n[input_image left out: the model reads text only]"
    assert "input_image" in transcript.warnings[0]


def test_calls_of_the_clients_own_tools_are_calls_of_functions():
    [written] = messages_of(
        {"type": "local_shell_call", "call_id": "c1", "action": {"command": ["ls"]}},
        {"type": "apply_patch_call", "id": "ap_1", "operation": {"path": "x"}},
        {"type": "custom_tool_call", "call_id": "c3", "name": "note", "namespace": "n", "input": 'say "hi"'},
        {"type": "tool_search_call", "arguments": {"q": 1}},
        {"type": "tool_search_call", "call_id": "c5", "arguments": "{}"},
        call("c6", arguments={"city": "Oslo"}),
        {"type": "shell_call", "call_id": "c7"},
    )
    assert [(use.id, use.name, use.arguments) for use in written.tool_uses] == [
        ("c1", "local_shell", '{"command":["ls"]}'),
        ("ap_1", "apply_patch", '{"path":"x"}'),
        ("c3", "n__note", '{"input":"say \\"hi\\""}'),
        ("call_unknown", "tool_search", '{"q":1}'),
        ("c5", "tool_search", "{}"),
        ("c6", "f", '{"city":"Oslo"}'),
        ("c7", "shell", "{}"),
    ]


def test_tools_that_items_bring_are_reported_with_their_place():
    found = {"type": "tool_search_output", "call_id": "c", "tools": [{"type": "function", "name": "radar"}, 7]}
    transcript = transcribe((), [{"type": "additional_tools", "tools": [{"type": "custom", "name": "x"}]}, found], None)
    assert [path for _, path in transcript.tool_groups] == ["input[0].tools", "input[1].tools"]
    assert transcript.messages[0].content == "Found: radar"
    assert messages_of({"type": "tool_search_output"})[0].content == "Found: no tools"


def test_hosted_items_are_left_out_with_one_warning_a_kind():
    calls, settings = {"type": "web_search_call", "id": "ws"}, {"type": "mcp_list_tools", "id": "l"}
    transcript = transcribe((), [USER, settings, calls, calls, settings], None)
    note = "[web_search_call left out: the model reads text only]"
    assert [message.content for message in transcript.messages[1:]] == [f"{note}\n{note}"]
    assert len(transcript.warnings) == 2


def test_a_compaction_is_the_items_inside():
    inside, go = [USER, message("yes")], {"role": "user", "content": "go"}
    sealed = {"type": "compaction", "encrypted_content": seal(inside)}
    assert messages_of(sealed, go) == messages_of(*inside, go)


@pytest.mark.parametrize("inside", ["text", [7], [{"type": "compaction", "encrypted_content": seal([])}]])
def test_a_compaction_that_is_not_ours_is_refused(inside):
    with pytest.raises(InvalidRequest) as refused:
        messages_of({"type": "compaction", "encrypted_content": seal(inside)})
    assert refused.value.param.startswith("input[0].encrypted_content")


@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
@pytest.mark.parametrize(
    ("fields", "name"),
    [({"output": "x"}, "call_id"), ({"output": "x", "call_id": ""}, "call_id"), ({"call_id": "c"}, "output")],
)
def test_a_result_of_no_call_and_a_call_without_a_result_are_refused(kind, fields, name):
    with pytest.raises(InvalidRequest) as refused:
        messages_of(USER, {"type": kind, "id": "fco_1", **fields})
    assert refused.value.param == f"input[1].{name}"
    assert name in refused.value.message


def test_an_empty_result_is_one():
    assert messages_of(USER, output(""))[1].content == ""


def test_a_trigger_alone_adds_nothing():
    assert messages_of({"type": "compaction_trigger"}) == []


@pytest.mark.parametrize(
    ("item", "kind"), [({"role": "user"}, "message"), ({"id": "x"}, "item_reference"), ({}, None), ({"type": 3}, None)]
)
def test_the_type_follows_from_the_fields_where_it_is_left_out(item, kind):
    assert item_type(item) == kind


def test_what_is_sealed_opens_again_and_nothing_else_does():
    unsealer = Unsealer()
    assert unsealer.open(seal({"a": ["ü", 1]})) == {"a": ["ü", 1]}
    good = seal("x" * 100)
    for damaged in ("", "headrace1.", "headrace1.!!", good[:-8], good.replace("headrace1", "other"), good[:20]):
        assert unsealer.open(damaged) is None


def test_what_unpacks_to_more_than_a_request_may_carry_stays_shut():
    unsealer = Unsealer(max_bytes=1000)
    assert unsealer.open(seal("x" * 500)) is not None
    assert unsealer.open(seal("x" * 500)) is None, "the limit is for all of them together"
    assert unsealer.open(seal("x" * 400)) is not None
    assert MAX_UNSEALED_BYTES < 2**27


def test_what_does_not_fit_is_not_unpacked_again_and_again():
    unsealer = Unsealer(max_bytes=1000)
    for _ in range(3):
        assert unsealer.open(seal("x" * 5000)) is None
    assert unsealer.open(seal("x" * 500)) is None, "as much as 2,000 bytes was unpacked for nothing"


def test_what_is_nested_deeper_than_a_body_may_be_is_refused():
    deep: object = "x"
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    with pytest.raises(InvalidRequest, match="nested"):
        Unsealer().open(seal(deep))
