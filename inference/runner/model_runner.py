"""Runs StepPlans: one forward pass and one sampling each, in launch order, without the caller waiting.

`launch` hands the plan to the runner's own thread and returns; the result is awaited on the StepHandle, so the
scheduler plans the next step while this one runs. Sampled tokens go into the rows before the next step reads them:
the host need not have seen them. Knows nothing of scheduling, processes or text.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import torch
from torch import nn

from inference.mask_ledger import MaskJob, MaskMaker
from inference.paged_kv.pool import KVPool
from inference.runner.attention import AttentionBackend
from inference.runner.input_batch import StepInputs, prepare
from inference.runner.masks import HostMasks
from inference.runner.request_rows import RequestRows
from inference.runner.sampler import sample
from inference.step import StepBounds, StepPlan, StepResult

# On few cores a step of so few tokens runs faster on one: its products are too small to be worth waking a second.
_ONE_THREAD_TOKENS, _FEW_THREADS = 16, 4


class StepHandle:
    """A launched step. `wait` blocks until its tokens are on the host; it raises what the step raised."""

    def __init__(self, future: Future[StepResult]) -> None:
        self._future = future

    @property
    def is_done(self) -> bool:
        return self._future.done()

    def wait(self) -> StepResult:
        return self._future.result()


class ModelRunner:
    """Owns the model, the rows and the KV pool. `launch` may be called from one thread at a time."""

    bounds = StepBounds()

    def __init__(
        self, model: nn.Module, pool: KVPool, backend: AttentionBackend[StepInputs], *, max_rows: int,
        max_model_len: int,
    ) -> None:
        self._model = model
        self._pool = pool
        self._backend = backend
        self.attention_name = backend.name
        self._num_threads = torch.get_num_threads()
        self._masks = HostMasks(max_rows, cast(Any, model).config.get_text_config().vocab_size)
        self._rows = RequestRows(max_rows, max_model_len, pool.layout.block_size)
        # One thread: steps run in launch order, and torch keeps one set of OpenMP workers warm.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-runner")

    def launch(self, plan: StepPlan) -> StepHandle:
        return StepHandle(self._thread.submit(self._run, plan))

    @property
    def mask_counts(self) -> tuple[int, float]:
        """Masks computed so far, and the seconds that they took in all."""
        return self._masks.num_computed, self._masks.seconds

    def reset_masks(self) -> None:
        """Holders of rows are numbered anew, with a new scheduler; nothing runs."""
        self._masks.reset()

    shared_masks = None  # no other process writes them

    def leave_masks_to(self, maker: MaskMaker) -> None:
        raise NotImplementedError("the masks of this runner are its own")

    def post_masks(self, jobs: Sequence[MaskJob]) -> None:
        """Compute masks, in the caller's thread, and let the steps that wait for them go on."""
        self._masks.post(jobs)

    def close(self) -> None:
        """Wait for the launched steps and end the thread."""
        self._thread.shutdown()

    @torch.inference_mode()
    def _run(self, plan: StepPlan) -> StepResult:
        alone = plan.num_tokens <= _ONE_THREAD_TOKENS and self._num_threads <= _FEW_THREADS
        torch.set_num_threads(1 if alone else self._num_threads)
        if plan.block_copies:
            source_ids, copy_ids = torch.tensor(plan.block_copies).unbind(1)
            self._pool.copy(source_ids, copy_ids)
        self._rows.apply(plan)
        step = prepare(plan, self._rows, self._pool.layout.block_size)

        # A step that only reads prompts still asks for one position's logits: a model's head cannot take none.
        keep = step.sample_at if step.sample_rows else torch.zeros(1, dtype=torch.int64)
        logits = self._model(
            input_ids=step.input_ids[None], position_ids=step.positions[None], use_cache=False,
            logits_to_keep=keep, paged=step, paged_backend=self._backend,
        ).logits[0]
        if not step.sample_rows:
            return StepResult((), ())

        tokens, logprobs = sample(logits, step.sample_rows, step.sample_positions, self._rows, self._masks)
        self._rows.token_ids[step.sample_rows, step.sample_positions] = tokens
        return StepResult(tuple(tokens.tolist()), tuple(logprobs))
