"""The two kinds of pass that a CUDA runner makes, each on its own stream, with its own scratch and its own graphs.

Decodes: gather inputs from the rows, forward, sample, write tokens and lengths back, all one graph replay. Prefills:
another replay where a captured number of tokens fits, launched kernel by kernel otherwise. They never share a product,
so what a row decodes is the same bits whoever else prefills; and they share no scratch, so they run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from inference.paged_kv.pool import KVPool
from inference.runner.cuda_draws import Draws
from inference.runner.cuda_inputs import PackedInputs, PackedShape
from inference.runner.cuda_model import PackedTokens
from inference.runner.cuda_rows import CudaRows, Entries
from inference.runner.device_masks import DeviceMasks
from inference.runner.graphs import captured
from inference.runner.kernels.attention import PagedAttention
from inference.runner.kernels.chunks import Chunks
from inference.runner.kernels.fetched_masks import DECODE_SPINS, PREFILL_SPINS
from inference.runner.kernels.linear import MAX_ROWS
from inference.runner.kernels.rows import DECODES_ONE, DRAWS, IS_LAST, TURN, gather_rows
from inference.runner.kernels.sampling import FILTERED
from inference.runner.step_model import StepModel
from inference.step import ScheduledRow

# Prefills of at most so many chunks are captured, for these numbers of tokens.
_PACKED_ROWS = 32
_PACKED_TOKENS = (64, 128, 256, 512, 1024, 2048)

Progress = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Pass:
    """An enqueued pass. logits: [N, vocab] float32; samples: of each row that samples, in order, where among the N its
    logits are, one place a token; results: [>= N] int32, the tokens that the sampling kernel drew, at the same places.
    """

    logits: torch.Tensor
    results: torch.Tensor
    samples: list[tuple[ScheduledRow, list[int]]]


class DecodeSteps:
    """Its stream has precedence over that of prefills: where both have work, a multiprocessor takes a decode's first.

    The pool's last block is no row's: the spare row, which fills a batch up to a captured size, reads and writes it.
    """

    def __init__(
        self, model: StepModel, pool: KVPool, rows: CudaRows, paged: PagedAttention, masks: DeviceMasks, max_rows: int
    ) -> None:
        device = model.embedding.device
        self.stream, self._beside = (torch.cuda.Stream(device, priority=-1) for _ in range(2))
        self._model, self._rows, self._paged, self._block_size = model, rows, paged, pool.layout.block_size
        self._scratch = model.scratch(max_rows, rows.block_table)
        self.draws = Draws(rows, masks, model.num_outputs, max_batch=max_rows, spins=DECODE_SPINS)
        self._results = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self._entries: Entries = ((), ())
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def entries_of(self, rows: Sequence[ScheduledRow]) -> Entries | None:
        """What the next pass is to find in CudaRows; None if it is there. Filled up to a captured size."""
        row_ids, turns = _entries(rows)
        num_spare = next(size for size in self._graphs if size >= len(row_ids)) - len(row_ids)
        entries = ((*row_ids, *[self._rows.spare_row] * num_spare), (*turns, *[DECODES_ONE] * num_spare))
        if entries == self._entries:
            return None
        self._entries = entries
        return entries

    @property
    def results(self) -> torch.Tensor:
        """[max_rows] int32, of the latest pass."""
        return self._results

    def run(self, rows: Sequence[ScheduledRow]) -> Pass:
        """Enqueue the pass on the current stream, which is this one's; its entries are there."""
        size = len(self._entries[0])
        self._graphs[size].replay()
        if self._rows.any_of_kind(FILTERED.value, rows):
            self._draw_filtered(size)
        samples, end = [], 0
        for row in rows:
            end += row.num_tokens
            if row.samples:
                samples.append((row, list(range(end - row.num_samples, end))))
        return Pass(self._scratch.logits, self._results, samples)

    def compute(self, batch: int) -> None:
        """Launch the kernels for the first `batch` entries."""
        rows, model = self._rows, self._model
        row_ids, turns = rows.entry_rows[:batch], rows.entry_turns[:batch]
        inputs = self._scratch.inputs.first(batch)
        gather_rows(
            row_ids, turns, rows.token_ids, rows.lengths, rows.block_table, self._block_size, model.cos_sin,
            model.embedding, inputs,
        )  # fmt: skip

        def fetch_masks() -> None:
            self._beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._beside):
                self.draws.fetch_masks(row_ids, turns, inputs.positions)

        logits = model.decode(self._scratch, batch, self._paged, before_logits=fetch_masks)
        torch.cuda.current_stream().wait_stream(self._beside)
        self.draws.plain(logits, row_ids, turns, inputs.positions, self._results[:batch])

    def _draw_filtered(self, batch: int) -> None:
        positions, logits = self._scratch.inputs.positions[:batch], self._scratch.logits[:batch]
        row_ids, turns = self._rows.entry_rows[:batch], self._rows.entry_turns[:batch]
        self.draws.filtered(logits, row_ids, turns, positions, self._results[:batch])

    def kinds(self, sizes: Sequence[int]) -> list[Callable[[], object]]:
        """A pass of each kind that kernels are compiled for, as good as: a single row, up to 16, the least above, up to
        MAX_ROWS, and beyond."""
        least = min(sizes)
        chosen = {max((size for size in sizes if size <= most), default=least) for most in (1, 16, MAX_ROWS)}
        chosen |= {min((size for size in sizes if size > 16), default=least), max(sizes)}
        return [partial(self._draw_filtered, least), *(partial(self.compute, size) for size in chosen)]

    def capture(self, sizes: Sequence[int], progress: Progress) -> None:
        """Largest first, so that graphs share memory. The spare row stands in for every row meanwhile."""
        pool = torch.cuda.graph_pool_handle()
        for size in sorted(sizes, reverse=True):
            self._graphs[size] = captured(partial(self.compute, size), self.stream, pool)
            progress()
        self._graphs = dict(sorted(self._graphs.items()))

    def forget(self) -> None:
        self._graphs.clear()


