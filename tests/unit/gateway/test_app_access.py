"""Keys, origins, limits and readiness, each over a server of its own."""

import json

import httpx
import pytest
import websockets
from websockets.asyncio.client import connect

from gateway.scripted import ScriptLine
from inference.errors import ContextLengthExceeded, EngineUnavailable, QueueFull
from tests.testkit.gateway_kit import FakeEngine, chat_body, model_backend, running_gateway, scripted

HELLO = ScriptLine("Hello.", repeat=True)


async def test_nothing_but_health_answers_without_a_key():
    async with running_gateway(scripted(HELLO), api_keys=("one", "two")) as gateway, httpx.AsyncClient() as http:
        for method, path in (
            ("GET", "/v1/models"),
            ("GET", "/metrics"),
            ("GET", "/ready"),
            ("GET", "/version"),
            ("GET", "/nope"),
            ("POST", "/v1/chat/completions"),
            ("POST", "/tokenize"),
        ):
            response = await http.request(method, gateway.url + path, headers={"authorization": "Bearer wrong"})
            assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
            assert response.headers["www-authenticate"] == "Bearer"
        assert (await http.get(gateway.url + "/health")).status_code == 200
        for key in ("one", "two"):
            headers = {"authorization": f"Bearer {key}"}
            assert (await http.get(gateway.url + "/v1/models", headers=headers)).status_code == 200


async def test_a_websocket_without_a_key_is_refused_before_the_upgrade():
    async with running_gateway(scripted(HELLO), api_keys=("one",)) as gateway:
        with pytest.raises(websockets.exceptions.InvalidStatus) as caught:
            await connect(gateway.ws_url)
        assert caught.value.response.status_code == 401
        assert b"invalid_api_key" in caught.value.response.body
        async with connect(gateway.ws_url, additional_headers={"authorization": "Bearer one"}) as socket:
            assert "hello" in await socket.recv()


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("/v1/stream", {}, 401),
        ("/v1/responses", {}, 401),
        ("/v1/stream", {"authorization": "Bearer one", "origin": "https://evil.example"}, 403),
        ("/v1/nothing", {"authorization": "Bearer one"}, 404),
        ("/v1/responses", {"authorization": "Bearer one"}, 426),
    ],
)
async def test_a_refused_handshake_is_a_whole_answer_and_no_error_of_ours(path, options, status, caplog):
    async with running_gateway(scripted(HELLO), api_keys=("one",), serves_responses_socket=False) as gateway:
        url = f"ws://127.0.0.1:{gateway.port}{path}"
        for request_id in ("mine", None):
            headers = options if request_id is None else {**options, "x-request-id": request_id}
            with pytest.raises(websockets.exceptions.InvalidStatus) as caught:
                await connect(url, additional_headers=headers, proxy=None)
            answer = caught.value.response
            assert answer.status_code == status
            assert json.loads(answer.body)["error"]["code"]
            assert (answer.headers["x-request-id"] == request_id) == (request_id is not None)
            assert answer.headers["x-should-retry"] == "false"
            assert answer.headers.get("upgrade") == ("websocket" if status == 426 else None)
        await gateway.settled()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_preflight_says_nothing_of_a_body():
    async with running_gateway(scripted(HELLO), allowed_origins=("*",)) as gateway, httpx.AsyncClient() as http:
        headers = {"origin": "https://chat.example", "access-control-request-method": "POST"}
        answer = await http.options(gateway.url + "/v1/responses", headers=headers)
        assert (answer.status_code, answer.content) == (204, b"")
        assert not {"content-length", "content-type", "transfer-encoding"} & answer.headers.keys()
        assert "x-should-retry" in answer.headers["access-control-expose-headers"]


async def test_a_page_from_elsewhere_may_not_open_a_websocket_unless_it_is_allowed():
    async with running_gateway(scripted(HELLO), allowed_origins=("https://chat.example",)) as gateway:
        with pytest.raises(websockets.exceptions.InvalidStatus) as caught:
            await connect(gateway.ws_url, origin="https://evil.example")
        assert caught.value.response.status_code == 403
        async with connect(gateway.ws_url, origin="https://chat.example"):
            pass
        async with connect(gateway.ws_url, origin=gateway.url):
            pass


