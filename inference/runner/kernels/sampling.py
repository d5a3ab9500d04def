"""Draws the next token of each row on the device and writes it where the next step reads it.

Greedy and Gumbel in one kernel: the score of a token is its logit, or logit / temperature + noise, and the best score
wins. The noise is the hash of inference.runner.sampler (the reference): key, position and token id decide it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from inference.runner.device_masks import DeviceMasks

_TILE = 4096
# Some seconds. A host that has not answered by then is gone; what the row then samples is of no use.
_MOST_SPINS = 4_000_000


@triton.jit
def _allowed(masks, mask_stride, posted, tickets, row, ids, inside, MOST_SPINS: tl.constexpr):
    """Which of `ids` a constrained row may sample; waits until the host has posted the mask of its next ticket."""
    ticket = tl.load(tickets + row) + 1
    word = tl.load(posted + row, volatile=True)
    spins = 0
    while (word // 2 < ticket) & (spins < MOST_SPINS):
        word = tl.load(posted + row, volatile=True)
        spins += 1
    bits = tl.load(masks + row * mask_stride + ids // 32, mask=inside, other=0, volatile=True)
    return ((bits >> (ids % 32)) & 1 != 0) | (word % 2 != 0)


@triton.jit
def _mask_kernel(logits, masks, mask_stride, posted, tickets, row, vocab_size, TILE: tl.constexpr, SPINS: tl.constexpr):
    ids = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = ids < vocab_size
    allowed = _allowed(masks, mask_stride, posted, tickets, tl.cast(row, tl.int64), ids, inside, SPINS)
    tl.store(logits + ids, tl.full([TILE], -float("inf"), tl.float32), mask=inside & (allowed == 0))


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
    logits, sample_rows, turns, positions, temperatures, noise_keys, skips, token_ids, token_stride, lengths, results,
    best_scores, best_ids, arrivals, constrained, masks, mask_stride, posted, tickets, vocab_size, spare_row,
    SPINS: tl.constexpr, NUM_TILES: tl.constexpr, TILE: tl.constexpr, TILES_POW2: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0)
    tile = tl.program_id(1)
    row = tl.load(sample_rows + index).to(tl.int64)
    position = tl.load(positions + index) + 1
    is_last = tl.load(turns + index) % 2 == 1
    if is_last & (tl.load(skips + row) == 0):
        ids = tile * TILE + tl.arange(0, TILE)
        inside = ids < vocab_size
        scores = tl.load(logits + index.to(tl.int64) * vocab_size + ids, mask=inside, other=-float("inf"))
        temperature = tl.load(temperatures + row)
        if temperature > 0:
            scores = scores / temperature - _noise(tl.load(noise_keys + row), position, ids)
        scores = tl.where(inside, scores, -float("inf"))
        is_constrained = tl.load(constrained + row) != 0
        if is_constrained:
            allowed = _allowed(masks, mask_stride, posted, tickets, row, ids, inside, SPINS)
            scores = tl.where(allowed, scores, -float("inf"))
        best, at = tl.max(scores, axis=0, return_indices=True, return_indices_tie_break_left=True)
        tl.store(best_scores + index * NUM_TILES + tile, best, cache_modifier=".cg")
        tl.store(best_ids + index * NUM_TILES + tile, tile * TILE + at, cache_modifier=".cg")
        tl.debug_barrier()
        if tl.atomic_add(arrivals + index, 1, sem="acq_rel") == NUM_TILES - 1:
            tl.debug_barrier()
            tiles = tl.arange(0, TILES_POW2)
            known = tiles < NUM_TILES
            tile_scores = tl.load(
                best_scores + index * NUM_TILES + tiles, mask=known, other=-float("inf"), cache_modifier=".cg"
            )
            _, winner = tl.max(tile_scores, axis=0, return_indices=True, return_indices_tie_break_left=True)
            token = tl.load(best_ids + index * NUM_TILES + winner, cache_modifier=".cg")
            tl.store(arrivals + index, 0)
            tl.store(token_ids + row * token_stride + position, token)
            tl.store(results + index, token)
            if is_constrained:
                tl.store(tickets + row, tl.load(tickets + row) + 1)  # all other tiles have read it
    if (tile == 0) & is_last & (row != spare_row):
        tl.store(lengths + row, position)


class Sampling:
    """The kernel and its scratch. Rows whose `skips` is not 0 get no token here, only their length; the spare row,
    which fills batches up, keeps its length.

    token_ids: [max_rows, stride] int32, lengths, skips: [max_rows] int32; temperatures: [max_rows] float32;
    noise_keys: [max_rows] int64; constrained: [max_rows] int32, 1 where a row's tokens wait for their masks.
    """

    def __init__(
        self, token_ids: torch.Tensor, lengths: torch.Tensor, temperatures: torch.Tensor, noise_keys: torch.Tensor,
        skips: torch.Tensor, constrained: torch.Tensor, masks: DeviceMasks, vocab_size: int, max_batch: int,
        spare_row: int,
    ) -> None:  # fmt: skip
        self._rows = (temperatures, noise_keys, skips, token_ids, token_ids.stride(0), lengths)
        self._masks = (masks.words, masks.words.stride(0), masks.posted, masks.tickets)
        self._constrained = constrained
        self._vocab_size, self._spare_row = vocab_size, spare_row
        self._num_tiles = triton.cdiv(vocab_size, _TILE)
        device = token_ids.device
        self._best_scores = torch.empty(max_batch * self._num_tiles, dtype=torch.float32, device=device)
        self._best_ids = torch.empty(max_batch * self._num_tiles, dtype=torch.int32, device=device)
        self._arrivals = torch.zeros(max_batch, dtype=torch.int32, device=device)

    def __call__(
        self, logits: torch.Tensor, sample_rows: torch.Tensor, turns: torch.Tensor, positions: torch.Tensor,
        results: torch.Tensor,
    ) -> None:  # fmt: skip
        """logits: [S, vocab] float32; sample_rows: [S] int32; turns: [S] int32, even where nothing is to be drawn, see
        kernels.rows.gather_rows; positions: [S] int32, where each entry's token stands; results: [S] int32, written.
        Grid (S, vocabulary tiles).
        """
        _sample_kernel[(logits.shape[0], self._num_tiles)](
            logits, sample_rows, turns, positions, *self._rows, results, self._best_scores, self._best_ids,
            self._arrivals, self._constrained, *self._masks, self._vocab_size, self._spare_row,
            SPINS=_MOST_SPINS, NUM_TILES=self._num_tiles, TILE=_TILE,
            TILES_POW2=triton.next_power_of_2(self._num_tiles), num_warps=4,
        )  # fmt: skip

    def mask(self, logits: torch.Tensor, row: int) -> None:
        """Rule out, in place, what a constrained row that the host-driven sampler draws for may not sample now.

        logits: [vocab] float32.
        """
        words, stride, posted, tickets = self._masks
        _mask_kernel[(self._num_tiles,)](
            logits, words, stride, posted, tickets, row, self._vocab_size, TILE=_TILE, SPINS=_MOST_SPINS, num_warps=4
        )
        tickets[row] += 1
