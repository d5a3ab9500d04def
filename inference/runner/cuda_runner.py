"""Runs StepPlans on a CUDA device without ever waiting for it: decodes on one stream, prefills beside them on another.

Sampled tokens reach the host by an asynchronous copy; only CudaStepHandle.wait waits, for that copy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from tqdm import tqdm

from inference.mask_ledger import MaskJob, MaskMaker
from inference.paged_kv.pool import KVPool
from inference.runner.compile_ahead import AheadCompiler
from inference.runner.cuda_draws import Draws
from inference.runner.cuda_rows import CudaRows, to_device
from inference.runner.cuda_steps import DecodeSteps, Pass, PrefillSteps
from inference.runner.device_masks import DeviceMasks
from inference.runner.kernels.attention import PagedAttention
from inference.runner.kernels.chunks import ChunkAttention
from inference.runner.kernels.linear import MAX_ROWS
from inference.runner.kernels.rows import LONGEST_RUN
from inference.runner.kernels.sampling import BY_HOST
from inference.runner.request_rows import RowSampling
from inference.runner.sampler import draw, gather_logprobs, read_logprobs
from inference.runner.step_buffers import StepBuffers, StepBuffersPool
from inference.runner.step_model import StepModel
from inference.shared_masks import SharedMasks
from inference.step import DECODES, ScheduledRow, StepBounds, StepPlan, StepResult
from inference.types import TokenLogprobs

# Short runs of known tokens go along with the decoding rows, an entry a token. Each entry reads all keys before it, so
# that far into a sequence a prefill is cheaper.
_RUN_KEYS = 32_768
# Up to each of these numbers of rows the products of a step take equally long.
_SIZES = (16, MAX_ROWS)

HostLogprobs = tuple[torch.Tensor, torch.Tensor] | None


@dataclass(frozen=True, slots=True)
class CudaStepHandle:
    """A launched step. at: where among its results each drawn token is; logprobs: likewise, None where not asked for;
    empty where nobody has."""

    buffers: StepBuffers
    pool: StepBuffersPool
    at: list[int]
    logprobs: list[HostLogprobs]

    @property
    def is_done(self) -> bool:
        return self.buffers.is_done

    def wait(self) -> StepResult:
        """Once only: its memory is the next step's then."""
        tokens = self.buffers.wait()
        self.pool.give_back(self.buffers)
        logprobs: list[TokenLogprobs | None] = [
            None if pair is None else read_logprobs(*pair) for pair in self.logprobs
        ]
        return StepResult(tuple([tokens[index] for index in self.at]), tuple(logprobs) or (None,) * len(self.at))


