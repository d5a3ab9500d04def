"""Finds, on the device, where top-k, top-p and min-p cut a row's logits: tokens below the cutoff may not be drawn.

Exact, whatever the logits. A few sampled logits serve as pivots, and many programs count and weigh what reaches each of
them. Then one program an entry knows between which pivots a cut must lie, and bisects what lies there. Equal logits are
all kept or all cut. Reference: sampler.restrict.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from inference.runner.kernels.rows import DRAWS

_TILE = 4096  # logits measured together: how they are added up depends on nothing else
_STEP = 256
_CHUNK = 8192  # candidates looked at together
_SAMPLE = 256  # logits of a row that pivots are taken from
_PIVOTS = 32
# What reaches this pivot is set aside while it is measured, about 4 of 256 parts of a row: as a rule the cut is in it.
_HEAD = tl.constexpr(4)
# As many measuring programs as an H200 runs at once, each thread on so few registers: they come and go in one wave.
_RESIDENT, _REGISTERS = 384, 80

# Logits are compared by keys: int32, ordered as the floats are.
_ABSENT = tl.constexpr(-(2**31))  # below all keys: a token that was ruled out before, or past the vocabulary
_LOWEST = tl.constexpr(-2139095041)  # the key of -inf
# Weights of single tokens are added up as integers, since the order of candidates varies. 2**21 of the heaviest fit.
_UNIT = tl.constexpr(2.0**42)


@triton.jit
def _key_of(x):
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)  # -0 is 0
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _value_of(key):
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _keys_at(source, ids):
    """source: the entry's logits, its mask, whether that applies, and the vocabulary's size."""
    logits, mask, is_masked, vocab_size = source
    inside = ids < vocab_size
    x = tl.load(logits + ids, mask=inside, other=-float("inf"))
    if is_masked:
        words = tl.load(mask + ids // 32, mask=inside, other=0)
        inside = inside & ((words >> (ids % 32)) & 1 != 0)
    return tl.where(inside & (x > -float("inf")), _key_of(x), _ABSENT)


@triton.jit
def _weights(keys, most, temperature):
    """Probabilities over that of the key `most`, the largest."""
    x = tl.where(keys == _ABSENT, -float("inf"), _value_of(keys))
    return tl.where(keys == most, 1.0, tl.exp2((x - _value_of(most)) * (1.4426950408889634 / temperature)))


@triton.jit
def _at(values, steps, step):
    """values[step]; 0 before the first."""
    return tl.sum(tl.where(steps == step, values, 0))


@triton.jit
def _pivots_of(source, SAMPLE: tl.constexpr, PIVOTS: tl.constexpr):
    """PIVOTS keys of the row, descending, closer together at the top; the last is below all that are present."""
    _, _, _, vocab_size = source
    keys = tl.sort(_keys_at(source, tl.arange(0, SAMPLE).to(tl.int64) * vocab_size // SAMPLE), descending=True)
    steps = tl.arange(0, PIVOTS)
    ranks = steps * steps * SAMPLE // (PIVOTS * PIVOTS)
    return tl.where(steps == PIVOTS - 1, _LOWEST, tl.maximum(tl.gather(keys, ranks, axis=0), _LOWEST))


@triton.jit
def _reaching(
    source, first, pivots, most, temperature, BY_MASS: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr,
    PIVOTS: tl.constexpr,
):  # fmt: skip
    """How many of a tile's tokens reach each pivot, or what they weigh: [PIVOTS] float32."""
    reaching = tl.zeros([PIVOTS, STEP], tl.float32)
    for start in range(first, first + TILE, STEP):
        keys = _keys_at(source, start + tl.arange(0, STEP))
        each = _weights(keys, most, temperature) if BY_MASS else tl.full([STEP], 1.0, tl.float32)
        reaching += tl.where(keys[None, :] >= pivots[:, None], each[None, :], 0.0)
    return tl.sum(reaching, axis=1)


@triton.jit
def _merge(measured, params, NUM_TILES: tl.constexpr, TILES_POW2: tl.constexpr, PIVOTS: tl.constexpr):
    """The row's largest key, and how many of its keys reach each pivot and what they weigh, in units."""
    counts, masses, maxima = measured
    temperature, top_k, top_p, _ = params
    tiles = tl.arange(0, TILES_POW2)
    known = tiles < NUM_TILES
    tops = tl.load(maxima + tiles, mask=known, other=_ABSENT)
    most = tl.max(tops)
    at = tiles[:, None] * PIVOTS + tl.arange(0, PIVOTS)[None, :]
    count, mass = tl.zeros([PIVOTS], tl.int32), tl.zeros([PIVOTS], tl.float64)
    if top_k > 0:
        count = tl.sum(tl.load(counts + at, mask=known[:, None], other=0), axis=0)
    if top_p < 1:
        parts = tl.load(masses + at, mask=known[:, None], other=0.0).to(tl.float64)
        mass = tl.sum(parts * _weights(tops, most, temperature).to(tl.float64)[:, None], axis=0)
    return most, count, (mass * _UNIT).to(tl.int64)


