import pytest

from gateway import errors
from inference.errors import ContextLengthExceeded, EngineUnavailable, InferenceError, InvalidTurn, QueueFull


@pytest.mark.parametrize(
    ("raised", "status", "code", "param", "retry_after_s"),
    [
        (ContextLengthExceeded(3000, 2048), 400, "context_length_exceeded", "messages", None),
        (InvalidTurn("logit_bias", "bad id"), 400, "invalid_value", "logit_bias", None),
        (QueueFull(512, 512, 2.5), 429, "rate_limit_exceeded", None, 2.5),
        (EngineUnavailable("restarting"), 503, "engine_unavailable", None, 1.0),
        (InferenceError("?"), 500, "internal_error", None, None),
        (KeyError("secret"), 500, "internal_error", None, None),
    ],
)
def test_what_the_core_raises_becomes_what_clients_know(raised, status, code, param, retry_after_s):
    error = errors.from_inference(raised)
    assert (error.status, error.code, error.param, error.retry_after_s) == (status, code, param, retry_after_s)


def test_a_gateway_error_stays_what_it_is():
    error = errors.NotFound("nothing here")
    assert errors.from_inference(error) is error


def test_an_unknown_error_tells_the_client_nothing_of_its_words():
    assert "secret" not in errors.from_inference(KeyError("secret")).message


def test_a_prompt_too_long_has_both_numbers_and_both_phrases_that_clients_look_for():
    message = errors.from_inference(ContextLengthExceeded(3000, 2048)).message
    assert "3000" in message
    assert "maximum context length is 2048 tokens" in message
    assert "exceeds the context window" in message


def test_retry_after_is_whole_seconds_and_the_exact_milliseconds():
    error = errors.TooManyTurns("full", retry_after_s=1.25)
    assert error.headers() == {"retry-after": "2", "retry-after-ms": "1250", "x-should-retry": "true"}
    assert errors.NotFound("x").headers() == {"x-should-retry": "false"}


@pytest.mark.parametrize(
    ("error", "should_retry"),
    [
        (errors.InvalidRequest("n", "wrong"), False),
        (errors.InvalidApiKey("no"), False),
        (errors.MethodNotAllowed("PUT", "/", ("GET",)), False),
        (errors.Conflict("in use"), False),
        (errors.Conflict("in use", retry_after_s=1), True),
        (errors.RequestTooLarge("large"), False),
        (errors.TooManyTurns("full", retry_after_s=1), True),
        (errors.QuotaExceeded("spent"), False),
        (errors.InternalError("oops"), True),
        (errors.NotAvailable("not here"), False),
        (errors.UpstreamFailed("broken"), True),
        (errors.UpstreamMisconfigured("refused"), False),
        (errors.EngineDown("down", retry_after_s=1), True),
    ],
)
def test_every_error_says_whether_trying_again_helps(error, should_retry):
    assert error.headers()["x-should-retry"] == str(should_retry).lower()
    assert ("retry-after" in error.headers()) == (error.retry_after_s is not None)


def test_the_body_has_openais_four_fields():
    error = errors.InvalidRequest("n", "n is wrong.")
    assert error.body() == {
        "message": "n is wrong.",
        "type": "invalid_request_error",
        "param": "n",
        "code": "invalid_value",
    }


def test_headers_that_the_status_calls_for():
    assert errors.MethodNotAllowed("PUT", "/v1/models", ("GET",)).headers()["allow"] == "GET"
    assert errors.InvalidApiKey("no").headers()["www-authenticate"] == "Bearer"
    assert errors.WebSocketOff("off").headers()["upgrade"] == "websocket"


def test_an_unknown_model_names_what_is_served():
    assert "'a', 'b'" in errors.ModelNotFound("c", ("a", "b")).message
