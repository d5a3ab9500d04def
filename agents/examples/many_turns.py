"""Many turns at once over one socket, and how long each took.

Run a server first (`make serve`), then `python agents/examples/many_turns.py [NUMBER]`.
"""

import asyncio
import sys
import time

from headrace import AsyncClient, ContentDelta


async def ask(client: AsyncClient, number: int) -> str:
    start_s = time.perf_counter()
    first_text_s = None
    async with client.stream(f"Write one sentence about the number {number}.", max_tokens=40) as turn:
        async for event in turn:
            if first_text_s is None and isinstance(event, ContentDelta):
                first_text_s = time.perf_counter() - start_s
        message = await turn.final()
    total_s = time.perf_counter() - start_s
    return f"{number:3}  first text {first_text_s or total_s:6.3f} s  end {total_s:6.3f} s  {message.content.strip()!r}"


async def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    async with AsyncClient() as client:
        for finished in asyncio.as_completed([ask(client, number) for number in range(1, count + 1)]):
            print(await finished)


if __name__ == "__main__":
    asyncio.run(main())