@triton.jit
def _share(top_p, mass):
    """The units of weight that make up top_p of `mass`; the likeliest token alone is always some."""
    return tl.maximum(tl.ceil(top_p.to(tl.float64) * mass.to(tl.float64)).to(tl.int64), 1)


@triton.jit
def _window(pivots, count, mass, floor, top_k, top_p, by_count, by_mass, PIVOTS: tl.constexpr):
    """(top, bottom): where top-k and top-p cut is below the pivot before `top` and not below the pivot `bottom`."""
    steps = tl.arange(0, PIVOTS)
    bottom = tl.sum((pivots > floor).to(tl.int32))
    if by_count:
        bottom = tl.minimum(bottom, tl.sum((count < top_k).to(tl.int32)))
    top = bottom
    if by_mass:
        is_whole = (floor == _LOWEST) & (by_count == 0)
        # What top-k and min-p leave ends between the pivots bottom - 1 and bottom; it weighs the first's mass at least.
        least = _at(mass, steps, tl.where(is_whole, bottom, bottom - 1))
        top = tl.sum((mass < _share(top_p, least)).to(tl.int32))
        bottom = tl.where(is_whole, top, bottom)
    return top, bottom


@triton.jit
def _place(candidates, keys, chosen, at):
    tl.store(candidates + at + tl.cumsum(chosen.to(tl.int32)) - 1, keys, mask=chosen, cache_modifier=".cg")


@triton.jit
def _gather(source, candidates, lowest, highest, CHUNK: tl.constexpr):
    """All keys of the row from `lowest` to `highest` become its candidates; returns how many."""
    _, _, _, vocab_size = source
    num = 0
    for start in range(0, vocab_size, CHUNK):
        keys = _keys_at(source, start + tl.arange(0, CHUNK))
        chosen = (keys >= lowest) & (keys <= highest)
        _place(candidates, keys, chosen, num)
        num += tl.sum(chosen.to(tl.int32))
    tl.debug_barrier()
    return num


@triton.jit
def _candidates_at(candidates, start, num, CHUNK: tl.constexpr):
    at = start + tl.arange(0, CHUNK)
    return tl.load(candidates + at, mask=at < num, other=_ABSENT, cache_modifier=".cg")


@triton.jit
def _units(keys, most, temperature, BY_MASS: tl.constexpr):
    return (_weights(keys, most, temperature) * _UNIT).to(tl.int64) if BY_MASS else tl.full(keys.shape, 1, tl.int32)


@triton.jit
def _above(key, first, first_units, candidates, num, most, temperature, BY_MASS: tl.constexpr, CHUNK: tl.constexpr):
    """The candidates above `key`, counted or weighed. The first chunk stays in registers, and is all as a rule."""
    total = tl.sum(tl.where(first > key, first_units, 0))
    for start in range(CHUNK, num, CHUNK):
        keys = _candidates_at(candidates, start, num, CHUNK)
        total += tl.sum(tl.where(keys > key, _units(keys, most, temperature, BY_MASS), 0))
    return total


