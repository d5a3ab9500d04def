"""A table grows, finds its prefix, forks, and copies before it writes into what it shares."""

import pytest

from inference.paged_kv.block_pool import BlockPool, OutOfBlocks
from inference.paged_kv.block_table import BlockTable
from inference.paged_kv.prefix_index import PrefixIndex


@pytest.fixture
def pool():
    pool = BlockPool(num_blocks=8, block_size=4, index=PrefixIndex())
    yield pool
    pool.check_integrity()
    assert pool.num_in_use == 0, "a test left blocks in use"


def test_a_table_grows_by_whole_blocks_only_when_needed(pool):
    table = BlockTable(pool, salt="")
    assert table.num_missing(5) == 2
    assert len(table.grow(5)) == 2
    assert table.grow(8) == []
    assert len(table.grow(9)) == 1
    table.release()
    assert table.block_ids == []


def test_a_second_turn_finds_the_full_blocks_but_leaves_one_token_to_compute(pool):
    tokens = list(range(12))
    first = BlockTable(pool, salt="")
    first.grow(12)
    first.record_full_blocks(tokens, 12)
    second = BlockTable(pool, salt="")
    assert second.match_prefix(tokens) == 8
    assert second.block_ids == first.block_ids[:2]
    longer = BlockTable(pool, salt="")
    assert longer.match_prefix([*tokens, 99]) == 12
    other_salt = BlockTable(pool, salt="tenant")
    assert other_salt.match_prefix(tokens) == 0
    for table in (first, second, longer, other_salt):
        table.release()


def test_a_matched_table_goes_on_recording_where_the_match_ended(pool):
    first = BlockTable(pool, salt="")
    first.grow(4)
    first.record_full_blocks([1, 2, 3, 4], 4)
    second = BlockTable(pool, salt="")
    assert second.match_prefix([1, 2, 3, 4, 5]) == 4
    second.grow(8)
    second.record_full_blocks([1, 2, 3, 4, 5, 6, 7, 8], 8)
    third = BlockTable(pool, salt="")
    assert third.match_prefix([1, 2, 3, 4, 5, 6, 7, 8, 9]) == 8
    assert third.block_ids == second.block_ids
    for table in (first, second, third):
        table.release()


def test_a_fork_copies_the_shared_block_before_it_writes(pool):
    parent = BlockTable(pool, salt="")
    parent.grow(6)
    twin = parent.fork(6)
    assert twin.own(5) == (parent.block_ids[1], twin.block_ids[1])
    assert twin.block_ids[0] == parent.block_ids[0]
    assert twin.block_ids[1] != parent.block_ids[1]
    assert twin.own(5) is None
    assert parent.own(5) is None
    parent.release()
    twin.release()


def test_a_fork_leaves_out_what_the_parent_has_written_since(pool):
    parent = BlockTable(pool, salt="")
    parent.grow(8)
    parent.record_full_blocks(list(range(8)), 8)
    twin = parent.fork(4)
    assert twin.block_ids == parent.block_ids[:1]
    twin.grow(8)
    twin.record_full_blocks([0, 1, 2, 3, 9, 9, 9, 9], 8)
    reader = BlockTable(pool, salt="")
    assert reader.match_prefix([0, 1, 2, 3, 9, 9, 9, 9, 9]) == 8
    assert reader.block_ids == twin.block_ids
    for table in (parent, twin, reader):
        table.release()


def test_owning_without_a_free_block_is_refused_and_changes_nothing(pool):
    parent = BlockTable(pool, salt="")
    parent.grow(32)
    twin = parent.fork(32)
    with pytest.raises(OutOfBlocks):
        twin.own(0)
    assert twin.block_ids == parent.block_ids
    parent.release()
    twin.release()


def test_only_an_empty_table_may_match(pool):
    table = BlockTable(pool, salt="")
    table.grow(1)
    with pytest.raises(AssertionError, match="while it is empty"):
        table.match_prefix([1])
    table.release()
