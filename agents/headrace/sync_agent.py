"""The agent for plain, blocking code."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Unpack

from headrace.agent import DEFAULT_MAX_TURNS, Agent, AgentEvent, AgentResult, ToolFunction
from headrace.request import Messages, Sampling, ToolChoice
from headrace.sync_client import Client


class SyncAgent:
    """As `Agent`, on a `Client`: `SyncAgent(client, [weather]).run("What is it like in Oslo?")`.

    Tools, plain and async, run on the client's own threads, never on the caller's.
    """

    def __init__(
        self,
        client: Client,
        tools: Sequence[ToolFunction] = (),
        *,
        system: str | None = None,
        model: str | None = None,
        max_turns: int = DEFAULT_MAX_TURNS,
        tool_choice: ToolChoice | None = None,
        lane: str | None = None,
        **sampling: Unpack[Sampling],
    ) -> None:
        if not isinstance(client, Client):
            raise TypeError(f"SyncAgent needs a Client, got {type(client).__name__}; Agent takes an AsyncClient")
        self._loop = client.loop
        self._agent = Agent(
            client.async_client,
            tools,
            system=system,
            model=model,
            max_turns=max_turns,
            tool_choice=tool_choice,
            lane=lane,
            **sampling,
        )

    def run(self, prompt: Messages) -> AgentResult:
        """As `Agent.run`; Ctrl-C cancels the turn and its tools."""
        return self._loop.run(self._agent.run(prompt))

    def run_stream(self, prompt: Messages) -> Generator[AgentEvent, None, None]:
        """As `Agent.run_stream`; use `contextlib.closing` where you may leave it early."""
        return self._loop.iterate(self._agent.run_stream(prompt))