@dataclass(frozen=True, slots=True)
class _PackedGraph:
    graph: torch.cuda.CUDAGraph
    inputs: PackedInputs
    logits: torch.Tensor


class PrefillSteps:
    """Packed chunks of any rows. Positions are the host's; tokens are read from the rows, where they may be news."""

    def __init__(
        self, model: StepModel, pool: KVPool, rows: CudaRows, paged: PagedAttention, masks: DeviceMasks, max_rows: int
    ) -> None:
        device = model.embedding.device
        self.most_draws = most = max(max_rows, _PACKED_ROWS)
        self.shapes = tuple(
            PackedShape(count, _PACKED_ROWS, lists_chunks=paged.wants_chunks) for count in _PACKED_TOKENS
        )
        self.stream = torch.cuda.Stream(device)
        self._model, self._rows, self._paged, self._block_size = model, rows, paged, pool.layout.block_size
        self.draws = Draws(rows, masks, model.num_outputs, max_batch=most, spins=PREFILL_SPINS)
        self._turns = torch.full((most,), DECODES_ONE, dtype=torch.int32, device=device)
        self._results = torch.zeros(most, dtype=torch.int32, device=device)
        self._graphs: dict[PackedShape, _PackedGraph] = {}

    @property
    def results(self) -> torch.Tensor:
        """[most_draws] int32, of the latest pass."""
        return self._results

    def run(self, chunks: Sequence[ScheduledRow]) -> Pass:
        """Enqueue the pass on the current stream, which is this one's."""
        found = next((shape for shape in self._graphs if shape.fits(chunks)), None)
        if found is None:
            inputs = PackedInputs.on(
                self._results.device, PackedShape.of(chunks, lists_chunks=self._paged.wants_chunks)
            )
            self._load(inputs, chunks)
            logits = self._compute(inputs)
        else:
            captured = self._graphs[found]
            inputs, logits = captured.inputs, captured.logits
            self._load(inputs, chunks)
            captured.graph.replay()
        sampling = [row for row in chunks if row.samples]
        if self._rows.any_of_kind(FILTERED.value, sampling):
            self.draws.filtered(*self._drawn(inputs, logits))
        return Pass(logits, self._results, [(row, [index]) for index, row in enumerate(sampling)])

    def kinds(self) -> list[Callable[[], object]]:
        """One pass, of the kind that all are."""
        return [lambda: self._compute(self._inputs(self.shapes[0]))]

    def capture(self, progress: Progress) -> None:
        pool = torch.cuda.graph_pool_handle()
        for shape in reversed(self.shapes):
            with torch.cuda.stream(self.stream):
                inputs = self._inputs(shape)
            kept: list[torch.Tensor] = []

            def run(inputs: PackedInputs = inputs, kept: list[torch.Tensor] = kept) -> None:
                kept[:] = [self._compute(inputs)]

            graph = captured(run, self.stream, pool)
            self._graphs[shape] = _PackedGraph(graph, inputs, kept[0])
            progress()
        self._graphs = dict(sorted(self._graphs.items()))

    def forget(self) -> None:
        self._graphs.clear()

    def _inputs(self, shape: PackedShape) -> PackedInputs:
        """For no chunks: the spare row's, filled on the current stream."""
        inputs = PackedInputs.on(self._results.device, shape)
        self._load(inputs, ())
        return inputs

    def _load(self, inputs: PackedInputs, chunks: Sequence[ScheduledRow]) -> None:
        inputs.load(inputs.shape.pack(chunks, self._rows.spare_row))

    def _compute(self, inputs: PackedInputs) -> torch.Tensor:
        rows, block_size = self._rows, self._block_size
        token_ids = rows.token_ids[inputs.token_rows, inputs.positions]
        blocks = rows.block_table[inputs.token_rows, inputs.positions // block_size]
        slots = (blocks * block_size + inputs.positions % block_size).to(torch.int32)
        listed = inputs.chunks
        chunks = None if listed is None else Chunks(listed.ends, listed.num_keys, rows.block_table[listed.rows])
        tokens = PackedTokens(token_ids, slots, inputs.positions, inputs.tiles, inputs.sample_at.long(), chunks)
        logits = self._model.prefill(tokens, self._paged)
        if len(inputs.sample_rows):
            drawn = self._drawn(inputs, logits)
            self.draws.fetch_masks(*drawn[1:4])
            self.draws.plain(*drawn)
        return logits

    def _drawn(
        self, inputs: PackedInputs, logits: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """What a draw needs."""
        count = len(inputs.sample_rows)
        rows, positions = inputs.sample_rows, inputs.sample_positions
        return logits, rows, self._turns[:count], positions, self._results[:count]


def _entries(rows: Sequence[ScheduledRow]) -> tuple[list[int], list[int]]:
    """The row and the turn of each token, turns as kernels.rows.gather_rows takes them."""
    row_ids, turns = [], []
    for row in rows:
        if row.num_tokens == 1:
            row_ids.append(row.row)
            turns.append(DECODES_ONE if row.samples else IS_LAST)
            continue
        first_drawn = row.num_tokens - row.num_samples
        for index in range(row.num_tokens):
            is_last = index == row.num_tokens - 1
            row_ids.append(row.row)
            turns.append(TURN * index + DRAWS * (index >= first_drawn) + IS_LAST * is_last)
    return row_ids, turns
