"""The asynchronous client. All its methods belong to one event loop."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Unpack

from headrace.config import TransportName, client_config
from headrace.errors import HeadraceError, ProtocolError
from headrace.http_requests import fetch_json, http_client
from headrace.message import Message
from headrace.request import Messages, Sampling, ToolChoice, ToolLike, turn_request
from headrace.sse_transport import SSETransport
from headrace.turn import Turn
from headrace.turn_source import Transport
from headrace.websocket_transport import WebSocketTransport

DEFAULT_CONNECT_TIMEOUT_S = 10.0
DEFAULT_IDLE_TIMEOUT_S = 600.0
DEFAULT_RESUME_TIMEOUT_S = 10.0


class AsyncClient:
    """Talks to one server; connects when the first turn needs it.

    - `url`: the server, with or without `/v1`; default `HEADRACE_URL`, else http://127.0.0.1:8000.
    - `api_key`: default `HEADRACE_API_KEY`.
    - `model`: for turns that name none; default: the server's first.
    - `transport`: "websocket" carries all turns over one socket; "sse" takes a request a turn and passes any proxy.
    - `connect_timeout_s`, `idle_timeout_s`: seconds to wait for a connection, and for a turn's next event.
    - `resume_timeout_s`: when the socket is lost, seconds to try to go on with its turns on a new one; 0 = not at all.

    Any number of turns may run at once. Close it with `aclose` or use it in `async with`; turns that still run then
    raise ConnectionLost.

        async with AsyncClient() as client, client.stream("Hello") as turn:
            async for event in turn:
                print(event)
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        model: str | None = None,
        transport: TransportName = "websocket",
        connect_timeout_s: float | None = DEFAULT_CONNECT_TIMEOUT_S,
        idle_timeout_s: float | None = DEFAULT_IDLE_TIMEOUT_S,
        resume_timeout_s: float = DEFAULT_RESUME_TIMEOUT_S,
    ) -> None:
        config = client_config(
            url,
            api_key,
            connect_timeout_s=connect_timeout_s,
            idle_timeout_s=idle_timeout_s,
            resume_timeout_s=resume_timeout_s,
        )
        self.url = config.http_url
        self._model = model
        self._idle_timeout_s = idle_timeout_s
        self._first_model: str | None = None
        self._http = http_client(config)
        self._transport: Transport
        match transport:
            case "websocket":
                self._transport = WebSocketTransport(config)
            case "sse":
                self._transport = SSETransport(self._http, self._find_first_model, idle_timeout_s)
            case _:
                raise ValueError(f'transport must be "websocket" or "sse", got {transport!r}')

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all turns and close every connection. Idempotent."""
        await self._transport.aclose()
        await self._http.aclose()

    def stream(
        self,
        messages: Messages,
        *,
        model: str | None = None,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: ToolChoice | None = None,
        lane: str | None = None,
        credit: int | None = None,
        **sampling: Unpack[Sampling],
    ) -> Turn:
        """A turn, to be started with `async with`. `messages`: a prompt, or chat messages and `Message`s.

        `lane`: turns of one lane run in order; without one they run at once (WebSocket only). `credit`: at most this
        many characters of text come before they are read here (WebSocket only), so that a turn that is read slowly
        waits on the server. The `sampling` fields are those of chat completions. Raises TypeError for a field that
        does not exist; the server judges the values.
        """
        request = turn_request(
            messages,
            model=model or self._model,
            tools=tools,
            tool_choice=tool_choice,
            lane=lane,
            sampling=sampling,
            credit=credit,
        )
        return Turn(lambda: self._transport.open_turn(request))

    async def complete(
        self,
        messages: Messages,
        *,
        model: str | None = None,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: ToolChoice | None = None,
        lane: str | None = None,
        **sampling: Unpack[Sampling],
    ) -> Message:
        """Run a turn to its end and return its message; arguments as for `stream`. A cancellation cancels the turn."""
        async with self.stream(
            messages, model=model, tools=tools, tool_choice=tool_choice, lane=lane, **sampling
        ) as turn:
            return await turn.final()

    async def models(self) -> list[str]:
        """The names of the models that the server offers, the default one first."""
        listing = await fetch_json(self._http, "/v1/models", timeout_s=self._idle_timeout_s)
        try:
            return [str(model["id"]) for model in listing["data"]]  # type: ignore[index]
        except (TypeError, KeyError) as error:
            raise ProtocolError("/v1/models answered with no list of models") from error

    async def _find_first_model(self) -> str:
        if self._first_model is None:
            models = await self.models()
            if not models:
                raise HeadraceError("the server offers no model", code="model_not_found")
            self._first_model = models[0]
        return self._first_model
