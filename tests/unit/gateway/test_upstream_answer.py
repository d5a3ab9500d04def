import pytest

from gateway.pieces import TextPiece, UsageReport
from gateway.types import TokenLogprob
from gateway.upstream_answer import (
    completion_piece,
    decode_event,
    logprobs_of,
    num_tokens,
    split_choices,
    stop_string,
    usage_report,
)
from gateway.upstream_errors import failed_within, retry_after


@pytest.mark.parametrize(
    ("usage", "report"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, UsageReport(9, 2, 0, None)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}, UsageReport(9, 0, 4, None)),
        ({"prompt_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 3}}, UsageReport(9, 0, 0, 3)),
        ({"prompt_tokens": 9, "prompt_tokens_details": None, "prompt_cache_hit_tokens": 5}, UsageReport(9, 0, 5, None)),
        ({"input_tokens": 9.0, "output_tokens": 2, "cache_read_input_tokens": 1}, UsageReport(9, 2, 1, None)),
        ({"prompt_tokens": -1, "completion_tokens": True}, UsageReport(0, 0, 0, None)),
        ({"prompt_tokens": "9"}, None),
        ({"prompt_tokens": float("nan")}, None),
        ([9, 2], None),
        (None, None),
    ],
)
def test_usage_is_read_under_every_name_and_nonsense_is_none(usage, report):
    assert usage_report({"choices": [], "usage": usage}) == report


def test_each_choice_comes_alone():
    a, b = {"index": 1, "delta": {"content": "a"}}, {"index": "x", "delta": {}}
    chunk = {"id": "1", "choices": [a, b, 7]}
    assert [(number, alone["choices"]) for number, alone, _ in split_choices(chunk)] == [(1, [a]), (0, [b])]
    single = {"choices": {"delta": {}}}
    assert [number for number, _, _ in split_choices(single)] == [0]
    assert [alone for _, alone, _ in split_choices({"response": "hi"})] == [{"response": "hi"}]
    assert list(split_choices({"choices": []})) == []


def test_tokens_are_counted_by_what_says_something():
    assert num_tokens({"delta": {"role": "assistant", "content": ""}, "finish_reason": "stop"}, ()) == 0
    assert num_tokens({"delta": {"reasoning": "Hm"}}, ()) == 1
    assert num_tokens({"delta": {"content": "ab"}}, (TokenLogprob("a", 0.0), TokenLogprob("b", 0.0))) == 2


def test_log_probabilities_of_both_kinds_survive_nonsense():
    entries = [{"token": "a", "logprob": None, "top_logprobs": [{"token": "b"}, 3]}, {"token": 5}, "x"]
    found = logprobs_of({"logprobs": {"content": entries}})
    assert [(entry.token, entry.logprob, entry.top) for entry in found] == [
        ("a", -9999.0, (("b", -9999.0),)),
        ("", -9999.0, ()),
    ]
    assert logprobs_of({"logprobs": [1]}) == logprobs_of({}) == ()
    legacy = {"tokens": ["a", "b"], "token_logprobs": [-0.5], "top_logprobs": [{"c": -1}, None]}
    piece = completion_piece(1, {"text": "ab", "logprobs": legacy})
    assert piece == TextPiece(
        1, "ab", (), 2, (TokenLogprob("a", -0.5, (("c", -1.0),), 1), TokenLogprob("b", -9999.0, (), 1))
    )


def test_the_string_that_ended_an_answer_is_known_where_the_upstream_says_it():
    assert stop_string({"stop_reason": "END"}) == stop_string({"stop_reason": 2, "matched_stop": "END"}) == "END"
    assert stop_string({"stop_reason": 151645, "matched_stop": None}) is None


def test_events_decode_as_far_as_they_can_be():
    assert decode_event('{"a": "\\ud83d"}') == [{"a": "\ud83d"}]
    assert decode_event('{"a": 1}\nnonsense\n{"b": NaN}')[0] == {"a": 1}
    assert decode_event("[" * 100_000) == decode_event("7") == decode_event("") == []


@pytest.mark.parametrize(
    ("chunk", "status", "code"),
    [
        ({"error": "out of memory"}, 502, "upstream_error"),
        ({"error": {}}, None, None),
        ({"error": {"code": "rate_limit_exceeded", "status": 429, "message": "slow"}}, 429, "rate_limit_exceeded"),
        ({"error": {"code": "insufficient_quota", "message": "pay"}}, 429, "insufficient_quota"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, 503, "server_is_overloaded"),
        ({"error": {"type": "invalid_request_error", "message": "no"}}, 400, "invalid_value"),
        ({"error": True}, 502, "upstream_error"),
        ({"choices": []}, None, None),
    ],
)
def test_errors_in_a_stream_are_found_in_every_shape(chunk, status, code):
    error = failed_within(chunk)
    assert (error and error.status, error and error.code) == (status, code)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:10 GMT"}, 60.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "1e99"}, 86_400.0),
        ({"retry-after": "inf", "retry-after-ms": "nan"}, None),
        ({}, None),
    ],
)
def test_a_pause_is_read_as_a_number_or_a_date(headers, seconds):
    assert retry_after(headers, 10.0) == seconds
