"""Runs StepPlans on a CUDA device without ever waiting for it.

The decoding rows of a step are one CUDA graph replay: gather inputs from the rows, forward, sample, write tokens and
lengths back. A few forced tokens of a row may go along, an entry each. Prefill chunks are another replay where a
captured number of tokens fits, and launched kernel by kernel otherwise. They never share a product with decoding rows,
so what a row decodes is the same bits whoever else prefills.
Sampled tokens reach the host by an asynchronous copy; only CudaStepHandle.wait waits, for that copy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from tqdm import tqdm

from inference.mask_ledger import MaskJob
from inference.paged_kv.pool import KVPool
from inference.runner.cuda_inputs import PackedInputs, PackedShape
from inference.runner.cuda_model import PackedTokens
from inference.runner.cuda_rows import CudaRows, to_device
from inference.runner.device_masks import DeviceMasks
from inference.runner.kernels.attention import PagedAttention
from inference.runner.kernels.linear import MAX_ROWS
from inference.runner.kernels.rows import gather_rows
from inference.runner.kernels.sampling import Sampling
from inference.runner.request_rows import RowSampling
from inference.runner.sampler import draw, gather_logprobs, read_logprobs
from inference.runner.step_model import StepModel
from inference.step import ScheduledRow, StepPlan, StepResult
from inference.types import TokenLogprobs

# Prefills of at most so many chunks are captured, for these numbers of tokens.
_PACKED_ROWS = 32
_PACKED_TOKENS = (64, 128, 256, 512, 1024, 2048)
# A short run of forced tokens goes along with the decoding rows, an entry a token. Each entry reads all keys before it,
# so that far into a sequence a prefill is cheaper.
_ENTRY_TOKENS, _ENTRY_KEYS = 16, 16_384

HostLogprobs = tuple[torch.Tensor, torch.Tensor] | None
_Sampled = tuple[int, HostLogprobs]  # where its token is in the results, and its log-probabilities


@dataclass(frozen=True, slots=True)
class CudaStepHandle:
    """A launched step. tokens: a pinned host copy; at: where in it each sampled row's is; logprobs: likewise, None
    where not asked for."""

    tokens: torch.Tensor
    at: list[int]
    logprobs: list[HostLogprobs]
    done: torch.cuda.Event

    def wait(self) -> StepResult:
        self.done.synchronize()
        logprobs: list[TokenLogprobs | None] = [
            None if pair is None else read_logprobs(*pair) for pair in self.logprobs
        ]
        return StepResult(tuple(self.tokens[self.at].tolist()), tuple(logprobs))


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

    def __init__(self, model: StepModel, pool: KVPool, *, max_rows: int, max_model_len: int) -> None:
        self._model, self._pool = model, pool
        self._device = model.embedding.device
        self._stream = torch.cuda.Stream(self._device)
        self.rows = rows = CudaRows(max_rows, max_model_len, pool.layout.block_size, self._device)
        rows.block_table[rows.spare_row] = pool.num_blocks - 1
        self._paged = PagedAttention(
            model.shape, rows.block_table, pool.layout.block_size,
            max_model_len=max_model_len, max_batch=max_rows, element_size=pool.keys[0].element_size(),
        )  # fmt: skip
        self._masks = DeviceMasks(max_rows + 1, model.num_outputs, self._device)
        self._sampling = Sampling(
            rows.token_ids, rows.lengths, rows.temperatures, rows.noise_keys, rows.skips, rows.constrained, self._masks,
            model.num_outputs, max_batch=max(max_rows, _PACKED_ROWS), spare_row=rows.spare_row,
        )  # fmt: skip
        self._scratch = model.scratch(max_rows, rows.block_table)
        self._row_ids = torch.full((max_rows,), rows.spare_row, dtype=torch.int32, device=self._device)
        self._turns = torch.ones(max(max_rows, _PACKED_ROWS), dtype=torch.int32, device=self._device)
        self._ones = torch.ones_like(self._turns)
        # Decoding rows' tokens, and behind them those of prefilled rows.
        self._results = torch.zeros(2 * max(max_rows, _PACKED_ROWS), dtype=torch.int32, device=self._device)
        self._batch: tuple[tuple[int, int], ...] = ()
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._packed_graphs: dict[PackedShape, _PackedGraph] = {}

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> CudaStepHandle:
        """Enqueue the step; never synchronises with the device."""
        with torch.cuda.stream(self._stream):
            self._copy_blocks(plan.block_copies)
            stepped, chunks = self._split(plan)
            self.rows.apply(plan, {row.row: row.start for row in stepped[plan.num_decodes :]})
            found: dict[int, _Sampled] = {}
            if stepped:
                entries = _entries(stepped)
                logits = self._replay_decode(entries)
                last = np.cumsum([row.num_tokens for row in stepped]) - 1
                found |= self._sampled(stepped, logits, [int(index) for index in last], first_result=0)
            if chunks:
                sampling = [row for row in chunks if row.samples]
                logits = self._prefill(chunks)
                found |= self._sampled(sampling, logits, list(range(len(sampling))), len(self._results) // 2)
            return self._handle([found[row.row] for row in plan.rows if row.samples])

    def _split(self, plan: StepPlan) -> tuple[list[ScheduledRow], list[ScheduledRow]]:
        """The rows that go through the decode graph, and the chunks that are prefilled.

        Prompts are prefilled whatever room there is, so that their bits do not depend on who else runs.
        """
        stepped, chunks = list(plan.rows[: plan.num_decodes]), list(plan.rows[plan.num_stepped :])
        room = min(MAX_ROWS, max(self._graphs)) - plan.num_decodes
        for row in plan.rows[plan.num_decodes : plan.num_stepped]:
            assert not row.verifies, "guesses are not verified here yet"
            if row.num_tokens <= min(room, _ENTRY_TOKENS) and row.num_tokens * row.start <= _ENTRY_KEYS:
                stepped.append(row)
                room -= row.num_tokens
            else:
                chunks.append(row)
        return stepped, chunks

    def reset_masks(self) -> None:
        """Tickets start anew, with a new scheduler; nothing runs."""
        with torch.cuda.stream(self._stream):
            self._masks.reset()

    def post_masks(self, jobs: Sequence[MaskJob]) -> None:
        """Compute masks, in threads, and let the steps that wait for them go on."""
        self._masks.post(jobs)

    def close(self) -> None:
        self._stream.synchronize()
        self._masks.close()
        self._graphs.clear()
        self._packed_graphs.clear()

    @torch.inference_mode()
    def capture(self, batch_sizes: list[int]) -> None:
        """Capture the decode step of each batch size, and packed steps, largest first so that graphs share memory.

        The spare row stands in for every row meanwhile.
        """
        self._stream.wait_stream(torch.cuda.current_stream(self._device))  # weights and rows were made there
        shapes = [PackedShape(count, _PACKED_ROWS) for count in _PACKED_TOKENS]
        self._compile(batch_sizes, shapes[0])
        pool = torch.cuda.graph_pool_handle()
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

    def _compile(self, batch_sizes: list[int], shape: PackedShape) -> None:
        """Compile the kernels of all graphs, in threads: the compiler lets go of the interpreter's lock.

        The threads' launches come in any order, on the one stream: what they compute is of no use, and harms nobody.
        """
        inputs = PackedInputs.on(self._device, shape)
        inputs.load(shape.pack((), self.rows.spare_row, self._paged.part_keys))
        # One size of each kind that kernels are compiled for: up to 16 rows, up to MAX_ROWS, and beyond.
        kinds = {max(size for size in batch_sizes if size <= most) for most in (16, MAX_ROWS, max(batch_sizes))}
        runs = [partial(self._decode, batch) for batch in kinds] + [partial(self._packed, inputs)]

        def run_one(run: Callable[[], object]) -> None:
            with torch.inference_mode(), torch.cuda.stream(self._stream):
                run()

        with ThreadPoolExecutor(len(runs)) as threads:
            list(threads.map(run_one, runs))

    def _captured(self, run, pool) -> torch.cuda.CUDAGraph:  # type: ignore[no-untyped-def]
        run()  # libraries set up what they need for this size
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=self._stream):
            run()
        return graph

    def _captured_packed(self, shape: PackedShape, pool: object) -> _PackedGraph:
        inputs = PackedInputs.on(self._device, shape)
        inputs.load(shape.pack((), self.rows.spare_row, self._paged.part_keys))
        kept: list[torch.Tensor] = []

        def run() -> None:
            kept[:] = [self._packed(inputs)]

        graph = self._captured(run, pool)
        return _PackedGraph(graph, inputs, kept[0])

    def _decode(self, batch: int) -> None:
        """The whole step of the entries in _row_ids[:batch] and _turns[:batch]."""
        row_ids, turns, rows, model = self._row_ids[:batch], self._turns[:batch], self.rows, self._model
        inputs = self._scratch.inputs.first(batch)
        gather_rows(
            row_ids, turns, rows.token_ids, rows.lengths, rows.block_table, self._pool.layout.block_size, model.cos_sin,
            model.embedding, inputs,
        )  # fmt: skip
        logits = model.decode(self._scratch, batch, self._paged)
        self._sampling(logits, row_ids, turns, inputs.positions, self._results[:batch])

    def _replay_decode(self, entries: list[tuple[int, int]]) -> torch.Tensor:
        size = next(size for size in self._graphs if size >= len(entries))
        batch = (*entries, *[(self.rows.spare_row, 1)] * (size - len(entries)))
        if batch != self._batch:
            staged = to_device(np.array(batch, np.int32).T.copy(), self._device)
            self._row_ids[:size].copy_(staged[0])
            self._turns[:size].copy_(staged[1])
            self._batch = batch
        self._graphs[size].replay()
        return self._scratch.logits[: len(entries)]

    def _packed(self, inputs: PackedInputs) -> torch.Tensor:
        """Prefill of any chunks. Positions are the host's; tokens are read from the rows, where they may be news."""
        rows, block_size = self.rows, self._pool.layout.block_size
        token_ids = rows.token_ids[inputs.token_rows, inputs.positions]
        blocks = rows.block_table[inputs.token_rows, inputs.positions // block_size]
        slots = (blocks * block_size + inputs.positions % block_size).to(torch.int32)
        tokens = PackedTokens(token_ids, slots, inputs.positions, inputs.tiles, inputs.sample_at.long())
        logits = self._model.prefill(tokens, self._paged)
        num_sampled = inputs.sample_rows.shape[0]
        if num_sampled:
            results = self._results[len(self._results) // 2 :][:num_sampled]
            ones = self._ones[:num_sampled]
            self._sampling(logits, inputs.sample_rows, ones, inputs.sample_positions, results)
        return logits

    def _prefill(self, chunks: Sequence[ScheduledRow]) -> torch.Tensor:
        found = next((shape for shape in self._packed_graphs if shape.fits(chunks)), None)
        if found is None:
            inputs = PackedInputs.on(self._device, PackedShape.of(chunks))
            inputs.load(inputs.shape.pack(chunks, self.rows.spare_row, self._paged.part_keys))
            return self._packed(inputs)
        captured = self._packed_graphs[found]
        captured.inputs.load(found.pack(chunks, self.rows.spare_row, self._paged.part_keys))
        captured.graph.replay()
        return captured.logits

    def _sampled(
        self, rows: Sequence[ScheduledRow], logits: torch.Tensor, at: Sequence[int], first_result: int
    ) -> dict[int, _Sampled]:
        """Where each row's token is found; its logits are logits[at[i]]. Rows with penalties, bias, filters or logprobs
        are drawn here, by torch operations, still without waiting."""
        found = {}
        for row, index in zip(rows, at, strict=True):
            if not row.samples:
                continue
            sampling = self.rows.sampling[row.row]
            assert sampling is not None
            drawn = None if sampling.is_plain else self._draw(row, sampling, logits[index], first_result + index)
            found[row.row] = (first_result + index, drawn)
        return found

    def _draw(self, row: ScheduledRow, sampling: RowSampling, logits: torch.Tensor, result: int) -> HostLogprobs:
        position = row.start + row.num_tokens
        own = logits.clone() if sampling.params.logprobs is not None else logits
        if self.rows.is_constrained[row.row]:
            self._sampling.mask(logits, row.row)
        token = draw(logits, sampling, self.rows.token_ids[row.row, :position], position)
        self.rows.token_ids[row.row, position] = token
        self._results[result] = token
        ids, values = gather_logprobs(own, token, sampling)
        return None if ids is None or values is None else (_to_host(ids), _to_host(values))

    def _handle(self, sampled: list[_Sampled]) -> CudaStepHandle:
        results = _to_host(self._results)
        done = torch.cuda.Event()
        done.record(self._stream)
        return CudaStepHandle(results, [at for at, _ in sampled], [logprobs for _, logprobs in sampled], done)

    def _copy_blocks(self, copies: tuple[tuple[int, int], ...]) -> None:
        if copies:
            pairs = to_device(np.array(copies, np.int64), self._device)
            self._pool.copy(pairs[:, 0], pairs[:, 1])


def _entries(rows: Sequence[ScheduledRow]) -> list[tuple[int, int]]:
    """(row, turn) of each token, turns as kernels.rows.gather_rows takes them."""
    return [
        (row.row, 2 * index + (row.samples and index == row.num_tokens - 1))
        for row in rows
        for index in range(row.num_tokens)
    ]


def _to_host(values: torch.Tensor) -> torch.Tensor:
    pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return pinned.copy_(values, non_blocking=True)
