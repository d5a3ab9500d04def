"""What the sampling kernel draws, against the sampler on fresh random logits, and which rows wait for their masks.

Runs on CUDA. With TRITON_INTERPRET=1 the same tests run on the CPU, slowly, in Triton's interpreter.
"""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton")

from inference.mask_ledger import MaskJob  # noqa: E402
from inference.runner.device_masks import DeviceMasks  # noqa: E402
from inference.runner.kernels import fetched_masks  # noqa: E402
from inference.runner.kernels.fetched_masks import FetchedMasks  # noqa: E402
from inference.runner.kernels.rows import DECODES_ONE, DRAWS, IS_LAST, TURN  # noqa: E402
from inference.runner.kernels.sampling import SampledRows, Sampling  # noqa: E402
from inference.runner.sampler import exponential_noise  # noqa: E402
from inference.step import LATE  # noqa: E402
from tests.testkit.kernels import DEVICE, INTERPRETED, RUNS_KERNELS  # noqa: E402

pytestmark = RUNS_KERNELS


@pytest.mark.parametrize("vocab_size", [4096, 9001])
def test_sampling_draws_what_the_reference_draws(vocab_size):
    rows = 5
    sampled = SampledRows.zeros(rows, 64, DEVICE)
    sampled.kinds[3] = 1
    sampled.temperatures[:] = torch.tensor([0.0, 1.0, 0.7, 1.0, 1.5])
    sampled.noise_keys[:] = torch.tensor([1, 2**62 + 12345, 77, 5, 999])
    token_ids, lengths, temperatures, keys = (
        sampled.token_ids, sampled.lengths, sampled.temperatures, sampled.noise_keys,
    )  # fmt: skip
    masks = DeviceMasks(rows, vocab_size, torch.device(DEVICE))
    fetched = FetchedMasks(masks, sampled.mask_holders, 8, spins=0, spare_row=2)
    sampling = Sampling(sampled, fetched, vocab_size, max_batch=8, spare_row=2)
    logits = torch.randn(4, vocab_size, device=DEVICE) * 2
    logits[0, 100] = logits[0, 4000] = logits[0].max() + 1  # a tie goes to the first
    sample_rows = torch.tensor([0, 4, 1, 3], dtype=torch.int32, device=DEVICE)
    positions = torch.tensor([5, 9, 20, 30], dtype=torch.int32, device=DEVICE)
    results = torch.full((4,), -7, dtype=torch.int32, device=DEVICE)
    ones = torch.full((4,), DECODES_ONE, dtype=torch.int32, device=DEVICE)
    lengths.fill_(-3)
    turns = torch.tensor([DECODES_ONE, TURN, IS_LAST, DRAWS + TURN], dtype=torch.int32, device=DEVICE)
    sampling(logits, sample_rows, turns, positions, results)
    assert results.tolist() == [100, -7, -7, -7], "only entries that draw do so, and of skipped rows none"
    assert lengths.tolist() == [6, 21, -3, -3, -3], "a row's last entry says how long it is"
    for _ in range(2):
        sampling(logits, sample_rows, ones, positions, results)
        assert results[0] == 100
        for index in (1, 2):
            row, position = int(sample_rows[index]), int(positions[index]) + 1
            noise = exponential_noise(int(keys[row]), position, vocab_size, DEVICE)
            assert results[index] == (logits[index] / temperatures[row] - noise.log()).argmax()
            assert token_ids[row, position] == results[index]
        assert results[3] == -7, "such a row is left to the host"
        assert lengths[sample_rows.long()].tolist() == [6, 10, 21, 31]


class _Only:
    """A matcher that allows these tokens, or everything."""

    def __init__(self, token_ids: list[int] | None) -> None:
        self.token_ids = token_ids

    def mask(self, out: np.ndarray) -> bool:
        if self.token_ids is None:
            return False
        bits = np.zeros(out.size * 32, np.uint8)
        bits[self.token_ids] = 1
        out[:] = np.packbits(bits, bitorder="little").view(np.int32)
        return True


