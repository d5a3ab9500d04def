"""Cutoffs of top-k, top-p and min-p against a plain float64 reference, and against the sampler's own filters.

Runs on CUDA. With TRITON_INTERPRET=1 the same tests run on the CPU, slowly, in Triton's interpreter.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton")

from inference.runner.kernels.filters import Filters  # noqa: E402
from inference.runner.kernels.rows import DRAWS, IS_LAST  # noqa: E402
from inference.runner.sampler import restrict  # noqa: E402
from tests.testkit.kernels import DEVICE, INTERPRETED, RUNS_KERNELS  # noqa: E402

pytestmark = RUNS_KERNELS


@dataclass(frozen=True, slots=True)
class Row:
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    temperature: float = 1.0
    is_skipped: bool = False


class Batch:
    """Rows in some other order than their entries; scratch and outputs are poisoned before each call."""

    def __init__(self, rows: list[Row], vocab_size: int, tile: int = 4096) -> None:
        def column(values: list[float], dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=DEVICE)

        self.rows = rows
        self.order = torch.randperm(len(rows), device=DEVICE)
        self.temperatures = column([row.temperature for row in rows], torch.float32)
        self.top_ps = column([row.top_p for row in rows], torch.float32)
        self.min_ps = column([row.min_p for row in rows], torch.float32)
        self.filters = Filters(
            self.temperatures, column([row.top_k for row in rows], torch.int32), self.top_ps, self.min_ps,
            column([row.is_skipped for row in rows], torch.int32), vocab_size, len(rows) + 1, tile, tile,
        )  # fmt: skip

    def cutoffs(
        self, logits: torch.Tensor, allowed: torch.Tensor | None = None, turn: int = DRAWS | IS_LAST
    ) -> torch.Tensor:
        """logits, allowed: [rows, vocab], by row. Likewise the result."""
        filters = self.filters
        for scratch in filters._scratch[:-1]:  # the last are counters, which each call leaves at 0
            scratch.fill_(math.nan if scratch.is_floating_point() else 0x7FC0DEAD)
        filters._cutoffs.fill_(math.nan)
        entries = logits[self.order].contiguous()
        original = entries.clone()
        turns = torch.full((len(self.rows),), turn, dtype=torch.int32, device=DEVICE)
        masks = _packed(torch.zeros_like(logits, dtype=torch.bool) if allowed is None else allowed[self.order])
        use_masks = torch.full_like(turns, allowed is not None)
        found = filters(entries, self.order.to(torch.int32), turns, masks, use_masks)
        assert torch.equal(entries.view(torch.int32), original.view(torch.int32)), "logits are only read"
        assert filters._cutoffs[len(self.rows) :].isnan().all(), "nothing is written past the entries"
        return torch.empty_like(found).index_copy(0, self.order, found)

    def check(self, logits: torch.Tensor, allowed: torch.Tensor | None = None) -> torch.Tensor:
        """Returns what is kept of each row."""
        cutoffs = self.cutoffs(logits, allowed)
        present = logits > -torch.inf
        if allowed is not None:
            present &= allowed
        kept = present & (logits >= cutoffs[:, None])
        for index, row in enumerate(self.rows):
            expected, is_near = _expected(logits[index], present[index], self._as_seen(index))
            assert ((kept[index] == expected) | is_near).all(), (row, int(kept[index].sum()), int(expected.sum()))
        return kept

    def _as_seen(self, index: int) -> Row:
        """The row with its parameters rounded as the device has them."""
        rounded = (float(column[index]) for column in (self.top_ps, self.min_ps, self.temperatures))
        return Row(self.rows[index].top_k, *rounded, is_skipped=self.rows[index].is_skipped)


def _packed(allowed: torch.Tensor) -> torch.Tensor:
    """A bit a token, lowest first; what lies past the vocabulary is allowed, to no effect."""
    bits = np.ones((len(allowed), -(-allowed.shape[1] // 32) * 32), np.bool_)
    bits[:, : allowed.shape[1]] = allowed.cpu().numpy()
    return torch.from_numpy(np.packbits(bits, axis=1, bitorder="little").view(np.int32)).to(DEVICE)


def _expected(
    logits: torch.Tensor, present: torch.Tensor, row: Row, tolerance: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which tokens are kept, and which are too near a limit for float32 to say; by sorting, in float64."""
    near = torch.zeros_like(present)
    if row.is_skipped or row.temperature == 0 or not present.any():
        return present, near
    scores = torch.where(present, logits.double() / row.temperature, -torch.inf)
    kept = present.clone()
    if row.min_p > 0:
        limit = scores.max() + math.log(row.min_p)
        kept &= scores >= limit
        if row.min_p < 1:
            near |= (scores - limit).abs() < tolerance * limit.abs().clamp(min=1)
    if 0 < row.top_k < len(scores):
        kept &= scores >= scores.sort(descending=True).values[row.top_k - 1]
    if row.top_p < 1:
        left = torch.where(kept, scores, -torch.inf)
        in_order, ids = left.sort(descending=True)
        firsts = torch.searchsorted(-in_order, -in_order)  # of equals, where the first stands
        mass = in_order.softmax(-1)
        before = (mass.cumsum(-1) - mass)[firsts]
        kept[ids] &= (before < row.top_p) | (firsts == 0)
        near[ids] |= ((before - row.top_p).abs() < tolerance) & (firsts > 0)
    return kept, near


