"""Keywords that decoding lets pass: the finished value is checked, and what is off is told and not touched."""

import json
import time

import pytest

from gateway.admission import Admission
from gateway.metrics import Metrics
from gateway.model_backend import ModelBackend
from gateway.outbox import Outbox
from gateway.protocols import native
from gateway.protocols.completions import decode_completion
from gateway.protocols.frames import TurnLabels
from gateway.protocols.openai_chat import decode_chat
from gateway.schema_checks import SchemaChecks, Violation, partly_enforced
from gateway.turn import TurnRunner
from gateway.types import PartlyEnforced, TurnDone, TurnEvent, TurnText, Usage
from inference.grammar.source import GrammarSource
from stream_parser.events import ContentDelta, Finish, ReasoningDelta, ToolCallEnd, ToolCallStart
from tests.testkit.gateway_kit import ByteTokenizer, FakeEngine, chat_body, gateway_config, token_chunks
from tests.testkit.native_schema import check_server_frame

TAGS = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}, "required": ["tags"]}
TOOL = {"type": "function", "function": {"name": "set_tags", "parameters": TAGS, "strict": True}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": TAGS}}
TWICE, ONCE = '{"tags": ["a", "a"]}', '{"tags": ["a", "b"]}'
SOURCE = GrammarSource("start: /a/", not_enforced=("tools[0].parameters.properties.tags.uniqueItems",))
CALL_TOLD = 'call 0 (set_tags) is off its schema at tags: "uniqueItems" is not enforced in decoding'
ANSWER_TOLD = 'the answer of choice 0 is off its schema at tags: "uniqueItems" is not enforced in decoding'


def found(promised, *events, choice=0):
    checks = SchemaChecks(promised)
    return [told for event in events if (told := checks.item(TurnEvent(choice, event))) is not None]


def call(arguments, outcome="ok", index=0):
    return [ToolCallStart(index, "id", "set_tags"), ToolCallEnd(index, arguments, outcome, "")]


CALLS = PartlyEnforced(tools={"set_tags": TAGS})
ANSWER = PartlyEnforced(answer=TAGS)


def test_a_call_is_checked_at_its_end():
    assert found(CALLS, *call(TWICE)) == [Violation("call", "uniqueItems", CALL_TOLD)]
    assert found(CALLS, *call(TWICE, "repaired")) == [Violation("call", "uniqueItems", CALL_TOLD)]
    assert found(CALLS, *call(ONCE)) == []
    assert [one.text[:6] for one in found(CALLS, *call(ONCE), *call(TWICE, index=1))] == ["call 1"]


@pytest.mark.parametrize("outcome", ["invalid", "truncated"])
def test_a_call_that_is_told_as_bad_already_is_not_told_twice(outcome):
    assert found(CALLS, *call(TWICE, outcome)) == []


def test_a_call_of_another_tool_has_no_schema_to_keep():
    assert found(CALLS, ToolCallStart(0, "id", "other"), ToolCallEnd(0, TWICE, "ok", "")) == []


def test_an_answer_is_checked_when_it_is_whole():
    pieces = [ReasoningDelta("Hm."), ContentDelta(TWICE[:9]), ContentDelta(TWICE[9:])]
    assert found(ANSWER, *pieces, Finish("stop")) == [Violation("answer", "uniqueItems", ANSWER_TOLD)]
    assert found(ANSWER, ContentDelta(ONCE), Finish("stop")) == []
    for reason in ("length", "cancelled", "tool_calls"):
        assert found(ANSWER, *pieces, Finish(reason)) == []
    assert found(CALLS, *pieces, Finish("stop")) == [], "nothing was asked of the answer"


def test_choices_are_checked_apart():
    checks = SchemaChecks(ANSWER)
    for choice, text in ((0, ONCE), (1, TWICE)):
        assert checks.item(TurnEvent(choice, ContentDelta(text))) is None
    assert checks.item(TurnEvent(0, Finish("stop"))) is None
    told = checks.item(TurnEvent(1, Finish("stop")))
    assert told is not None
    assert told.text.startswith("the answer of choice 1 ")


def test_a_raw_completion_is_checked_as_an_answer():
    checks = SchemaChecks(ANSWER)
    assert checks.item(TurnText(0, TWICE[:5])) is None
    assert checks.item(TurnText(0, TWICE[5:], "stop")) == Violation("answer", "uniqueItems", ANSWER_TOLD)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, json.dumps({"tags": ["a" * 40_000] * 2})])
def test_what_is_no_json_or_too_long_to_read_twice_is_let_pass(text):
    assert found(ANSWER, ContentDelta(text), Finish("stop")) == []


def test_only_turns_with_such_keywords_are_checked():
    turn = decode_chat(chat_body(tools=[TOOL], response_format=FORMAT))
    assert partly_enforced(turn, None) is None
    assert partly_enforced(turn, GrammarSource("start: /a/")) is None
    assert partly_enforced(turn, SOURCE) == PartlyEnforced(TAGS, {"set_tags": TAGS})
    raw = decode_completion({"prompt": "Hi", "structured_outputs": {"json": TAGS}})
    assert partly_enforced(raw, SOURCE) == PartlyEnforced(TAGS)


class PartialGrammars:
    """As `TurnGrammars`, of a schema that is enforced in part."""

    def is_needed(self, _turn):
        return True

    def of(self, _turn, _info, _prompt_tail=""):
        return SOURCE


async def run(reply, **body):
    engine = FakeEngine(lambda request: token_chunks(request, reply))
    metrics = Metrics(time.monotonic, lambda: engine.stats)
    backend = ModelBackend(ByteTokenizer(), engine, "hermes", grammars=PartialGrammars())
    runner = TurnRunner(backend, gateway_config(), metrics, Admission(10), lambda: 1700000000.0)
    turn = decode_chat(chat_body(**body))
    outbox = Outbox(100_000, lambda: None)
    live = runner.start(turn, runner.labels(turn, "turn_"), outbox)
    await live.join()
    return outbox.take(), metrics


async def test_a_turn_tells_of_it_at_its_end_and_leaves_the_call_as_it_is(caplog):
    reply = f'<tool_call>\n{{"name": "set_tags", "arguments": {TWICE}}}\n</tool_call>'
    items, metrics = await run(reply, tools=[TOOL])
    ends = [item.event for item in items if isinstance(item, TurnEvent) and isinstance(item.event, ToolCallEnd)]
    assert [(end.arguments, end.outcome) for end in ends] == [(TWICE, "ok")]
    assert isinstance(items[-1], TurnDone)
    assert items[-1].warnings == (CALL_TOLD,)
    assert metrics.num_schema_violations == {("call", "uniqueItems"): 1}
    assert metrics.num_tool_calls_by_outcome == {"ok": 1}
    assert CALL_TOLD in caplog.text


async def test_a_turn_that_keeps_to_its_schema_says_nothing(caplog):
    items, metrics = await run(ONCE, response_format=FORMAT)
    assert items[-1].warnings == ()
    assert not metrics.num_schema_violations
    assert "off its schema" not in caplog.text


def test_the_native_protocol_tells_of_it_with_the_last_frame():
    encoder = native.NativeEncoder("t", TurnLabels("turn_1", "m", 1, ""))
    for warnings in ((), (CALL_TOLD,)):
        (frame,) = encoder.encode(TurnDone(Usage(1, 2), warnings))
        data = json.loads(frame.data)
        check_server_frame(data)
        assert data.get("warnings", []) == list(warnings)
