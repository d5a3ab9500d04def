"""One turn, event by event.

Run a server first (`make serve`), then `python agents/examples/stream_events.py [PROMPT]`.
"""

import asyncio
import sys

from headrace import AsyncClient, ContentDelta, ReasoningDelta, ToolCallDelta, ToolCallEnd, ToolCallStart, TurnDone


async def main() -> None:
    prompt = " ".join(sys.argv[1:]) or "Why is the sky blue? Answer in two sentences."
    async with AsyncClient() as client, client.stream(prompt, max_tokens=200) as turn:
        async for event in turn:
            match event:
                case ContentDelta(text=text) | ReasoningDelta(text=text):
                    print(text, end="", flush=True)
                case ToolCallStart() | ToolCallDelta() | ToolCallEnd():
                    print(event)
                case TurnDone(finish_reason=reason, usage=usage):
                    print(f"\n--- {reason}, {usage}")


if __name__ == "__main__":
    asyncio.run(main())
