"""Draws the next token of each row on the device and writes it where the next step reads it.

Greedy and Gumbel in one kernel: the score of a token is its logit, or logit / temperature + noise, and the best score
wins. The noise is the hash of inference.runner.sampler (the reference): key, position and token id decide it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from inference.runner.kernels.fetched_masks import MASKED, UNKNOWN, FetchedMasks
from inference.runner.kernels.rows import DRAWS, IS_LAST
from inference.step import LATE, MAX_ENDS

_TILE = 4096

# How a row's tokens are drawn: by the kernel, by it with cutoffs (kernels.filters), or by the host.
PLAIN, FILTERED, BY_HOST = tl.constexpr(0), tl.constexpr(2), tl.constexpr(1)


@triton.jit
def _mix(state):
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB
    return state ^ (state >> 31)


@triton.jit
def _noise(key, position, token_ids):
    """log of an Exp(1) draw; fine-grained near zero, where the winners are."""
    golden = tl.full([], 0x9E3779B97F4A7C15, tl.uint64)
    base = _mix(key.to(tl.uint64) + (position.to(tl.uint64) + 1) * golden)
    bits = _mix((token_ids.to(tl.uint64) + 1) * golden + base)
    uniform = ((bits >> 32).to(tl.float32) + 0.5) * 2.3283064365386963e-10
    # -log1p(-u), by its series where 1 - u would lose digits.
    series = uniform * (1.0 + uniform * (0.5 + uniform * (0.33333334 + uniform * 0.25)))
    return tl.log(tl.where(uniform < 0.01, series, -tl.log(1.0 - uniform)))


@triton.jit
def _sample_kernel(
    logits, sample_rows, turns, positions, temperatures, noise_keys, kinds, token_ids, token_stride, lengths, results,
    best_scores, best_ids, arrivals, cutoffs, no_end_before, end_ids, masks, mask_states, vocab_size, spare_row,
    KIND: tl.constexpr, MAX_ENDS: tl.constexpr, DRAWS: tl.constexpr, IS_LAST: tl.constexpr, LATE: tl.constexpr,
    NUM_WORDS: tl.constexpr, NUM_TILES: tl.constexpr, TILE: tl.constexpr, TILES_POW2: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0)
    tile = tl.program_id(1)
    row = tl.load(sample_rows + index).to(tl.int64)
    position = tl.load(positions + index) + 1
    turn = tl.load(turns + index)
    moves = ((turn & IS_LAST) != 0) & (row != spare_row)
    # All that is told of the row is asked for at once: asked one after another, it takes as long as the rest.
    is_mine = tl.load(kinds + row) == KIND
    temperature = tl.load(temperatures + row)
    noise_key = tl.load(noise_keys + row)
    first_end = tl.load(no_end_before + row)
    state = tl.load(mask_states + index)
    if ((turn & DRAWS) != 0) & is_mine:
        ids = tile * TILE + tl.arange(0, TILE)
        inside = ids < vocab_size
        scores = tl.load(logits + index.to(tl.int64) * vocab_size + ids, mask=inside, other=-float("inf"))
        if KIND == FILTERED:
            scores = tl.where(scores >= tl.load(cutoffs + index), scores, -float("inf"))
        if temperature > 0:
            scores = scores / temperature - _noise(noise_key, position, ids)
        scores = tl.where(inside, scores, -float("inf"))
        if position < first_end:
            for end in range(MAX_ENDS):
                scores = tl.where(ids == tl.load(end_ids + row * MAX_ENDS + end), -float("inf"), scores)
        if state == MASKED:
            # Each word is read once, by neighbouring threads.
            at_words = tile * (TILE // 32) + tl.arange(0, TILE // 32)
            mine = masks + index.to(tl.int64) * NUM_WORDS
            words = tl.load(mine + at_words, mask=at_words < NUM_WORDS, other=0)
            bits = tl.reshape((words[:, None] >> tl.arange(0, 32)[None, :]) & 1, [TILE])
            scores = tl.where(bits != 0, scores, -float("inf"))
        best, at = tl.max(scores, axis=0, return_indices=True, return_indices_tie_break_left=True)
        tl.store(best_scores + index * NUM_TILES + tile, best, cache_modifier=".cg")
        tl.store(best_ids + index * NUM_TILES + tile, tile * TILE + at, cache_modifier=".cg")
        tl.debug_barrier()
        if tl.atomic_add(arrivals + index, 1, sem="acq_rel") == NUM_TILES - 1:
            tl.debug_barrier()
            tiles = tl.arange(0, TILES_POW2)
            known = tiles < NUM_TILES
            at_tiles = index * NUM_TILES + tiles
            tile_scores = tl.load(best_scores + at_tiles, mask=known, other=-float("inf"), cache_modifier=".cg")
            _, winner = tl.max(tile_scores, axis=0, return_indices=True, return_indices_tie_break_left=True)
            is_late = state == UNKNOWN
            token = tl.load(best_ids + index * NUM_TILES + winner, cache_modifier=".cg")
            tl.store(arrivals + index, 0)
            tl.store(results + index, tl.where(is_late, LATE, token))
            tl.store(token_ids + row * token_stride + position, token, mask=is_late == 0)
            tl.store(lengths + row, tl.where(is_late, position - 1, position), mask=moves)
    elif (KIND == PLAIN) & (tile == 0):
        # Not in the call for filtered rows: by then, others may have stayed where they are.
        tl.store(lengths + row, position, mask=moves)


@dataclass(frozen=True, slots=True)
class SampledRows:
    """What the kernel reads and writes of the rows, all [max_rows, ...] int32 unless said otherwise.

    token_ids: [max_rows, stride]; lengths: tokens in the cache; temperatures: float32; noise_keys: int64; kinds: PLAIN,
    FILTERED or BY_HOST; top_ks (0: off), top_ps (1: off), min_ps (0: off), the last two float32: of FILTERED rows;
    no_end_before: positions below it may hold none of end_ids, [max_rows, MAX_ENDS], -1 where there are fewer;
    mask_holders: 0 where no mask is needed, see inference.mask_ledger and kernels.fetched_masks.
    """

    token_ids: torch.Tensor
    lengths: torch.Tensor
    temperatures: torch.Tensor
    noise_keys: torch.Tensor
    kinds: torch.Tensor
    top_ks: torch.Tensor
    top_ps: torch.Tensor
    min_ps: torch.Tensor
    no_end_before: torch.Tensor
    end_ids: torch.Tensor
    mask_holders: torch.Tensor

    @classmethod
    def zeros(cls, count: int, stride: int, device: torch.device | str) -> SampledRows:
        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return cls(
            zeros(count, stride), zeros(count), zeros(count, dtype=torch.float32), zeros(count, dtype=torch.int64),
            zeros(count), zeros(count), zeros(count, dtype=torch.float32) + 1, zeros(count, dtype=torch.float32),
            zeros(count), zeros(count, MAX_ENDS) - 1, zeros(count),
        )  # fmt: skip


class Sampling:
    """The kernel and its scratch. Plain rows get their tokens by a call, which sets everybody's length; filtered ones
    by another, with cutoffs. The spare row, which fills batches up, keeps its length.

    A row whose mask is UNKNOWN keeps its length, less the token that it computed, and its result is LATE.
    """

    def __init__(
        self, rows: SampledRows, masks: FetchedMasks, vocab_size: int, *, max_batch: int, spare_row: int
    ) -> None:
        self._rows, self._masks = rows, masks
        self._vocab_size, self._spare_row = vocab_size, spare_row
        self._num_tiles = triton.cdiv(vocab_size, _TILE)
        device = rows.lengths.device
        self._best_scores = torch.empty(max_batch * self._num_tiles, dtype=torch.float32, device=device)
        self._best_ids = torch.empty(max_batch * self._num_tiles, dtype=torch.int32, device=device)
        self._arrivals = torch.zeros(max_batch, dtype=torch.int32, device=device)

    def __call__(
        self, logits: torch.Tensor, sample_rows: torch.Tensor, turns: torch.Tensor, positions: torch.Tensor,
        results: torch.Tensor, cutoffs: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        """logits: [S, vocab] float32; sample_rows: [S] int32; turns: [S] int32, see kernels.rows; positions: [S] int32,
        where each entry's token stands; results: [S] int32, written; cutoffs: [S] float32, for filtered rows: logits
        below are not drawn. The masks are those fetched last, for the same entries. Grid (S, vocabulary tiles).
        """
        rows, masks = self._rows, self._masks
        _sample_kernel[(logits.shape[0], self._num_tiles)](
            logits, sample_rows, turns, positions, rows.temperatures, rows.noise_keys, rows.kinds, rows.token_ids,
            rows.token_ids.stride(0), rows.lengths, results, self._best_scores, self._best_ids, self._arrivals,
            self._best_scores if cutoffs is None else cutoffs, rows.no_end_before, rows.end_ids, masks.words,
            masks.states, self._vocab_size, self._spare_row, KIND=PLAIN if cutoffs is None else FILTERED,
            MAX_ENDS=MAX_ENDS, DRAWS=DRAWS, IS_LAST=IS_LAST, LATE=LATE, NUM_WORDS=masks.words.stride(0),
            NUM_TILES=self._num_tiles, TILE=_TILE, TILES_POW2=triton.next_power_of_2(self._num_tiles), num_warps=4,
        )  # fmt: skip
