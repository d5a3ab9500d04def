"""The blocks of one sequence, in token order, with copy-on-write sharing.

Pure Python over ints. A table grows with its sequence, finds its head in the prefix index, records its full blocks
there, and forks for another continuation of the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from inference.paged_kv.block_pool import BlockPool
from inference.paged_kv.prefix_index import BlockKey, chain_key, root_key


class BlockTable:
    """`block_ids[i]` holds tokens [i * block_size, (i + 1) * block_size) of the sequence."""

    def __init__(self, pool: BlockPool, salt: str) -> None:
        self._pool = pool
        self.block_ids: list[int] = []
        self._keys: list[BlockKey] = [root_key(salt)]  # _keys[i + 1] is the key of block i; only full blocks have one
        self._num_recorded = 0  # full blocks that were offered to the index

    def match_prefix(self, token_ids: Sequence[int]) -> int:
        """Adopt the cached blocks that hold the head of `token_ids`; returns how many tokens they hold.

        At least one token stays uncovered, since a step needs one to compute. Only for an empty table.
        """
        assert not self.block_ids, "a table matches its prefix once, while it is empty"
        size = self._pool.block_size
        keys = self._keys[:1]
        found = []
        for end in range(size, len(token_ids), size):
            key = chain_key(keys[-1], token_ids[end - size : end])
            block_id = self._pool.index.find(key)
            if block_id is None:
                break
            keys.append(key)
            found.append(block_id)
        self._pool.acquire(found)
        self.block_ids, self._keys, self._num_recorded = found, keys, len(found)
        return len(found) * size

    def num_missing(self, num_tokens: int) -> int:
        """Blocks still to allocate before the table can hold `num_tokens` tokens."""
        return max(0, -(-num_tokens // self._pool.block_size) - len(self.block_ids))

    def grow(self, num_tokens: int) -> list[int]:
        """Allocate up to a capacity of `num_tokens` tokens; returns the new block ids. Raises OutOfBlocks."""
        new_ids = self._pool.allocate(self.num_missing(num_tokens))
        self.block_ids += new_ids
        return new_ids

    def record_full_blocks(self, token_ids: Sequence[int], num_tokens: int) -> None:
        """Index every block that the first `num_tokens` tokens fill; the steps that write them are planned already."""
        size = self._pool.block_size
        while (self._num_recorded + 1) * size <= num_tokens:
            start = self._num_recorded * size
            key = chain_key(self._keys[self._num_recorded], token_ids[start : start + size])
            self._keys.append(key)
            self._pool.index.record(key, self.block_ids[self._num_recorded])
            self._num_recorded += 1

    def fork(self, num_tokens: int) -> BlockTable:
        """A second table over the blocks of the first `num_tokens` tokens.

        Before either table writes into a shared block it must `own` it.
        """
        num_blocks = -(-num_tokens // self._pool.block_size)
        twin = BlockTable.__new__(BlockTable)
        twin._pool = self._pool
        twin.block_ids = self.block_ids[:num_blocks]
        twin._num_recorded = min(self._num_recorded, num_tokens // self._pool.block_size)
        twin._keys = self._keys[: twin._num_recorded + 1]
        self._pool.acquire(twin.block_ids)
        return twin

    def own(self, position: int) -> tuple[int, int] | None:
        """Make the block of token `position` safe to write: (source, copy) when it had to be copied, else None.

        Raises OutOfBlocks when a copy is needed and no block is free.
        """
        index = position // self._pool.block_size
        source = self.block_ids[index]
        if self._pool.ref_count(source) == 1:
            return None
        (copy,) = self._pool.allocate(1)
        self.block_ids[index] = copy
        self._pool.release([source])
        return source, copy

    def release(self) -> None:
        """Give every block back. The table is empty afterwards and may be filled again."""
        self._pool.release(self.block_ids)
        self.block_ids = []
        del self._keys[1:]
        self._num_recorded = 0