class CudaRunner:
    """Owns the rows, the masks and the passes of both tracks. One caller thread. prefills: see PagedAttention."""

    def __init__(
        self, model: StepModel, pool: KVPool, *, max_rows: int, max_model_len: int,
        prefills: ChunkAttention | None = None,
    ) -> None:  # fmt: skip
        self.bounds = StepBounds(
            prefills_apart=True, sizes=(*(size for size in _SIZES if size < max_rows), max_rows),
            longest_run=LONGEST_RUN, run_keys=_RUN_KEYS, masks_may_be_late=True,
        )  # fmt: skip
        self._pool, self._device = pool, model.embedding.device
        self.rows = CudaRows(max_rows, max_model_len, pool.layout.block_size, self._device)
        self.rows.block_table[self.rows.spare_row] = pool.num_blocks - 1
        self._paged = paged = PagedAttention(
            model.shape, self.rows.block_table, pool.layout.block_size, max_model_len=max_model_len,
            max_batch=max_rows, element_size=pool.keys[0].element_size(), prefills=prefills,
        )  # fmt: skip
        self._masks = DeviceMasks(max_rows + 1, model.num_outputs, self._device)
        self._mask_maker: MaskMaker = self._masks
        self.decodes = DecodeSteps(model, pool, self.rows, paged, self._masks, max_rows)
        self.prefills = PrefillSteps(model, pool, self.rows, paged, self._masks, max_rows)
        self._streams = (self.decodes.stream, self.prefills.stream)
        self._buffers = StepBuffersPool(max(max_rows, self.prefills.most_draws), self.rows.arena)

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> CudaStepHandle:
        """Enqueue the step; never synchronises with the device."""
        stream = self._streams[plan.track]
        with torch.cuda.stream(stream):
            if plan.follows:
                stream.wait_stream(self._streams[1 - plan.track])
            self._copy_blocks(plan.block_copies)
            runs = plan.rows[plan.num_decodes : plan.num_stepped]
            steps = self.decodes if plan.track == DECODES else self.prefills
            entries = self.decodes.entries_of(plan.rows) if plan.track == DECODES else None
            buffers = self._buffers.take()
            self.rows.apply(plan, {row.row: row.start for row in runs}, entries, buffers)
            done = steps.run(plan.rows)
            logprobs = self._draw_special(done, steps.draws) if self.rows.any_of_kind(BY_HOST.value, plan.rows) else []
            buffers.fetch(done.results)
            return CudaStepHandle(buffers, self._buffers, [index for _, at in done.samples for index in at], logprobs)

    @property
    def attention_name(self) -> str:
        """Known once steps are captured."""
        return self._paged.name

    @property
    def mask_counts(self) -> tuple[int, float]:
        """Masks computed so far, and the seconds that they took in all."""
        return self._mask_maker.counts

    def reset_masks(self) -> None:
        """Holders of rows are numbered anew, with a new scheduler; nothing runs."""
        self._mask_maker.reset()

    @property
    def shared_masks(self) -> SharedMasks:
        return self._masks.shared

    def leave_masks_to(self, maker: MaskMaker) -> None:
        """Who writes to `shared_masks` from now on; nothing runs."""
        self._mask_maker = maker

    def post_masks(self, jobs: Sequence[MaskJob]) -> None:
        """Compute masks for the steps that look for them. To be called each step."""
        self._mask_maker.post(jobs)

    def close(self) -> None:
        for stream in self._streams:
            stream.synchronize()
        self._masks.close()
        for part in (self.decodes, self.prefills, self._buffers):
            part.forget()

    @torch.inference_mode()
    def compile(self, batch_sizes: list[int]) -> None:
        """Have the kernels of decodes of these sizes and of prefills ready, which else `capture` and steps wait for.

        Decodes' come first: running prefills may wait for libraries, while others compile.
        """
        self._wait_for_weights()
        with ThreadPoolExecutor(thread_name_prefix="headrace-compiler") as threads:
            compiler = AheadCompiler(self._device, threads)
            with torch.cuda.stream(self.decodes.stream):
                compiler.begin(self.decodes.kinds(batch_sizes))
                compiler.begin(self.prefills.kinds())
                # Where nothing gathers its inputs, a decode takes the first slot for its row's. A pool starts as zeros.
                for cache in (*self._pool.keys, *self._pool.values):
                    cache[0].zero_()
            compiler.wait()
        self.decodes.stream.synchronize()

    @torch.inference_mode()
    def capture(self, batch_sizes: list[int]) -> None:
        """Capture the decode step of each batch size, and prefills of several sizes.

        The spare row stands in for every row meanwhile.
        """
        self._wait_for_weights()
        num_graphs = len(batch_sizes) + len(self.prefills.shapes)
        with tqdm(total=num_graphs, desc="Capturing steps", disable=None) as bar:
            self.prefills.capture(bar.update)
            self.decodes.capture(batch_sizes, bar.update)
        self._buffers.capture(self.decodes.stream, (self.decodes.results, self.prefills.results))
        for stream in self._streams:
            stream.synchronize()

    def _wait_for_weights(self) -> None:
        """They and the rows were made on the current stream."""
        for stream in self._streams:
            stream.wait_stream(torch.cuda.current_stream(self._device))

    def _draw_special(self, done: Pass, draws: Draws) -> list[HostLogprobs]:
        """Rows with penalties, bias or logprobs are drawn here, by torch operations, still without waiting; returns
        what to tell of each token that was drawn."""
        told: list[HostLogprobs] = []
        for row, at in done.samples:
            sampling = self.rows.sampling[row.row]
            assert sampling is not None
            if sampling.is_simple:
                told += [None] * len(at)
                continue
            first = row.start + row.num_tokens - len(at) + 1
            told += [self._draw(row, sampling, done, draws, index, first + i) for i, index in enumerate(at)]
        return told

    def _draw(
        self, row: ScheduledRow, sampling: RowSampling, done: Pass, draws: Draws, index: int, position: int
    ) -> HostLogprobs:
        logits = done.logits[index]
        own = logits.clone() if sampling.params.logprobs is not None else logits
        holder = self.rows.holders[row.row]
        if holder:
            draws.rule_out(logits, row.row, holder, position)
        token = draw(logits, sampling, self.rows.token_ids[row.row, :position], position)
        self.rows.token_ids[row.row, position] = token
        done.results[index] = token
        ids, values = gather_logprobs(own, token, sampling)
        return None if ids is None or values is None else (_to_host(ids), _to_host(values))

    def _copy_blocks(self, copies: tuple[tuple[int, int], ...]) -> None:
        if copies:
            pairs = to_device(np.array(copies, np.int64), self._device)
            self._pool.copy(pairs[:, 0], pairs[:, 1])


def _to_host(values: torch.Tensor) -> torch.Tensor:
    pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return pinned.copy_(values, non_blocking=True)