class _Rows:
    """Rows that sample from what is drawn for them, all at position 8."""

    def __init__(self, vocab_size: int, holders: list[int], temperatures: list[float], spins: int) -> None:
        count = len(holders)
        self.masks = DeviceMasks(count, vocab_size, torch.device(DEVICE))
        self.rows = SampledRows.zeros(count, 64, DEVICE)
        self.rows.token_ids.fill_(-5)
        self.rows.temperatures[:] = torch.tensor(temperatures)
        self.rows.noise_keys[:] = torch.arange(1, count + 1)
        self.rows.mask_holders[:] = torch.tensor(holders)
        self.fetched = FetchedMasks(self.masks, self.rows.mask_holders, count, spins=spins, spare_row=99)
        self.sampling = Sampling(self.rows, self.fetched, vocab_size, max_batch=count, spare_row=99)
        self.logits = torch.randn(count, vocab_size, device=DEVICE) * 3

    def draw(self, position: int = 8, into: torch.Tensor | None = None) -> list[int] | None:
        count = len(self.logits)
        rows = torch.arange(count, dtype=torch.int32, device=DEVICE)
        results = torch.zeros(count, dtype=torch.int32, device=DEVICE) if into is None else into
        turns = torch.full_like(rows, DECODES_ONE)
        positions = torch.full_like(rows, position - 1)
        self.fetched(rows, turns, positions)
        self.sampling(self.logits, rows, turns, positions, results)
        return results.tolist() if into is None else None


@pytest.mark.parametrize("vocab_size", [4096, 9001])
def test_a_constrained_row_samples_what_its_mask_allows_and_the_others_what_they_would(vocab_size):
    temperatures = [0.0, 1.0, 1.0, 0.0]
    rows = _Rows(vocab_size, [3, 7, 0, 2**31 - 1], temperatures, spins=3)
    free = _Rows(vocab_size, [0, 0, 0, 0], temperatures, spins=3)
    free.logits = rows.logits
    unmasked = free.draw()
    allowed = {0: sorted(random.sample(range(vocab_size), 40)), 1: [vocab_size - 1]}
    rows.masks.post([MaskJob(0, 3, 8, _Only(allowed[0])), MaskJob(1, 7, 8, _Only(allowed[1]))])
    rows.masks.post([MaskJob(3, 2**31 - 1, 8, _Only(None))])
    results = rows.draw()
    assert results == [allowed[0][int(rows.logits[0, allowed[0]].argmax())], vocab_size - 1, *unmasked[2:]]
    assert rows.rows.token_ids[:, 8].tolist() == results
    assert rows.rows.lengths.tolist() == [8] * 4

    row = rows.logits[0].clone()
    rows.fetched.rule_out(row, 0, 3, 8)
    kept = torch.isfinite(row).nonzero().flatten().tolist()
    assert kept == allowed[0]
    assert torch.equal(row[kept], rows.logits[0, kept])


def test_what_lets_everything_through_up_to_a_later_place_is_good_for_earlier_ones():
    rows = _Rows(5000, [3, 3, 3], [0.0, 0.0, 0.0], spins=2)
    rows.masks.post([MaskJob(0, 3, 12, None), MaskJob(1, 4, 12, None), MaskJob(2, 3, 7, None)])
    assert rows.draw() == [int(rows.logits[0].argmax()), LATE, LATE]


@pytest.mark.parametrize(("holder", "position"), [(3, 7), (3, 9), (2, 8), (2, 2**30), (4, 1), (0, 0)])
def test_a_row_whose_mask_has_not_come_or_is_anothers_stays_where_it_is(holder, position):
    rows = _Rows(5000, [3, 0], [0.0, 0.0], spins=2)
    rows.masks.post([MaskJob(0, holder, position, _Only([5]))])
    results = rows.draw()
    assert results == [LATE, int(rows.logits[1].argmax())]
    assert rows.rows.lengths.tolist() == [7, 8]
    assert (rows.rows.token_ids[0] == -5).all()
    rows.masks.post([MaskJob(0, 3, 8, _Only([17]))])
    if holder <= 3 and (holder, position) <= (3, 8):
        assert rows.draw() == [17, results[1]]
        assert rows.rows.lengths.tolist() == [8, 8]


def test_a_filtered_row_draws_what_its_cutoff_leaves_and_only_when_it_is_asked():
    rows = _Rows(5000, [0, 0, 0], [1.0, 1.0, 0.0], spins=0)
    plain = rows.draw()
    rows.rows.kinds[:2] = 2
    rows.rows.token_ids.fill_(-5)
    assert rows.draw()[2] == plain[2]
    assert rows.rows.token_ids[:, 8].tolist() == [-5, -5, plain[2]]
    assert rows.rows.lengths.tolist() == [8, 8, 8]
    entries = torch.arange(3, dtype=torch.int32, device=DEVICE)
    results = torch.full_like(entries, -7)
    cutoffs = torch.tensor([-torch.inf, float(rows.logits[1].max()), 1e9], device=DEVICE)
    turns = torch.full_like(entries, DECODES_ONE)
    rows.sampling(rows.logits, entries, turns, torch.full_like(entries, 7), results, cutoffs)
    assert results.tolist() == [plain[0], int(rows.logits[1].argmax()), -7]