async def test_a_websocket_elsewhere_is_not_found():
    async with running_gateway(scripted(HELLO)) as gateway:
        with pytest.raises(websockets.exceptions.InvalidStatus) as caught:
            await connect(gateway.ws_url + "s")
        assert caught.value.response.status_code == 404


async def test_an_allowed_page_gets_the_headers_its_browser_asks_for_and_others_none():
    async with (
        running_gateway(scripted(HELLO), allowed_origins=("https://chat.example",), api_keys=("k",)) as gateway,
        httpx.AsyncClient(base_url=gateway.url) as http,
    ):
        wanted = {"access-control-request-headers": "authorization, x-mine"}
        preflight = await http.options("/v1/chat/completions", headers={"origin": "https://chat.example", **wanted})
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == "https://chat.example"
        assert preflight.headers["access-control-allow-headers"] == "authorization, x-mine"
        other = await http.options("/v1/chat/completions", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


async def test_an_engine_that_is_not_ready_is_a_503_with_retry_after_everywhere():
    engine = FakeEngine()
    engine.state = "starting"
    async with running_gateway(model_backend(engine)) as gateway, httpx.AsyncClient(base_url=gateway.url) as http:
        assert (await http.get("/health")).status_code == 200
        for stream in (False, True):
            response = await http.post("/v1/chat/completions", json=chat_body(stream=stream))
            assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_unavailable")
            assert response.headers["retry-after"] == "1"
        assert (await http.get("/ready")).status_code == 503
        engine.state = "ready"
        assert (await http.get("/ready")).status_code == 200


@pytest.mark.parametrize(
    ("refusal", "status", "code", "retry_after"),
    [
        (QueueFull(512, 512, 2.0), 429, "rate_limit_exceeded", "2"),
        (ContextLengthExceeded(2000, 1000), 400, "context_length_exceeded", None),
        (EngineUnavailable("restarting"), 503, "engine_unavailable", "1"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_engine_refuses_is_a_real_http_error(refusal, status, code, retry_after, stream):
    engine = FakeEngine()
    engine.refusal = refusal
    async with running_gateway(model_backend(engine)) as gateway, httpx.AsyncClient(base_url=gateway.url) as http:
        response = await http.post("/v1/chat/completions", json=chat_body(stream=stream))
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)
        assert response.headers.get("retry-after") == retry_after


async def test_completions_call_the_field_prompt_when_it_is_too_long():
    engine = FakeEngine()
    engine.refusal = ContextLengthExceeded(2000, 1000)
    async with running_gateway(model_backend(engine)) as gateway, httpx.AsyncClient(base_url=gateway.url) as http:
        error = (await http.post("/v1/completions", json={"prompt": "a"})).json()["error"]
        assert (error["param"], error["code"]) == ("prompt", "context_length_exceeded")


async def test_turns_above_the_limit_get_429_and_the_limits_name():
    engine = FakeEngine()
    async with (
        running_gateway(model_backend(engine), max_live_turns=1) as gateway,
        httpx.AsyncClient(base_url=gateway.url) as http,
    ):
        async with http.stream("POST", "/v1/chat/completions", json=chat_body(stream=True)) as first:
            assert first.status_code == 200
            second = await http.post("/v1/chat/completions", json=chat_body())
            assert second.status_code == 429
            assert "--max-turns" in second.json()["error"]["message"]
            assert second.headers["retry-after"] == "1"
        await gateway.settled()


async def test_a_bug_of_ours_is_a_500_without_its_details_which_the_log_has(caplog):
    class BrokenEngine(FakeEngine):
        def submit(self, request):
            raise RuntimeError("secret detail")

    async with (
        running_gateway(model_backend(BrokenEngine())) as gateway,
        httpx.AsyncClient(base_url=gateway.url) as http,
    ):
        response = await http.post("/v1/chat/completions", json=chat_body())
        assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
        assert "secret" not in response.text
        assert "secret detail" in caplog.text