@triton.jit
def _search(
    goal, base, lowest, highest, first, first_units, candidates, num, most, temperature, BY_MASS: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """A key from `lowest` to `highest` that cuts where the least one does with less than `goal` above it, of `base` and
    candidates: nothing lies between the two."""
    while lowest < highest:
        middle = (lowest & highest) + ((lowest ^ highest) >> 1)
        above = base + _above(middle, first, first_units, candidates, num, most, temperature, BY_MASS, CHUNK)
        highest = tl.where(above <= goal, middle, highest)  # if equal, this ends: just what is above is kept
        lowest = tl.where(above < goal, lowest, middle + 1)
    return lowest


@triton.jit
def _floor(most, temperature, min_p):
    """The least key that min-p leaves."""
    floor = _LOWEST
    if min_p > 0:
        floor = tl.minimum(_key_of(_value_of(most) + temperature * tl.log(min_p)), most)
    return floor


@triton.jit
def _cut(source, candidates, num, pivots, most, count, mass, params, PIVOTS: tl.constexpr, CHUNK: tl.constexpr):
    """The least key that all filters leave. num: candidates, which reach the pivot _HEAD; count, mass: see _merge."""
    temperature, top_k, top_p, min_p = params
    steps = tl.arange(0, PIVOTS)
    cut = _floor(most, temperature, min_p)
    by_count = (top_k > 0) & (top_k < _at(count, steps, PIVOTS - 1))
    by_mass = top_p < 1
    if by_count | by_mass:
        top, bottom = _window(pivots, count, mass, cut, top_k, top_p, by_count, by_mass, PIVOTS)
        lowest = tl.maximum(cut, _at(pivots, steps, bottom))
        highest = tl.where(top == 0, most, _at(pivots, steps, top - 1) - 1)
        base = -1  # the candidates are all there is down to the lowest key
        if bottom > _HEAD:
            num = _gather(source, candidates, lowest, highest, CHUNK)
            base = top - 1
        first = _candidates_at(candidates, 0, num, CHUNK)
        if by_count:
            ones = _units(first, most, temperature, False)
            more = _at(count, steps, base)
            cut = _search(top_k, more, lowest, highest, first, ones, candidates, num, most, temperature, False, CHUNK)
            lowest = cut
        if by_mass:
            units = _units(first, most, temperature, True)
            heavier = _at(mass, steps, base)
            left = _at(mass, steps, PIVOTS - 1)
            if cut > _LOWEST:
                left = heavier + _above(cut - 1, first, units, candidates, num, most, temperature, True, CHUNK)
            goal = _share(top_p, left)
            cut = _search(goal, heavier, lowest, highest, first, units, candidates, num, most, temperature, True, CHUNK)
    return cut


@triton.jit
def _read(index, logits, entries, rows, masks, vocab_size, DRAWS: tl.constexpr):
    """What an entry draws from, see _keys_at; what filters it; whether anything does."""
    sample_rows, turns = entries
    temperatures, top_ks, top_ps, min_ps, skips = rows
    words, stride, use_masks = masks
    row = tl.load(sample_rows + index).to(tl.int64)
    is_drawn = ((tl.load(turns + index) & DRAWS) != 0) & (tl.load(skips + row) == 0)
    temperature, top_p, min_p = tl.load(temperatures + row), tl.load(top_ps + row), tl.load(min_ps + row)
    top_k = tl.load(top_ks + row)
    top_k = tl.where(top_k < vocab_size, top_k, 0)  # 0 is off
    is_filtered = is_drawn & (temperature > 0) & ((top_k > 0) | (top_p < 1) | (min_p > 0))
    is_masked = tl.load(use_masks + index) != 0
    source = (logits + index.to(tl.int64) * vocab_size, words + index * stride, is_masked, vocab_size)
    return source, (temperature, top_k, top_p, min_p), is_filtered


@triton.jit(do_not_specialize=["tiles_each"])
def _measure_kernel(
    logits, entries, rows, masks, scratch, vocab_size, tiles_each, NUM_TILES: tl.constexpr, TILE: tl.constexpr,
    STEP: tl.constexpr, SAMPLE: tl.constexpr, PIVOTS: tl.constexpr, DRAWS: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0)
    part = tl.program_id(1)
    source, params, is_filtered = _read(index, logits, entries, rows, masks, vocab_size, DRAWS)
    if is_filtered:
        temperature, top_k, top_p, _ = params
        pivots, counts, masses, maxima, candidates, num_candidates = scratch
        steps = tl.arange(0, PIVOTS)
        of_row = _pivots_of(source, SAMPLE, PIVOTS)  # the same in each program
        if part == 0:
            tl.store(pivots + index * PIVOTS + steps, of_row)
        for tile in range(part * tiles_each, tl.minimum(NUM_TILES, (part + 1) * tiles_each)):
            at = index * NUM_TILES + tile
            keys = _keys_at(source, tile * TILE + tl.arange(0, TILE))
            most = tl.max(keys)
            tl.store(maxima + at, most)
            if top_k > 0:
                count = _reaching(source, tile * TILE, of_row, most, temperature, False, TILE, STEP, PIVOTS)
                tl.store(counts + at * PIVOTS + steps, count.to(tl.int32))
            if top_p < 1:
                mass = _reaching(source, tile * TILE, of_row, most, temperature, True, TILE, STEP, PIVOTS)
                tl.store(masses + at * PIVOTS + steps, mass)
            chosen = keys >= _at(of_row, steps, _HEAD)
            start = tl.atomic_add(num_candidates + index, tl.sum(chosen.to(tl.int32)), sem="relaxed")
            _place(candidates + index.to(tl.int64) * vocab_size, keys, chosen, start)


@triton.jit
def _cut_kernel(
    logits, entries, rows, masks, scratch, vocab_size, cutoffs, NUM_TILES: tl.constexpr, TILES_POW2: tl.constexpr,
    PIVOTS: tl.constexpr, CHUNK: tl.constexpr, DRAWS: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0)
    source, params, is_filtered = _read(index, logits, entries, rows, masks, vocab_size, DRAWS)
    cutoff = -float("inf")
    if is_filtered:
        pivots, counts, masses, maxima, candidates, num_candidates = scratch
        at = index * NUM_TILES
        measured = (counts + at * PIVOTS, masses + at * PIVOTS, maxima + at)
        most, count, mass = _merge(measured, params, NUM_TILES, TILES_POW2, PIVOTS)
        if most > _ABSENT:
            of_row = tl.load(pivots + index * PIVOTS + tl.arange(0, PIVOTS))
            mine = candidates + index.to(tl.int64) * vocab_size
            num = tl.load(num_candidates + index)
            cutoff = _value_of(_cut(source, mine, num, of_row, most, count, mass, params, PIVOTS, CHUNK))
        tl.store(num_candidates + index, 0)
    tl.store(cutoffs + index, cutoff)


class Filters:
    """The kernels and their scratch. One stream only.

    temperatures, top_ps (1: off), min_ps (0: off): [max_rows] float32; top_ks (0: off), skips: [max_rows] int32; a row
    whose `skips` is not 0 is somebody else's. Greedy rows are not filtered: the likeliest token always stays.
    """

    def __init__(
        self, temperatures: torch.Tensor, top_ks: torch.Tensor, top_ps: torch.Tensor, min_ps: torch.Tensor,
        skips: torch.Tensor, vocab_size: int, max_batch: int, tile: int = _TILE, chunk: int = _CHUNK,
    ) -> None:  # fmt: skip
        self._rows = (temperatures, top_ks, top_ps, min_ps, skips)
        self._vocab_size, self._tile, self._chunk = vocab_size, tile, chunk
        self._num_tiles = num_tiles = triton.cdiv(vocab_size, tile)
        device = temperatures.device
        self._scratch = (
            torch.empty(max_batch * _PIVOTS, dtype=torch.int32, device=device),  # pivots
            torch.empty(max_batch * num_tiles * _PIVOTS, dtype=torch.int32, device=device),  # counts
            torch.empty(max_batch * num_tiles * _PIVOTS, dtype=torch.float32, device=device),  # masses
            torch.empty(max_batch * num_tiles, dtype=torch.int32, device=device),  # maxima
            torch.empty(max_batch * vocab_size, dtype=torch.int32, device=device),  # candidates
            torch.zeros(max_batch, dtype=torch.int32, device=device),  # num_candidates
        )
        self._cutoffs = torch.empty(max_batch, dtype=torch.float32, device=device)

    def __call__(
        self, logits: torch.Tensor, sample_rows: torch.Tensor, turns: torch.Tensor, masks: torch.Tensor,
        use_masks: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Cutoffs, [S] float32, until the next call: an entry may draw what is not below its own; -inf cuts nothing.

        logits: [S, vocab] float32, contiguous; sample_rows: [S] int32; turns: [S] int32, see kernels.rows; masks: [S,
        >= vocab / 32] int32, a bit a token, lowest first; use_masks: [S] int32, 1 where the entry's mask rules tokens
        out before the filters do. Grids (S, parts of the vocabulary) and (S,).
        """
        num = logits.shape[0]
        tiles_each = triton.cdiv(self._num_tiles * num, _RESIDENT)
        entries, masked = (sample_rows, turns), (masks, masks.stride(0), use_masks)
        arguments = (logits, entries, self._rows, masked, self._scratch, self._vocab_size)
        _measure_kernel[(num, triton.cdiv(self._num_tiles, tiles_each))](
            *arguments, tiles_each, NUM_TILES=self._num_tiles, TILE=self._tile, STEP=min(_STEP, self._tile),
            SAMPLE=_SAMPLE, PIVOTS=_PIVOTS, DRAWS=DRAWS, num_warps=8,
            maxnreg=_REGISTERS,
        )  # fmt: skip
        # At least two tiles: over an axis of one, Triton 3.6 was seen to add up wrong numbers.
        tiles_pow2 = max(2, triton.next_power_of_2(self._num_tiles))
        _cut_kernel[(num,)](
            *arguments, self._cutoffs, NUM_TILES=self._num_tiles, TILES_POW2=tiles_pow2, PIVOTS=_PIVOTS,
            CHUNK=self._chunk, DRAWS=DRAWS, num_warps=16,
        )  # fmt: skip
        return self._cutoffs[:num]
