"""The paged backend equals plain attention over the tokens, whatever blocks they lie in."""

import random

import pytest
import torch

from inference.paged_kv.pool import KVLayout, KVPool
from inference.runner.attention import TorchAttention
from inference.runner.input_batch import Span, StepInputs, prepare
from inference.runner.request_rows import RequestRows
from inference.step import BlockWrite, NewRow, ScheduledRow, StepPlan
from inference.types import SamplingParams

HEADS, KV_HEADS, DIM, BLOCK = 6, 2, 8, 4


def _reference(query, keys, values, start, window, soft_cap):
    """One row's attention, written out. query: [n, heads, dim]; keys, values: [total, kv_heads, dim]."""
    keys, values = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query, keys) * DIM**-0.5
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    at = torch.arange(start, start + len(query))[:, None]
    visible = torch.arange(len(keys)) <= at
    if window is not None:
        visible &= torch.arange(len(keys)) > at - window
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~visible, -torch.inf).softmax(-1), values)


@pytest.mark.parametrize(("window", "soft_cap"), [(None, 0.0), (5, 0.0), (None, 0.7), (5, 0.7)])
@pytest.mark.parametrize("seed", range(4))
def test_mixed_decodes_and_prefills_equal_the_reference(seed, window, soft_cap):
    rng = random.Random(seed)
    lengths = [rng.randint(1, 60) for _ in range(7)]
    num_blocks = sum(-(-length // BLOCK) for length in lengths)
    pool = KVPool(KVLayout(1, KV_HEADS, DIM, BLOCK, torch.float32), num_blocks + 5, torch.device("cpu"))
    for poisoned in (pool.keys[0], pool.values[0]):
        poisoned.fill_(1e4)
    rows = RequestRows(len(lengths), 64, BLOCK)
    free = rng.sample(range(num_blocks + 5), num_blocks)
    writes = []
    for row, length in enumerate(lengths):
        writes.append(BlockWrite(row, 0, tuple(free.pop() for _ in range(-(-length // BLOCK)))))
    news = tuple(NewRow(row, (0,) * n, n, SamplingParams(), 0, 0, ()) for row, n in enumerate(lengths))
    keys = [torch.randn(length, KV_HEADS, DIM) for length in lengths]
    values = [torch.randn(length, KV_HEADS, DIM) for length in lengths]
    backend = TorchAttention(pool)

    def run(scheduled, num_decodes, **changes):
        plan = StepPlan(rows=tuple(scheduled), num_decodes=num_decodes, num_stepped=num_decodes, **changes)
        rows.apply(plan)
        step = prepare(plan, rows, BLOCK)
        query = torch.randn(plan.num_tokens, HEADS, DIM)
        pick = [(row.row, slice(row.start, row.start + row.num_tokens)) for row in scheduled]
        key, value = (torch.cat([of[row][part] for row, part in pick]) for of in (keys, values))
        out = backend(0, query, key, value, step, scale=DIM**-0.5, window=window, soft_cap=soft_cap)
        first = 0
        for row, part in pick:
            count = part.stop - part.start
            expected = _reference(
                query[first : first + count], keys[row][: part.stop], values[row][: part.stop], part.start, window,
                soft_cap,
            )  # fmt: skip
            assert torch.allclose(out[first : first + count], expected, atol=1e-5)
            first += count

    heads = [rng.randint(0, length - 1) for length in lengths]
    prefills = [ScheduledRow(row, 0, head, False) for row, head in enumerate(heads) if head]
    run(prefills, 0, new_rows=news, block_writes=tuple(writes))
    decodes = [ScheduledRow(row, heads[row], 1, True) for row in range(5)]
    run([*decodes, *(ScheduledRow(row, heads[row], lengths[row] - heads[row], True) for row in (5, 6))], 5)


@pytest.mark.parametrize("soft_cap", [0.0, 2.0])
def test_a_row_gets_the_same_bits_alone_and_among_others(soft_cap):
    pool = KVPool(KVLayout(1, 1, 256, 16, torch.float32), 100, torch.device("cpu"))
    pool.keys[0].normal_()
    pool.values[0].normal_()
    query, key, value = torch.randn(5, 4, 256), torch.randn(5, 1, 256), torch.randn(5, 1, 256)

    def run(rows):
        at = torch.tensor(rows)
        blocks = at[:, None] * 20 + torch.arange(20)
        positions = torch.full((len(rows), 1), 319)
        span = Span(0, len(rows), 1, 320, blocks.flatten(), positions)
        step = StepInputs(at, at, blocks[:, -1] * 16 + 15, at, rows, rows, [span])
        return TorchAttention(pool)(0, query[at], key[at], value[at], step, scale=0.3, soft_cap=soft_cap)

    together = run([0, 1, 2, 3, 4])
    for row in range(5):
        assert torch.equal(run([row])[0], together[row])
