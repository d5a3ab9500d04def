"""Python SDK of Headrace: streamed turns with typed events, tools from typed functions, agents.

    async with AsyncClient("http://127.0.0.1:8000") as client, client.stream("Hello") as turn:
        async for event in turn:
            ...

`Client` and `SyncAgent` are the same for code without asyncio. Whatever goes wrong is a `HeadraceError`.
"""

from headrace.agent import Agent, AgentDone, AgentEvent, AgentResult, ToolResult
from headrace.client import AsyncClient
from headrace.errors import (
    APIError,
    AuthenticationError,
    ConnectionFailed,
    ConnectionLost,
    HeadraceError,
    IdleTimeout,
    InvalidRequestError,
    MaxTurnsExceeded,
    NotFoundError,
    ProtocolError,
    RateLimitError,
    ServerError,
    ToolDefinitionError,
    ToolError,
)
from headrace.events import (
    ContentDelta,
    Event,
    FinishReason,
    Outcome,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    TurnDone,
    TurnStarted,
    Usage,
)
from headrace.message import Message, ToolCall
from headrace.sync_agent import SyncAgent
from headrace.sync_client import Client, SyncTurn
from headrace.tools import Tool, ToolOutput, tool
from headrace.turn import Turn

__version__ = "0.1.0"

__all__ = [
    "APIError",
    "Agent",
    "AgentDone",
    "AgentEvent",
    "AgentResult",
    "AsyncClient",
    "AuthenticationError",
    "Client",
    "ConnectionFailed",
    "ConnectionLost",
    "ContentDelta",
    "Event",
    "FinishReason",
    "HeadraceError",
    "IdleTimeout",
    "InvalidRequestError",
    "MaxTurnsExceeded",
    "Message",
    "NotFoundError",
    "Outcome",
    "ProtocolError",
    "RateLimitError",
    "ReasoningDelta",
    "ServerError",
    "SyncAgent",
    "SyncTurn",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolDefinitionError",
    "ToolError",
    "ToolOutput",
    "ToolResult",
    "Turn",
    "TurnDone",
    "TurnStarted",
    "Usage",
    "tool",
]
