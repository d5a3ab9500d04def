"""Blocks are never lost, never handed out twice, and the least recently used content goes first."""

import random

import pytest

from inference.paged_kv.block_pool import BlockPool, OutOfBlocks
from inference.paged_kv.prefix_index import PrefixIndex, chain_key, root_key


@pytest.fixture
def pool():
    pool = BlockPool(num_blocks=8, block_size=4, index=PrefixIndex())
    yield pool
    pool.check_integrity()


def test_allocated_blocks_are_distinct_and_counted(pool):
    blocks = pool.allocate(5)
    assert len(set(blocks)) == 5
    assert (pool.num_free, pool.num_in_use) == (3, 5)
    pool.release(blocks)
    assert pool.num_free == 8


def test_asking_for_more_than_is_free_changes_nothing(pool):
    held = pool.allocate(6)
    with pytest.raises(OutOfBlocks, match="3 blocks wanted, 2 free"):
        pool.allocate(3)
    assert pool.num_free == 2
    pool.release(held)


def test_a_shared_block_is_free_only_after_its_last_holder_lets_go(pool):
    (block,) = pool.allocate(1)
    pool.acquire([block])
    assert pool.ref_count(block) == 2
    pool.release([block])
    assert pool.num_in_use == 1
    pool.release([block])
    assert pool.num_in_use == 0


def test_releasing_twice_is_our_bug(pool):
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(blocks)


def test_cached_content_survives_release_and_is_evicted_in_lru_order_tail_first(pool):
    key_1 = chain_key(root_key(""), [1, 2, 3, 4])
    key_2 = chain_key(key_1, [5, 6, 7, 8])
    table = pool.allocate(2)
    pool.index.record(key_1, table[0])
    pool.index.record(key_2, table[1])
    pool.release(table)
    assert pool.num_cached == 2
    taken = pool.allocate(6)  # the blank ones went first
    assert pool.index.find(key_1) is not None
    assert pool.index.find(key_2) is not None
    taken += pool.allocate(1)
    assert pool.index.find(key_2) is None, "a chain loses its tail before its head"
    assert pool.index.find(key_1) == table[0]
    pool.release(taken)


def test_an_acquired_cached_block_leaves_the_free_list_with_its_content(pool):
    key = chain_key(root_key(""), [1, 2, 3, 4])
    table = pool.allocate(1)
    pool.index.record(key, table[0])
    pool.release(table)
    pool.acquire(table)
    others = pool.allocate(7)
    assert pool.index.find(key) == table[0]
    with pytest.raises(OutOfBlocks):
        pool.allocate(1)
    pool.release(others)
    pool.release(table)


def test_equal_content_keeps_its_first_block_in_the_index(pool):
    key = chain_key(root_key(""), [1, 2, 3, 4])
    first, second = pool.allocate(2)
    pool.index.record(key, first)
    pool.index.record(key, second)
    assert pool.index.find(key) == first
    pool.release([first, second])
    assert pool.num_cached == 1


def test_salts_keep_equal_tokens_apart():
    assert chain_key(root_key("a"), [1, 2]) != chain_key(root_key("b"), [1, 2])
    assert chain_key(root_key("a"), [1, 2]) != chain_key(root_key("a"), [2, 1])


def test_ten_thousand_random_operations_leave_the_pool_whole():
    rng = random.Random(20261130)
    pool = BlockPool(num_blocks=64, block_size=4, index=PrefixIndex())
    tables: list[list[int]] = []
    for number in range(10_000):
        match rng.randrange(4):
            case 0 if pool.num_free >= 5:
                table = pool.allocate(rng.randint(1, 5))
                for block in table:
                    pool.index.record(chain_key(root_key(""), [number, block]), block)
                tables.append(table)
            case 1 if tables:
                pool.release(tables.pop(rng.randrange(len(tables))))
            case 2 if tables:
                twin = list(rng.choice(tables))
                pool.acquire(twin)
                tables.append(twin)
            case 3:
                cached = [block for block in pool.index.block_ids() if pool.ref_count(block) == 0]
                if cached:
                    block = rng.choice(cached)
                    pool.acquire([block])
                    tables.append([block])
        if number % 500 == 0:
            pool.check_integrity()
    for table in tables:
        pool.release(table)
    pool.check_integrity()
    assert pool.num_free == 64
