"""What of the Messages protocol is no stream: a call's input, errors, models; and the corners of its events."""

import json

import pytest

from gateway.errors import (
    EngineDown,
    InternalError,
    InvalidApiKey,
    InvalidRequest,
    MethodNotAllowed,
    ModelNotFound,
    OriginRefused,
    Overloaded,
    RequestTooLarge,
    TooManyTurns,
)
from gateway.protocols.anthropic_events import MessagesEncoder, error_body
from gateway.protocols.anthropic_messages import MessagesCollector, models_body, tool_input
from gateway.protocols.frames import TurnLabels
from gateway.types import (
    ChatTurn,
    SamplingParams,
    ServedModel,
    TurnDone,
    TurnEvent,
    TurnFailed,
    TurnStarted,
    TurnText,
    Usage,
)
from stream_parser.events import Finish
from tests.testkit.anthropic_order import check_error

LABELS = TurnLabels("msg_1", "m", 0, "req_1")
TURN = ChatTurn("m", (), SamplingParams())


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"a": [1, {"b": "c"}]}', {"a": [1, {"b": "c"}]}),
        ("", {}),
        ("{", {}),
        ('{"a": "b', {"a": "b"}),
        ('{"a": [1, 2', {"a": [1, 2]}),
        ("[1]", {"INVALID_JSON": "[1]"}),
        ("12", {"INVALID_JSON": "12"}),
    ],
)
def test_a_calls_input_is_an_object_whatever_the_model_wrote(arguments, value):
    assert tool_input(arguments) == value


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidRequest("a", "a is wrong"), "invalid_request_error"),
        (InvalidApiKey("no"), "authentication_error"),
        (OriginRefused("no"), "permission_error"),
        (ModelNotFound("x", ("m",)), "not_found_error"),
        (MethodNotAllowed("GET", "/", ("POST",)), "invalid_request_error"),
        (RequestTooLarge("big"), "request_too_large"),
        (TooManyTurns("busy"), "rate_limit_error"),
        (InternalError("oh"), "api_error"),
        (EngineDown("gone"), "overloaded_error"),
        (Overloaded("slow"), "overloaded_error"),
    ],
)
def test_errors_have_anthropics_types(error, kind):
    body = json.loads(error_body(error, "req_1"))
    check_error(body)
    assert body == {"type": "error", "error": {"type": kind, "message": error.message}, "request_id": "req_1"}


def test_models_are_listed_with_their_dates():
    body = json.loads(models_body((ServedModel("a"), ServedModel("b", 4096)), 1700000000))
    assert (body["has_more"], body["first_id"], body["last_id"]) == (False, "a", "b")
    assert body["data"][0]["created_at"] == "2023-11-14T22:13:20Z"
    assert {entry["type"] for entry in body["data"]} == {"model"}
    assert body["data"][1]["max_input_tokens"] == 4096


@pytest.mark.parametrize("reason", ["cancelled", "error"])
def test_a_turn_that_was_cut_short_ends_with_an_error(reason):
    encoder = MessagesEncoder(LABELS, TURN)
    items = [TurnStarted(1), TurnEvent(0, Finish(reason)), TurnDone(Usage(1, 0))]
    frames = [frame for item in items for frame in encoder.encode(item)]
    assert [frame.event for frame in frames] == ["message_start", "error"]
    check_error(json.loads(frames[-1].data))


def test_a_collector_leaves_failures_to_the_transport():
    collector = MessagesCollector(LABELS, TURN)
    for item in (TurnStarted(1), TurnText(0, "x"), TurnFailed(InternalError("oh"))):
        collector.add(item)
    assert json.loads(collector.body())["content"] == []


def test_unparsed_text_is_no_part_of_the_protocol():
    with pytest.raises(AssertionError, match="parsed"):
        MessagesEncoder(LABELS, TURN).encode(TurnText(0, "x"))
