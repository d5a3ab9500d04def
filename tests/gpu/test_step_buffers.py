"""What a step sends and gets back: by its memory's graphs and, where it is too much for them, by launches."""

from __future__ import annotations

import random

import pytest
import torch

pytest.importorskip("triton")

from inference.runner.step_buffers import StepBuffersPool

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(100),
]


@pytest.fixture
def pool():
    arena = torch.zeros(200_000, dtype=torch.int32, device="cuda")
    made = StepBuffersPool(8, arena)
    yield arena, made
    torch.cuda.synchronize()
    made.forget()


def _writes(count: int, longest: int) -> list[tuple[int, list[int]]]:
    starts = sorted(random.sample(range(0, 200_000 - longest, longest), count))
    return [(start, [random.randrange(1 << 30) for _ in range(random.randint(0, longest))]) for start in starts]


@pytest.mark.parametrize(("count", "longest"), [(1, 1), (20, 9), (64, 30), (65, 3), (3, 6000)])
def test_writes_arrive_by_a_graph_and_without_one(pool, count, longest):
    arena, buffers_pool = pool
    stream = torch.cuda.Stream()
    results = torch.arange(5, dtype=torch.int32, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    expected = arena.clone().cpu()
    for is_captured in (False, True, True):
        if is_captured:
            buffers_pool.capture(stream, (results,))
        for _ in range(6):  # more than there are buffers: each is used again
            with torch.cuda.stream(stream):
                buffers = buffers_pool.take()
                writes = _writes(count, longest)
                buffers.apply(writes)
                results += 1
                buffers.fetch(results)
            for start, values in writes:
                expected[start : start + len(values)] = torch.tensor(values, dtype=torch.int32)
            assert buffers.wait()[:5] == results.tolist()
            assert buffers.is_done
            assert torch.equal(arena.cpu(), expected)
            buffers_pool.give_back(buffers)


def test_steps_beyond_the_usual_get_buffers_of_their_own(pool):
    arena, buffers_pool = pool
    results = torch.arange(8, dtype=torch.int32, device="cuda")
    taken = [buffers_pool.take() for _ in range(9)]
    for index, buffers in enumerate(taken):
        buffers.apply([(index, [index + 1])])
        buffers.fetch(results)
    assert [buffers.wait() for buffers in taken] == [list(range(8))] * 9
    assert arena[:9].tolist() == list(range(1, 10))