def test_a_row_that_stays_where_it_is_does_so_beside_filtered_ones():
    rows = _Rows(5000, [4, 0, 0], [0.0, 1.0, 0.0], spins=2)
    rows.rows.kinds[1] = 2
    rows.rows.lengths.fill_(-9)
    assert rows.draw()[0] == LATE
    entries = torch.arange(3, dtype=torch.int32, device=DEVICE)
    turns, cutoffs = torch.full_like(entries, DECODES_ONE), torch.full((3,), -torch.inf, device=DEVICE)
    rows.sampling(rows.logits, entries, turns, torch.full_like(entries, 7), torch.full_like(entries, -7), cutoffs)
    assert rows.rows.lengths.tolist() == [7, 8, 8]


def test_a_filtered_row_draws_what_its_mask_and_its_cutoff_leave():
    rows = _Rows(5000, [4, 0, 6], [1.0, 1.0, 1.0], spins=2)
    rows.rows.kinds.fill_(2)
    allowed = sorted(random.sample(range(5000), 300))
    rows.masks.post([MaskJob(0, 4, 8, _Only(allowed))])
    rows.draw()
    entries = torch.arange(3, dtype=torch.int32, device=DEVICE)
    results, turns = torch.full_like(entries, -7), torch.full_like(entries, DECODES_ONE)
    cutoffs = torch.full((3,), float(rows.logits[0, allowed].median()), device=DEVICE)
    rows.sampling(rows.logits, entries, turns, torch.full_like(entries, 7), results, cutoffs)
    scores = [rows.logits[i] - exponential_noise(i + 1, 8, 5000, DEVICE).log() for i in range(3)]
    scores = [torch.where(rows.logits[i] >= cutoffs[i], scores[i], -torch.inf) for i in range(3)]
    assert results.tolist() == [allowed[int(scores[0][allowed].argmax())], int(scores[1].argmax()), LATE]
    assert rows.rows.lengths.tolist() == [8, 8, 7]


def test_an_end_token_is_not_drawn_before_its_time():
    rows = _Rows(5000, [0, 0, 0], [0.0, 1.0, 0.0], spins=0)
    first = rows.draw()
    for index, token in enumerate(first):
        rows.rows.end_ids[index, index] = token
    rows.rows.no_end_before[:] = torch.tensor([9, 9, 8])
    without = rows.draw()
    rows.logits[0, first[0]] = -torch.inf
    assert without[0] == int(rows.logits[0].argmax())
    assert without[1] != first[1]
    assert without[2] == first[2], "its time has come"


@pytest.mark.skipif(INTERPRETED, reason="the interpreter does not run beside the host")
def test_a_mask_may_come_after_its_step_was_launched():
    rows = _Rows(5000, [1], [0.0], spins=4_000_000)
    results = [torch.full((1,), -7, dtype=torch.int32, device=DEVICE) for _ in range(3)]
    torch.cuda.synchronize()
    for index, result in enumerate(results):
        rows.draw(8 + index, result)
    done = torch.cuda.Event()
    done.record()
    for index in range(3):
        assert not done.query()
        time.sleep(0.05)
        rows.masks.post([MaskJob(0, 1, 8 + index, _Only([1000 * index]))])
    done.synchronize()
    assert [int(result) for result in results] == [0, 1000, 2000]


@pytest.mark.skipif(INTERPRETED, reason="the interpreter does not run beside the host")
def test_a_step_waits_for_most_masks_if_nobody_is_free_and_for_none_of_them_else(monkeypatch):
    monkeypatch.setattr(fetched_masks, "_PATIENT_SPINS", 4_000_000)
    beside_free = _Rows(5000, [1, 1, 1, 1, 0], [0.0] * 5, spins=2)
    assert beside_free.draw() == [LATE] * 4 + [int(beside_free.logits[4].argmax())]
    rows = _Rows(5000, [1, 1, 1, 1], [0.0] * 4, spins=2)
    result = torch.full((4,), -7, dtype=torch.int32, device=DEVICE)
    torch.cuda.synchronize()
    rows.draw(8, result)
    done = torch.cuda.Event()
    done.record()
    for index in range(3):
        time.sleep(0.05)
        assert not done.query()
        rows.masks.post([MaskJob(index, 1, 8, _Only([1000 + index]))])
    done.synchronize()
    assert result.tolist() == [1000, 1001, 1002, LATE]