def _logits(kind: str, rows: int, vocab_size: int) -> torch.Tensor:
    noise = torch.randn(rows, vocab_size, device=DEVICE)
    match kind:
        case "flat":
            return noise
        case "peaked":
            return noise * 2 + 25 * torch.rand(rows, vocab_size, device=DEVICE).pow(40)
        case "ties":
            return (noise * 3).round() / 2
        case "equal":
            return torch.full_like(noise, -3.25)
        case "wide":
            return noise * 1e4
        case "sparse":
            return torch.where(torch.rand_like(noise) < 0.02, noise * 3, -torch.inf)
        case "outliers":
            return torch.where(torch.rand_like(noise) < 0.01, noise * 1e30, noise)
    raise AssertionError(kind)


KINDS = ["flat", "peaked", "ties", "equal", "wide", "sparse", "outliers"]
COMBINED = [
    Row(*values)
    for values in itertools.product([0, 1, 40, 500], [1.0, 0.9, 0.3, 1e-9], [0.0, 0.1, 1.0], [1.0, 0.6])
]
LARGE = [
    Row(top_k=50), Row(top_p=0.9), Row(top_k=20, top_p=0.95, temperature=0.6), Row(top_k=9_000, top_p=0.5),
    Row(top_p=0.99, min_p=0.05), Row(top_p=0.999, temperature=1.5), Row(top_k=31_000), Row(),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("vocab_size", "tile"), [(1, 16), (7, 16), (1000, 128), (1000, 1024)])
def test_what_is_kept_is_what_the_reference_keeps(kind, vocab_size, tile):
    rows = random.sample(COMBINED, 3 if INTERPRETED else 33)
    Batch(rows, vocab_size, tile).check(_logits(kind, len(rows), vocab_size))


@pytest.mark.parametrize("kind", ["flat", "peaked", "ties", "sparse"])
@pytest.mark.parametrize("vocab_size", [32_003] if INTERPRETED else [32_003, 151_936])
def test_what_is_kept_of_a_large_vocabulary_is_what_the_reference_keeps(kind, vocab_size):
    rows = random.sample(LARGE, 2) if INTERPRETED else LARGE
    Batch(rows, vocab_size).check(_logits(kind, len(rows), vocab_size))


@pytest.mark.parametrize("row", [Row(top_k=300), Row(top_p=0.9), Row(top_k=700, top_p=0.8, min_p=1e-4)])
def test_a_cut_far_down_is_found_among_candidates_of_many_chunks(row):
    """All but a few logits lie closely together, below what is set aside while measuring."""
    logits = torch.randn(2, 1000, device=DEVICE) * 1e-3
    logits[:, torch.randperm(1000)[:20]] += 3
    Batch([row] * 2, 1000, tile=128).check(logits)


def test_a_cut_is_found_wherever_it_lies_between_pivots():
    """In a row as small as the sample every logit's rank is known: pivots are the first, second, third, fifth ..."""
    rows = [Row(top_k=top_k) for top_k in ([4, 5, 6, 7, 226, 227, 255] if INTERPRETED else range(1, 256))]
    logits = torch.randn(len(rows), 256, device=DEVICE)
    assert Batch(rows, 256, tile=256).check(logits).sum(1).tolist() == [row.top_k for row in rows]


@pytest.mark.parametrize("temperature", [1e-30, 1e-3, 50.0, 1e30])
def test_any_temperature_above_0_is_honoured(temperature):
    rows = [Row(top_p=0.9, temperature=temperature), Row(top_k=5, top_p=0.5, min_p=0.5, temperature=temperature)]
    Batch(rows, 500, tile=128).check(_logits("flat", 2, 500))


