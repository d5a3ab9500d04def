"""Brings the masks of a pass's entries from the host's memory to the device, if they are there by now.

One program looks which masks the host has posted; then others copy those. Everybody else reads the copies: hundreds of
programs that look at one word of the host's memory are served one after another, a millisecond in all. None of it needs
the logits, so it may run beside the product that makes them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from inference.runner.device_masks import DeviceMasks
from inference.runner.kernels.rows import DRAWS

# What is known of an entry's mask: everything may come, only what its bits allow, or nothing yet.
OPEN, MASKED, UNKNOWN = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
# How often a step looks for masks that have not come, some 1.5 us each: a decode as long as its last product takes, a
# prefill a few milliseconds. A host that has not answered after seconds is gone.
DECODE_SPINS, PREFILL_SPINS, MOST_SPINS = 40, 4_000, 4_000_000
# How often it goes on looking while more than a quarter of them is missing, and nobody is free: to sit a step out
# would cost those rows more than waiting costs the others.
_PATIENT_SPINS = 300
_CHUNK = 2048


@triton.jit
def _is_missing(word, wanted):
    return (word >> 1) < (wanted >> 1)


@triton.jit
def _state(word, wanted):
    # What lets everything through up to a later position is good for this one too.
    is_open = (word % 2 != 0) & ((word >> 32) == (wanted >> 32)) & (word >= wanted)
    return tl.where(is_open, OPEN, tl.where(word == wanted, MASKED, UNKNOWN))


@triton.jit(do_not_specialize=["num_entries", "spare_row"])
def _look_kernel(
    sample_rows, turns, positions, mask_holders, posted, posted_stride, states, num_entries, spare_row,
    DRAWS: tl.constexpr, SPINS: tl.constexpr, PATIENT_SPINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """All entries in one program: a look at their words takes as long as a look at one."""
    index = tl.arange(0, BLOCK)
    inside = index < num_entries
    row = tl.load(sample_rows + index, mask=inside, other=spare_row).to(tl.int64)
    draws = inside & ((tl.load(turns + index, mask=inside, other=0) & DRAWS) != 0) & (row != spare_row)
    holder = tl.load(mask_holders + row, mask=draws, other=0)
    position = tl.load(positions + index, mask=draws, other=0) + 1
    is_held = holder != 0
    wanted = (holder.to(tl.int64) << 32) | (position.to(tl.int64) << 1)
    patient_spins = tl.where(tl.sum((draws & (holder == 0)).to(tl.int32)) == 0, PATIENT_SPINS, 0)
    num_held = tl.sum(is_held.to(tl.int32))
    at = posted + row * posted_stride
    word = tl.load(at, mask=is_held, other=0, volatile=True)
    missing = tl.sum((is_held & _is_missing(word, wanted)).to(tl.int32))
    spins = 0
    while ((missing > 0) & (spins < SPINS)) | ((missing * 4 > num_held) & (spins < patient_spins)):
        word = tl.load(at, mask=is_held, other=0, volatile=True)
        missing = tl.sum((is_held & _is_missing(word, wanted)).to(tl.int32))
        spins += 1
    tl.store(states + index, tl.where(is_held, _state(word, wanted), OPEN), mask=inside)


@triton.jit
def _copy_kernel(
    sample_rows, masks, mask_stride, words, states, NUM_WORDS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0)
    if tl.load(states + index) == MASKED:
        row = tl.load(sample_rows + index).to(tl.int64)
        at = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
        inside = at < NUM_WORDS
        bits = tl.load(masks + row * mask_stride + at, mask=inside, other=0, volatile=True)
        tl.store(words + index.to(tl.int64) * NUM_WORDS + at, bits, mask=inside)


@triton.jit
def _fetch_one_kernel(
    row, holder, position, posted, posted_stride, masks, mask_stride, words, states, SPINS: tl.constexpr,
    NUM_WORDS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The mask for `position` of the row's holder becomes the first entry's."""
    wanted = (tl.cast(holder, tl.int64) << 32) | (tl.cast(position, tl.int64) << 1)
    at_posted = posted + tl.cast(row, tl.int64) * posted_stride
    word = tl.load(at_posted, volatile=True)
    spins = 0
    while _is_missing(word, wanted) & (spins < SPINS):
        word = tl.load(at_posted, volatile=True)
        spins += 1
    state = _state(word, wanted)
    tl.store(states, state)
    if state == MASKED:
        for start in range(0, NUM_WORDS, CHUNK):
            at = start + tl.arange(0, CHUNK)
            inside = at < NUM_WORDS
            bits = tl.load(masks + tl.cast(row, tl.int64) * mask_stride + at, mask=inside, other=0, volatile=True)
            tl.store(words + at, bits, mask=inside)


class FetchedMasks:
    """Of the entries of the latest pass on one stream.

    words: [max_batch, n] int32, a bit a token, lowest first; states: [max_batch] int32, OPEN, MASKED or UNKNOWN.
    mask_holders: see SampledRows. spins: how often to look for masks that are not there.
    """

    def __init__(
        self, masks: DeviceMasks, mask_holders: torch.Tensor, max_batch: int, *, spins: int, spare_row: int
    ) -> None:
        self._masks, self._mask_holders, self._spins, self._spare_row = masks, mask_holders, spins, spare_row
        device, num_words = mask_holders.device, masks.words.stride(0)
        self.words = torch.zeros(max_batch, num_words, dtype=torch.int32, device=device)
        self.states = torch.zeros(max_batch, dtype=torch.int32, device=device)

    def __call__(self, sample_rows: torch.Tensor, turns: torch.Tensor, positions: torch.Tensor) -> None:
        """For the token after each entry that draws one; all [S] int32. Grids (1,) and (S, parts of a mask)."""
        posted, posted_stride, masks, mask_stride, words, states = self._ends()
        count, num_words = sample_rows.shape[0], self.words.stride(0)
        _look_kernel[(1,)](
            sample_rows, turns, positions, self._mask_holders, posted, posted_stride, states, count, self._spare_row,
            DRAWS=DRAWS, SPINS=self._spins, PATIENT_SPINS=_PATIENT_SPINS,
            BLOCK=max(32, triton.next_power_of_2(count)), num_warps=1,
        )  # fmt: skip
        _copy_kernel[(count, triton.cdiv(num_words, _CHUNK))](
            sample_rows, masks, mask_stride, words, states, NUM_WORDS=num_words, CHUNK=_CHUNK, num_warps=4
        )

    def rule_out(self, logits: torch.Tensor, row: int, holder: int, position: int) -> None:
        """In place, what may not stand at `position` of a constrained row whose draw cannot be put off: waits on the
        device until that is known. logits: [vocab] float32.
        """
        _fetch_one_kernel[(1,)](
            row, holder, position, *self._ends(), SPINS=MOST_SPINS, NUM_WORDS=self.words.stride(0), CHUNK=_CHUNK,
            num_warps=1,
        )  # fmt: skip
        bits = (self.words[0, :, None] >> torch.arange(32, dtype=torch.int32, device=logits.device)) & 1
        forbidden = (bits.flatten()[: logits.shape[0]] == 0) & (self.states[0] == MASKED.value)
        logits.masked_fill_(forbidden, -torch.inf)

    def _ends(self) -> tuple[torch.Tensor | int, ...]:
        posted, words = self._masks.posted, self._masks.words
        return posted, posted.stride(0), words, words.stride(0), self.words, self.states
