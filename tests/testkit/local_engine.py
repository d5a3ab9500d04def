"""An engine in this process, over a real model: for tests that compare tokens and need no process boundary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inference.config import EngineConfig
from inference.engine import Engine
from inference.mask_ledger import TokenMatcher
from inference.new_sequence import SchedulerLimits
from inference.paged_kv.block_pool import BlockPool
from inference.paged_kv.prefix_index import PrefixIndex
from inference.runner.loader import LoadedModel, load
from inference.scheduler import Scheduler
from inference.types import SamplingParams, TokenChunk, TurnRequest


class LocalEngine:
    """Submit turns, run to the end, read `tokens` by turn id (choice 0) or `chunks` by (turn id, choice)."""

    def __init__(
        self, model: LoadedModel, *, max_rows: int, max_step_tokens: int, block_size: int, **limits: Any
    ) -> None:
        self.pool = BlockPool(model.num_blocks, block_size, PrefixIndex())
        limits = {"bounds": model.runner.bounds} | limits
        bounds = SchedulerLimits(max_rows, max_step_tokens, model.max_model_len, model.eos_token_ids, **limits)
        self.engine = Engine(Scheduler(self.pool, bounds), model.runner)
        self.chunks: dict[tuple[str, int], list[TokenChunk]] = defaultdict(list)

    def submit(
        self, turn_id: str, prompt: list[int], *, n: int = 1, matchers: Sequence[TokenMatcher] = (), **params: Any
    ) -> None:
        self.engine.submit(TurnRequest(turn_id, tuple(prompt), SamplingParams(**params), n=n), matchers)

    def step(self) -> list[TokenChunk]:
        chunks = self.engine.step()
        for chunk in chunks:
            self.chunks[chunk.turn_id, chunk.choice].append(chunk)
        return chunks

    def run(self) -> LocalEngine:
        while self.engine.has_work:
            self.step()
        self.pool.check_integrity()
        assert self.pool.num_in_use == 0
        return self

    def tokens(self, turn_id: str, choice: int = 0) -> list[int]:
        return [token for chunk in self.chunks[turn_id, choice] for token in chunk.token_ids]


@contextmanager
def loaded(folder: Path, **options: Any) -> Iterator[LoadedModel]:
    defaults: dict[str, Any] = {"dtype": "fp32", "kv_bytes": 32 << 20, "max_rows": 32}
    model = load(EngineConfig(folder.name, folder, **(defaults | options)))
    try:
        yield model
    finally:
        model.runner.close()


def local_engine(
    model: LoadedModel, *, max_rows: int = 32, max_step_tokens: int = 256, block_size: int = 16, **limits: Any
) -> LocalEngine:
    return LocalEngine(model, max_rows=max_rows, max_step_tokens=max_step_tokens, block_size=block_size, **limits)
