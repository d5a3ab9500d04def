"""Runs StepPlans on a CUDA device without ever waiting for it.

A decode step is one CUDA graph replay: gather inputs from the rows, forward, sample, write tokens and lengths back.
Steps with prefill are replayed too where a captured number of tokens fits, and launched kernel by kernel otherwise.
Sampled tokens reach the host by an asynchronous copy; only CudaStepHandle.wait waits, for that copy alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from tqdm import tqdm

from inference.paged_kv.pool import KVPool
from inference.runner.cuda_inputs import PackedInputs, PackedShape
from inference.runner.cuda_model import DeviceModel
from inference.runner.cuda_rows import CudaRows, to_device
from inference.runner.kernels.attention import PagedAttention
from inference.runner.kernels.rows import gather_decode
from inference.runner.kernels.sampling import Sampling
from inference.runner.sampler import draw, gather_logprobs, read_logprobs
from inference.step import ScheduledRow, StepPlan, StepResult
from inference.types import TokenLogprobs

# Packed steps of at most so many rows are captured, for these numbers of tokens.
_PACKED_ROWS = 32
_PACKED_TOKENS = (64, 128, 256, 512)

Logprobs = list[tuple[torch.Tensor, torch.Tensor] | None]


@dataclass(frozen=True, slots=True)
class CudaStepHandle:
    """A launched step. `logprobs`: pinned host copies in the order of the sampled rows, None where not asked for."""

    tokens: torch.Tensor
    logprobs: Logprobs
    done: torch.cuda.Event

    def wait(self) -> StepResult:
        self.done.synchronize()
        logprobs: list[TokenLogprobs | None] = [
            None if pair is None else read_logprobs(*pair) for pair in self.logprobs
        ]
        return StepResult(tuple(self.tokens.tolist()), tuple(logprobs))


@dataclass(frozen=True, slots=True)
class _PackedGraph:
    graph: torch.cuda.CUDAGraph
    inputs: PackedInputs
    logits: torch.Tensor


class CudaRunner:
    """Owns the rows, the scratch and the graphs. One caller thread, one stream.

    The pool's last block is no row's: the spare row, which fills a batch up to a captured size, reads and writes it.
    """

    attention_name = "triton"

    def __init__(
        self, model: DeviceModel, pool: KVPool, cos_sin: torch.Tensor, *, max_rows: int, max_model_len: int
    ) -> None:
        self._model, self._pool = model, pool
        self._device = model.embedding.device
        self._stream = torch.cuda.Stream(self._device)
        self.rows = rows = CudaRows(max_rows, max_model_len, pool.layout.block_size, self._device)
        rows.block_table[rows.spare_row] = pool.num_blocks - 1
        self._paged = PagedAttention(
            model.shape, rows.block_table, pool.layout.block_size, cos_sin, max_batch=max_rows
        )
        self._sampling = Sampling(
            rows.token_ids, rows.lengths, rows.temperatures, rows.noise_keys, rows.skips,
            model.head.small.num_outputs, max_batch=max(max_rows, _PACKED_ROWS), spare_row=rows.spare_row,
        )  # fmt: skip
        self._scratch = model.scratch(max_rows)
        self._row_ids = torch.full((max_rows,), rows.spare_row, dtype=torch.int32, device=self._device)
        self._results = torch.zeros(max(max_rows, _PACKED_ROWS), dtype=torch.int32, device=self._device)
        self._batch: tuple[int, ...] = ()
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._packed_graphs: dict[PackedShape, _PackedGraph] = {}

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> CudaStepHandle:
        """Enqueue the step; never synchronises with the device."""
        with torch.cuda.stream(self._stream):
            self._copy_blocks(plan.block_copies)
            self.rows.apply(plan)
            size = next((size for size in self._graphs if size >= plan.num_decodes), None)
            if plan.num_decodes == len(plan.rows) and size is not None:
                logits = self._replay_decode(plan.rows, size)
            else:
                logits = self._run_packed(plan)
            sampled = [row for row in plan.rows if row.samples]
            return self._handle(len(sampled), self._sample_specially(sampled, logits))

    def close(self) -> None:
        self._stream.synchronize()
        self._graphs.clear()
        self._packed_graphs.clear()

    @torch.inference_mode()
    def capture(self, batch_sizes: list[int]) -> None:
        """Capture the decode step of each batch size, and packed steps, largest first so that graphs share memory.

        The spare row stands in for every row meanwhile.
        """
        pool = torch.cuda.graph_pool_handle()
        shapes = [PackedShape(count, _PACKED_ROWS) for count in _PACKED_TOKENS]
        with torch.cuda.stream(self._stream), tqdm(
            total=len(batch_sizes) + len(shapes), desc="Capturing steps", disable=None
        ) as bar:
            for shape in reversed(shapes):
                self._packed_graphs[shape] = self._captured_packed(shape, pool)
                bar.update()
            for batch in sorted(batch_sizes, reverse=True):
                self._graphs[batch] = self._captured(lambda batch=batch: self._decode(batch), pool)
                bar.update()
        self._graphs = dict(sorted(self._graphs.items()))
        self._packed_graphs = dict(sorted(self._packed_graphs.items()))
        self._stream.synchronize()

    def _captured(self, run, pool) -> torch.cuda.CUDAGraph:  # type: ignore[no-untyped-def]
        run()  # compiles what it needs
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=self._stream):
            run()
        return graph

    def _captured_packed(self, shape: PackedShape, pool: object) -> _PackedGraph:
        inputs = PackedInputs.on(self._device, shape)
        inputs.load(shape.pack((), self.rows.spare_row))
        kept: list[torch.Tensor] = []

        def run() -> None:
            kept[:] = [self._packed(inputs)]

        graph = self._captured(run, pool)
        return _PackedGraph(graph, inputs, kept[0])

    def _decode(self, batch: int) -> None:
        """The whole step of the rows in _row_ids[:batch]."""
        row_ids, scratch, rows = self._row_ids[:batch], self._scratch, self.rows
        positions = scratch.positions[:batch]
        gather_decode(
            row_ids, rows.token_ids, rows.lengths, self._model.embedding, scratch.hidden[:batch], positions,
            scratch.squares,
        )  # fmt: skip
        logits = self._model.decode(scratch, row_ids, self._paged)
        self._sampling(logits, row_ids, positions, self._results[:batch])

    def _replay_decode(self, scheduled: tuple[ScheduledRow, ...], size: int) -> torch.Tensor:
        batch = tuple([row.row for row in scheduled]) + (self.rows.spare_row,) * (size - len(scheduled))
        if batch != self._batch:
            self._row_ids[:size].copy_(to_device(np.array(batch, np.int32), self._device))
            self._batch = batch
        self._graphs[size].replay()
        return self._scratch.logits[: len(scheduled)]

    def _packed(self, inputs: PackedInputs) -> torch.Tensor:
        """A step of any rows. Positions are the host's; tokens are read from the rows, where they may be news."""
        rows, block_size = self.rows, self._pool.layout.block_size
        token_ids = rows.token_ids[inputs.token_rows, inputs.positions]
        blocks = rows.block_table[inputs.token_rows, inputs.positions // block_size]
        slots = (blocks * block_size + inputs.positions % block_size).to(torch.int32)
        logits = self._model.prefill(
            token_ids, slots, inputs.positions, inputs.tiles, inputs.sample_at.long(), self._paged
        )
        num_sampled = inputs.sample_rows.shape[0]
        if num_sampled:
            self._sampling(logits, inputs.sample_rows, inputs.sample_positions, self._results[:num_sampled])
        return logits

    def _run_packed(self, plan: StepPlan) -> torch.Tensor:
        found = next((shape for shape in self._packed_graphs if shape.fits(plan.rows)), None)
        if found is None:
            inputs = PackedInputs.on(self._device, PackedShape.of(plan.rows))
            inputs.load(inputs.shape.pack(plan.rows, self.rows.spare_row))
            return self._packed(inputs)
        captured = self._packed_graphs[found]
        captured.inputs.load(found.pack(plan.rows, self.rows.spare_row))
        captured.graph.replay()
        return captured.logits

    def _sample_specially(self, sampled: list[ScheduledRow], logits: torch.Tensor) -> Logprobs:
        """Rows with penalties, bias, filters or logprobs: torch operations, still without waiting."""
        logprobs: Logprobs = []
        for index, row in enumerate(sampled):
            sampling = self.rows.sampling[row.row]
            assert sampling is not None
            if sampling.is_plain:
                logprobs.append(None)
                continue
            position = row.start + row.num_tokens
            token = draw(logits[index], sampling, self.rows.token_ids[row.row, :position], position)
            self.rows.token_ids[row.row, position] = token
            self._results[index] = token
            ids, values = gather_logprobs(logits[index], token, sampling)
            logprobs.append(None if ids is None or values is None else (_to_host(ids), _to_host(values)))
        return logprobs

    def _handle(self, num_sampled: int, logprobs: Logprobs) -> CudaStepHandle:
        tokens = _to_host(self._results[:num_sampled])
        done = torch.cuda.Event()
        done.record(self._stream)
        return CudaStepHandle(tokens, logprobs, done)

    def _copy_blocks(self, copies: tuple[tuple[int, int], ...]) -> None:
        if copies:
            pairs = to_device(np.array(copies, np.int64), self._device)
            self._pool.copy(pairs[:, 0], pairs[:, 1])


def _to_host(values: torch.Tensor) -> torch.Tensor:
    pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return pinned.copy_(values, non_blocking=True)