@pytest.mark.parametrize("kind", ["flat", "peaked", "ties"])
def test_what_is_kept_is_what_the_sampler_itself_keeps(kind):
    rows = [Row(top_k=30), Row(top_k=600), Row(min_p=0.07), Row(top_k=40, min_p=0.02), Row(top_p=0.8)]
    rows = random.sample(rows, 3) if INTERPRETED else rows
    logits = _logits(kind, len(rows), 1000)
    for row, own, kept in zip(rows, logits, Batch(rows, 1000, tile=256).check(logits), strict=True):
        theirs = restrict(own.clone(), row.top_k, row.top_p, row.min_p) > -torch.inf
        _, is_near = _expected(own, torch.ones_like(kept), row, tolerance=1e-5)
        # Of equal logits where top-p cuts, a sort keeps the first; here they are all kept.
        is_tied = kept & (own == own[kept].min()) & (row.top_p < 1)
        assert ((kept == theirs) | is_tied | is_near).all()


def test_equal_logits_are_all_kept_or_all_cut():
    logits = torch.zeros(4, 100, device=DEVICE)
    logits[:, 10:15] = 1.0
    rows = [Row(top_k=1), Row(top_k=6), Row(top_p=1e-6), Row(top_p=0.9)]
    kept = Batch(rows, 100, tile=32).check(logits)
    assert kept.sum(1).tolist() == [5, 100, 5, 100]


def test_zeros_of_both_signs_are_equal():
    logits = torch.tensor([[1.0, 0.0, -0.0, -1.0, -0.0]] * 2, device=DEVICE)
    # By top-k alone, and where what top-k leaves decides how much top-p may take.
    kept = Batch([Row(top_k=2), Row(top_k=2, top_p=0.6)], 5, tile=16).check(logits)
    assert kept.tolist() == [[True, True, True, False, True]] * 2


def test_infinite_logits_and_what_is_no_number_do_no_harm():
    logits = torch.randn(3, 300, device=DEVICE)
    logits[:, 7], logits[:, 9] = torch.inf, torch.nan
    kept = logits >= Batch([Row(top_k=3), Row(top_p=0.99), Row(min_p=0.1)], 300, tile=64).cutoffs(logits)[:, None]
    assert kept.sum(1).tolist() == [3, 1, 1]
    assert kept[:, 7].all()


def test_only_what_a_mask_allows_is_filtered():
    rows = [Row(top_k=10), Row(top_p=0.7), Row(top_k=50, top_p=0.9, min_p=0.01), Row(top_p=0.5), Row(top_k=3)]
    logits = _logits("flat", len(rows), 1001)
    allowed = torch.rand_like(logits) < torch.tensor([[0.5], [0.03], [0.9], [0.0], [0.0]], device=DEVICE)
    allowed[3, 1000] = True
    batch = Batch(rows, 1001, tile=256)
    assert batch.check(logits, allowed).sum(1).tolist()[3:] == [1, 0]
    assert batch.cutoffs(logits, allowed)[4] == -torch.inf, "where nothing is allowed nothing is cut"


def test_entries_that_are_not_filtered_are_left_alone():
    rows = [
        Row(), Row(top_k=5, temperature=0.0), Row(top_k=5, is_skipped=True), Row(top_k=70), Row(top_k=4_000),
        Row(top_k=5, top_p=0.5),
    ]  # fmt: skip
    logits = torch.randn(len(rows), 70, device=DEVICE)
    batch = Batch(rows, 70, tile=32)
    assert (batch.cutoffs(logits) == -torch.inf).tolist() == [True] * 5 + [False]
    assert (batch.cutoffs(logits, turn=IS_LAST) == -torch.inf).all(), "an entry that draws nothing"
    assert all((scratch.isnan() | (scratch == 0x7FC0DEAD)).all() for scratch in batch.filters._scratch[:-1])
    assert not batch.filters._scratch[-1].any()


def test_a_row_is_cut_at_the_same_bits_alone_and_in_a_batch(monkeypatch):
    rows = [Row(top_p=0.9), Row(top_k=200, top_p=0.95), Row(top_p=0.3, min_p=0.01), Row(top_p=0.99)]
    logits = _logits("flat", len(rows), 1000)
    together = Batch(rows, 1000, tile=256).cutoffs(logits)
    # One program measures several tiles, as in a batch that is larger than there is room for.
    monkeypatch.setattr("inference.runner.kernels.filters._RESIDENT", 12)
    assert torch.equal(Batch(rows, 1000, tile=256).cutoffs(logits), together)
    for index, row in enumerate(rows):
        assert torch.equal(Batch([row], 1000, tile=256).cutoffs(logits[index : index + 1])[0], together[index])
