"""The loop of an agent: a turn, the tools it calls, the next turn, until the model calls nothing; knows no transport.

A tool starts the moment its call is whole (`ToolCallEnd`), while the model still writes the next one, and all calls of
a turn run at once. The results go back in the order of the calls, whichever ended first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias, Unpack

from headrace.client import AsyncClient
from headrace.errors import MaxTurnsExceeded
from headrace.events import Event, ToolCallEnd, Usage
from headrace.message import Message, MessageBuilder, ToolCall
from headrace.request import Messages, Sampling, ToolChoice, chat_messages
from headrace.tools import Tool, ToolOutput

DEFAULT_MAX_TURNS = 10
_MAX_TOOL_THREADS = 64
_NOT_RUN = "Error: not run, "

ToolFunction: TypeAlias = "Tool[..., Any] | Callable[..., Any]"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool answered; `content` is what the model is told. Results come as tools end, also amid a turn's events."""

    index: int
    call_id: str
    name: str
    content: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class AgentResult:
    """How a run ended. `message` is the model's last; `messages` the whole conversation, to go on from.

    `usage` adds up all turns, as far as the server told them.
    """

    message: Message
    messages: list[dict[str, object]]
    num_turns: int
    usage: Usage

    @property
    def content(self) -> str:
        return self.message.content


@dataclass(frozen=True, slots=True)
class AgentDone:
    """The run ended; always the last event."""

    result: AgentResult


AgentEvent: TypeAlias = Event | ToolResult | AgentDone


class Agent:
    """A model with tools: `await Agent(client, [weather]).run("What is it like in Oslo?")`.

    - `tools`: made with `@tool`, or typed functions as they are. Two of one name raise ValueError.
    - `system`: put before every conversation that has no system message.
    - `max_turns`: how often the model may be asked in one run. If it still calls tools in the last of these turns, they
      are not run and the run raises MaxTurnsExceeded, which carries the conversation.
    - `tool_choice` holds for the first turn of a run only: "required" would never let it end.
    - `model`, `lane` and the sampling fields go to every turn.

    The model is told, as the call's result, of whatever keeps a call from a good end: a tool that raises, arguments
    that do not fit, a tool that does not exist, a call that came out "invalid" or "truncated" (never executed).
    An agent holds no conversation and may run any number at once.
    """

    def __init__(
        self,
        client: AsyncClient,
        tools: Sequence[ToolFunction] = (),
        *,
        system: str | None = None,
        model: str | None = None,
        max_turns: int = DEFAULT_MAX_TURNS,
        tool_choice: ToolChoice | None = None,
        lane: str | None = None,
        **sampling: Unpack[Sampling],
    ) -> None:
        if not isinstance(client, AsyncClient):
            raise TypeError(f"Agent needs an AsyncClient, got {type(client).__name__}; SyncAgent takes a Client")
        if max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, got {max_turns}")
        self._client = client
        self._tools: dict[str, Tool[..., Any]] = {}
        for offered in tools:
            made = offered if isinstance(offered, Tool) else Tool(offered)
            if made.name in self._tools:
                raise ValueError(f"two tools are called {made.name!r}")
            self._tools[made.name] = made
        self._system = system
        self._model = model
        self._max_turns = max_turns
        self._tool_choice = tool_choice
        self._lane = lane
        self._sampling = sampling

    async def run(self, prompt: Messages) -> AgentResult:
        """Run to the end. Raises MaxTurnsExceeded, and what turns raise. Cancelling it cancels its turn and tools."""
        async with contextlib.aclosing(self.run_stream(prompt)) as events:
            async for event in events:
                if isinstance(event, AgentDone):
                    return event.result
        raise AssertionError("a run ended without AgentDone")

    async def run_stream(self, prompt: Messages) -> AsyncGenerator[AgentEvent, None]:
        """The events of all turns in order, with a ToolResult for each call, and AgentDone last. Raises as `run` does.

        The run goes on while its reader is busy elsewhere. Closing the generator cancels it: use `contextlib.aclosing`
        where you may leave it early.
        """
        inbox: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        run = asyncio.create_task(self._run(prompt, inbox), name="headrace: run an agent")
        run.add_done_callback(lambda _: inbox.put_nowait(None))
        try:
            while (event := await inbox.get()) is not None:
                yield event
            await run
        finally:
            run.cancel()
            # Not `await run`: what a run that was left behind ended with is of no interest to anyone.
            await asyncio.gather(run, return_exceptions=True)

    async def _run(self, prompt: Messages, inbox: asyncio.Queue[AgentEvent | None]) -> None:
        messages = chat_messages(prompt)
        if self._system is not None and not any(message.get("role") == "system" for message in messages):
            messages.insert(0, {"role": "system", "content": self._system})
        usage = Usage()
        threads = ThreadPoolExecutor(_MAX_TOOL_THREADS, thread_name_prefix="headrace-tool")
        try:
            for turn_number in range(1, self._max_turns + 1):
                calls = _TurnCalls(self._tools, threads, inbox, may_run=turn_number < self._max_turns)
                message = await self._turn(messages, calls, inbox, is_first=turn_number == 1)
                messages += [message.to_chat(), *await calls.results(message)]
                usage += message.usage or Usage()
                if not message.tool_calls or message.finish_reason == "cancelled":
                    inbox.put_nowait(AgentDone(AgentResult(message, messages, turn_number, usage)))
                    return
            raise MaxTurnsExceeded(self._max_turns, messages)
        finally:
            # Not waited for: a plain function that was left behind can't be stopped.
            threads.shutdown(wait=False, cancel_futures=True)

    async def _turn(
        self,
        messages: list[dict[str, object]],
        calls: _TurnCalls,
        inbox: asyncio.Queue[AgentEvent | None],
        *,
        is_first: bool,
    ) -> Message:
        try:
            async with self._client.stream(
                messages,
                model=self._model,
                tools=list(self._tools.values()),
                tool_choice=self._tool_choice if is_first else None,
                lane=self._lane,
                **self._sampling,
            ) as turn:
                async for event in turn:
                    inbox.put_nowait(event)
                    calls.add(event)
                return await turn.final()
        except BaseException:
            await calls.abandon()
            raise


