"""Processes that follow constrained rows, over a small tokenizer; and a runner that reads masks where they write them,
as a device would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from inference.grammar_messages import Setup
from inference.mask_ledger import MaskJob
from inference.remote_grammars import GrammarProcesses
from inference.remote_masks import RemoteMasks
from inference.shared_masks import SharedMasks
from tests.testkit.paged_runner import PagedRunner

SPECIAL_TOKENS = {"<end>": 0, "<tool_call>": 1, "</tool_call>": 2}
# What a byte that is no letter is called in such files: the first characters that are left over.
_PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_NAMES = {byte: chr(byte) for byte in _PLAIN} | {
    byte: chr(256 + number) for number, byte in enumerate(sorted(set(range(256)) - set(_PLAIN)))
}
_WORDS = (b"rain", b" of", b" the", b"the", b'",', b'":"', b"12", b"name", b"arg", b'{"', b'"}', b"xxxx", b"sea")


def write_tokenizer(folder: Path) -> int:
    """A tokenizer.json of bytes and a few words; returns how many tokens it has."""
    pieces = [_name(bytes([byte])) for byte in range(256)]
    merges = []
    for word in _WORDS:
        for end in range(2, len(word) + 1):
            if _name(word[:end]) not in pieces:
                merges.append(f"{_name(word[: end - 1])} {_name(word[end - 1 : end])}")
                pieces.append(_name(word[:end]))
    number = {name: len(SPECIAL_TOKENS) + index for index, name in enumerate(pieces)}
    added = [
        {"id": token_id, "content": name, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for name, token_id in SPECIAL_TOKENS.items()
    ]  # fmt: skip
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    content = {
        "version": "1.0", "added_tokens": added, "normalizer": None, "post_processor": None, "truncation": None,
        "padding": None, "pre_tokenizer": bytewise | {"use_regex": False}, "decoder": bytewise,
        "model": {"type": "BPE", "vocab": SPECIAL_TOKENS | number, "merges": merges, "fuse_unk": False},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return len(SPECIAL_TOKENS) + len(pieces)


@contextmanager
def grammar_processes(
    folder: Path, vocab_size: int, *, num_rows: int = 8, count: int = 2
) -> Iterator[GrammarProcesses]:
    setup = Setup(folder, vocab_size, (SPECIAL_TOKENS["<end>"],), num_rows)
    processes = GrammarProcesses(setup, SharedMasks(num_rows, vocab_size), count)
    try:
        yield processes
    finally:
        processes.close()


class RemoteRunner(PagedRunner):
    """Its masks are RemoteMasks'."""

    masks: RemoteMasks
    processes: GrammarProcesses

    @classmethod
    def over(cls, processes: GrammarProcesses, *args: Any) -> RemoteRunner:
        """args: PagedRunner's."""
        found = cls(*args)
        found.processes, found.masks = processes, RemoteMasks(processes)
        return found

    @property
    def mask_counts(self) -> tuple[int, float]:
        return self.masks.counts

    def reset_masks(self) -> None:
        self.masks.reset()

    def post_masks(self, jobs: list[MaskJob]) -> None:
        self.masks.post(jobs)

    def _mask_of(self, row: int) -> tuple[int, int, bool, list[int]]:
        """As the device understands what is posted."""
        shared = self.processes.shared
        word = int(shared.posted[row])
        if word & 1:
            return word >> 32, (word & 0xFFFFFFFF) >> 1, True, list(range(self.vocab_size))
        bits = np.unpackbits(shared.words[row].view(np.uint8), bitorder="little")[: self.vocab_size]
        return word >> 32, (word & 0xFFFFFFFF) >> 1, False, np.flatnonzero(bits).tolist()


def _name(text: bytes) -> str:
    return "".join(_NAMES[byte] for byte in text)

