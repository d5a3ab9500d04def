"""Finds blocks by content: a full block's key chains its parent's key, its tokens and the turn's salt.

Pure Python. The keys are 128-bit BLAKE2b digests (RFC 7693), so equal keys mean equal prefixes for every practical
purpose, also against prompts made to collide, and a salt keeps tenants' prefixes apart.
"""

from __future__ import annotations

from array import array
from collections.abc import KeysView, Sequence
from hashlib import blake2b

BlockKey = bytes


def root_key(salt: str) -> BlockKey:
    """The parent of a sequence's first block."""
    return blake2b(salt.encode(), digest_size=16, person=b"headrace-kv").digest()


def chain_key(parent: BlockKey, token_ids: Sequence[int]) -> BlockKey:
    """The key of the full block that follows `parent` and holds exactly `token_ids`."""
    return blake2b(parent + array("q", token_ids).tobytes(), digest_size=16, person=b"headrace-kv").digest()


class PrefixIndex:
    """A two-way map of keys and blocks. Each key has at most one block, each block at most one key."""

    def __init__(self) -> None:
        self._block_by_key: dict[BlockKey, int] = {}
        self._key_by_block: dict[int, BlockKey] = {}

    def block_ids(self) -> KeysView[int]:
        return self._key_by_block.keys()

    def find(self, key: BlockKey) -> int | None:
        return self._block_by_key.get(key)

    def record(self, key: BlockKey, block_id: int) -> None:
        """Index a full block. If another block already holds this content, that one stays the indexed one."""
        if key in self._block_by_key or block_id in self._key_by_block:
            return
        self._block_by_key[key] = block_id
        self._key_by_block[block_id] = key

    def forget(self, block_id: int) -> None:
        """Drop a block's entry, if it has one: its content is about to be overwritten."""
        key = self._key_by_block.pop(block_id, None)
        if key is not None:
            del self._block_by_key[key]

    def check_integrity(self) -> None:
        assert {block: key for key, block in self._block_by_key.items()} == self._key_by_block, "the maps disagree"
