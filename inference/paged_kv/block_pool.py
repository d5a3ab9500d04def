"""Ownership of fixed-size KV blocks: who holds which block, and which block goes next.

Pure Python over ints; knows nothing of tensors, tokens or turns. Not thread-safe: one scheduler owns it.

A block is *in use* while its reference count is positive, *cached* when it is free but still indexed by content
(see prefix_index), and *blank* otherwise. Free blocks wait in one intrusive doubly linked list in the order in which
they were released, so taking from its head evicts the least recently used content; every operation is O(1) a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inference.paged_kv.prefix_index import PrefixIndex

_NIL = -1


class OutOfBlocks(Exception):
    """Fewer blocks are free than were asked for. The pool is unchanged."""


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens each; ids are 0..num_blocks-1.

    >>> pool = BlockPool(num_blocks=4, block_size=16, index=PrefixIndex())
    >>> blocks = pool.allocate(2)
    >>> pool.release(blocks); pool.num_free
    4
    """

    def __init__(self, num_blocks: int, block_size: int, index: PrefixIndex) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.index = index
        self._ref_counts = [0] * num_blocks
        # Slot num_blocks is the list's sentinel: its next is the head, its previous the tail.
        self._next = [*range(1, num_blocks + 1), 0]
        self._prev = [num_blocks, *range(num_blocks)]
        self.num_free = num_blocks
        self.num_cached = 0  # free blocks whose content can still be found

    @property
    def num_in_use(self) -> int:
        return self.num_blocks - self.num_free

    def ref_count(self, block_id: int) -> int:
        return self._ref_counts[block_id]

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks with one reference each, forgetting what they cached. Raises OutOfBlocks."""
        if count > self.num_free:
            raise OutOfBlocks(f"{count} blocks wanted, {self.num_free} free")
        taken = []
        for _ in range(count):
            block_id = self._next[self.num_blocks]
            self._unlink(block_id)
            self.index.forget(block_id)
            self._ref_counts[block_id] = 1
            taken.append(block_id)
        return taken

    def acquire(self, block_ids: Iterable[int]) -> None:
        """Add a reference to each block; a cached one leaves the free list with its content intact."""
        for block_id in block_ids:
            if self._ref_counts[block_id] == 0:
                self._unlink(block_id)
            self._ref_counts[block_id] += 1

    def release(self, block_ids: Sequence[int]) -> None:
        """Drop a reference to each block of one table, given in table order.

        Blocks free up from the table's end: a chain's tail is useless without its head, so it is evicted first.
        """
        for block_id in reversed(block_ids):
            assert self._ref_counts[block_id] > 0, f"block {block_id} released twice"
            self._ref_counts[block_id] -= 1
            if self._ref_counts[block_id] == 0:
                self._append(block_id)

    def check_integrity(self) -> None:
        """Raise AssertionError unless the list, the counts and the index agree. O(num_blocks); for tests."""
        listed = []
        block_id = self._next[self.num_blocks]
        while block_id != self.num_blocks:
            assert self._prev[self._next[block_id]] == block_id, f"links of block {block_id} disagree"
            listed.append(block_id)
            assert len(listed) <= self.num_blocks, "the free list has a cycle"
            block_id = self._next[block_id]
        assert len(listed) == self.num_free, f"{len(listed)} blocks listed, {self.num_free} counted free"
        unreferenced = {block_id for block_id, refs in enumerate(self._ref_counts) if refs == 0}
        assert set(listed) == unreferenced, "free list and reference counts disagree"
        assert self.num_cached == len(unreferenced & self.index.block_ids()), "the count of cached blocks is off"
        self.index.check_integrity()

    def _unlink(self, block_id: int) -> None:
        before, after = self._prev[block_id], self._next[block_id]
        self._next[before], self._prev[after] = after, before
        self._next[block_id] = self._prev[block_id] = _NIL
        self.num_free -= 1
        self.num_cached -= block_id in self.index.block_ids()

    def _append(self, block_id: int) -> None:
        sentinel = self.num_blocks
        tail = self._prev[sentinel]
        self._next[tail] = self._prev[sentinel] = block_id
        self._prev[block_id], self._next[block_id] = tail, sentinel
        self.num_free += 1
        self.num_cached += block_id in self.index.block_ids()