class _TurnCalls:
    """The calls of one turn: started as they end, awaited together."""

    def __init__(
        self,
        tools: dict[str, Tool[..., Any]],
        threads: ThreadPoolExecutor,
        inbox: asyncio.Queue[AgentEvent | None],
        *,
        may_run: bool,
    ) -> None:
        self._tools = tools
        self._threads = threads
        self._inbox = inbox
        self._may_run = may_run
        self._so_far = MessageBuilder()
        self._tasks: dict[int, asyncio.Task[ToolOutput]] = {}

    def add(self, event: Event) -> None:
        self._so_far.add(event)
        if isinstance(event, ToolCallEnd):
            call = self._so_far.call(event.index)
            self._tasks[event.index] = asyncio.create_task(self._answer(call), name=f"headrace: tool {call.name}")

    async def results(self, message: Message) -> list[dict[str, object]]:
        """Entries of the chat format, one a call, in the order of the calls. Cancelled, it cancels the tools."""
        if message.finish_reason == "cancelled":
            await self.abandon()
        try:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        except asyncio.CancelledError:
            await self.abandon()
            raise
        return [
            {"role": "tool", "tool_call_id": call.id, "content": self._content(call)} for call in message.tool_calls
        ]

    async def abandon(self) -> None:
        """Cancel the tools that run."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _content(self, call: ToolCall) -> str:
        task = self._tasks.get(call.index)
        if task is None or task.cancelled():
            return f"{_NOT_RUN}the turn was cancelled"
        return task.result().content

    async def _answer(self, call: ToolCall) -> ToolOutput:
        output = await self._output(call)
        self._inbox.put_nowait(ToolResult(call.index, call.id, call.name, output.content, output.is_error))
        return output

    async def _output(self, call: ToolCall) -> ToolOutput:
        if call.outcome in ("invalid", "truncated"):
            why = call.reason or "the arguments are no JSON object that fits the schema"
            return ToolOutput(f"{_NOT_RUN}the call is {call.outcome}: {why}", is_error=True)
        if not self._may_run:
            return ToolOutput(f"{_NOT_RUN}the limit of turns is reached", is_error=True)
        if (known := self._tools.get(call.name)) is None:
            names = ", ".join(self._tools) or "none"
            return ToolOutput(f"Error: there is no tool {call.name!r}; there are: {names}", is_error=True)
        return await known.invoke(call.arguments, self._threads)
