"""Brings the masks of a pass's entries from the host's memory to the device, if they are there by now.

One warp an entry looks whether the host has posted the mask, and copies it. Everybody else reads the copy: hundreds of
programs that look at one word of the host's memory are served one after another, a millisecond in all.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from inference.runner.device_masks import DeviceMasks
from inference.runner.kernels.rows import DRAWS

# What is known of an entry's mask: everything may come, only what its bits allow, or nothing yet.
OPEN, MASKED, UNKNOWN = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
# How often a step looks for a mask that has not come, some 1.5 us each: a decode of everybody's next token hardly
# waits, a prefill a few milliseconds. A host that has not answered after seconds is gone.
DECODE_SPINS, PREFILL_SPINS, MOST_SPINS = 12, 4_000, 4_000_000
_CHUNK = 2048


@triton.jit
def _fetched(
    index, row, holder, position, posted, posted_stride, masks, mask_stride, words, states, SPINS: tl.constexpr,
    NUM_WORDS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The mask for `position` of the row's holder becomes the entry's."""
    wanted = (holder.to(tl.int64) << 32) | (position.to(tl.int64) << 1)
    word = tl.load(posted + row * posted_stride, volatile=True)
    spins = 0
    while ((word >> 1) < (wanted >> 1)) & (spins < SPINS):
        word = tl.load(posted + row * posted_stride, volatile=True)
        spins += 1
    # What lets everything through up to a later position is good for this one too.
    is_open = (word % 2 != 0) & ((word >> 32) == (wanted >> 32)) & (word >= wanted)
    is_masked = word == wanted
    tl.store(states + index, tl.where(is_open, OPEN, tl.where(is_masked, MASKED, UNKNOWN)))
    if is_masked:
        for start in range(0, NUM_WORDS, CHUNK):
            at = start + tl.arange(0, CHUNK)
            inside = at < NUM_WORDS
            bits = tl.load(masks + row * mask_stride + at, mask=inside, other=0, volatile=True)
            tl.store(words + index.to(tl.int64) * NUM_WORDS + at, bits, mask=inside)


@triton.jit
def _fetch_kernel(
    sample_rows, turns, positions, mask_holders, posted, posted_stride, masks, mask_stride, words, states,
    DRAWS: tl.constexpr, SPINS: tl.constexpr, NUM_WORDS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0)
    row = tl.load(sample_rows + index).to(tl.int64)
    holder = tl.load(mask_holders + row)
    if (holder != 0) & ((tl.load(turns + index) & DRAWS) != 0):
        position = tl.load(positions + index) + 1
        _fetched(
            index, row, holder, position, posted, posted_stride, masks, mask_stride, words, states, SPINS, NUM_WORDS,
            CHUNK,
        )  # fmt: skip
    else:
        tl.store(states + index, OPEN)


@triton.jit
def _fetch_one_kernel(
    row, holder, position, posted, posted_stride, masks, mask_stride, words, states, SPINS: tl.constexpr,
    NUM_WORDS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    _fetched(
        tl.program_id(0), tl.cast(row, tl.int64), tl.cast(holder, tl.int32), tl.cast(position, tl.int32), posted,
        posted_stride, masks, mask_stride, words, states, SPINS, NUM_WORDS, CHUNK,
    )  # fmt: skip


class FetchedMasks:
    """Of the entries of the latest pass on one stream.

    words: [max_batch, n] int32, a bit a token, lowest first; states: [max_batch] int32, OPEN, MASKED or UNKNOWN.
    mask_holders: see SampledRows. spins: how often to look for a mask that is not there.
    """

    def __init__(self, masks: DeviceMasks, mask_holders: torch.Tensor, max_batch: int, spins: int) -> None:
        self._masks, self._mask_holders, self._spins = masks, mask_holders, spins
        device, num_words = mask_holders.device, masks.words.stride(0)
        self.words = torch.zeros(max_batch, num_words, dtype=torch.int32, device=device)
        self.states = torch.zeros(max_batch, dtype=torch.int32, device=device)

    def __call__(self, sample_rows: torch.Tensor, turns: torch.Tensor, positions: torch.Tensor) -> None:
        """For the token after each entry that draws one; all [S] int32. Grid (S,)."""
        _fetch_kernel[(sample_rows.shape[0],)](
            sample_rows, turns, positions, self._mask_holders, *self._ends(), DRAWS=DRAWS, SPINS=self._spins,
            NUM_WORDS=self.words.stride(0), CHUNK=_CHUNK, num_warps=1,
        )  # fmt: skip

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
