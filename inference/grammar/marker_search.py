"""Where the markers of calls begin and end in free text, as a matcher looks for them. Knows nothing of the library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inference.grammar.compiled_source import CompiledSource
from inference.grammar.source import Trigger


def first_trigger(
    triggers: Sequence[tuple[Trigger, bytes]], joined: bytes, num_old: int
) -> tuple[Trigger, int, int] | None:
    """The earliest trigger that ends within the new bytes, where it begins, and where it ends."""
    best: tuple[int, int, Trigger] | None = None
    for trigger, text in triggers:
        at = joined.find(text, max(num_old - len(text) + 1, 0))
        while at >= 0 and trigger.line_start and not _at_line_start(joined, at):
            at = joined.find(text, at + 1)
        if at >= 0 and (best is None or (at, -len(text)) < best[:2]):
            best = (at, -len(text), trigger)
    return None if best is None else (best[2], best[0], best[0] - best[1])


def mask_overruns(compiled: CompiledSource, tail: bytes, out: npt.NDArray[np.int32]) -> bool:
    """In free text that ends with `tail`, where the next token may complete a trigger and go on against the grammar.
    False: nothing is ruled out, and `out` is left alone."""
    banned = []
    for number, (trigger, text) in enumerate(compiled.triggers):
        for num_seen in range(1, min(len(text), len(tail) + 1)):
            counts = not trigger.line_start or _at_line_start(tail, len(tail) - num_seen)
            if counts and tail.endswith(text[:num_seen]):
                banned.append(compiled.overruns(number, num_seen))
    banned = [ids for ids in banned if len(ids)]
    if not banned:
        return False
    out[:] = -1
    words = out.view(np.uint32)
    ids = np.concatenate(banned)
    np.bitwise_and.at(words, ids >> 5, ~(np.uint32(1) << (ids & 31).astype(np.uint32)))
    return True


def ends_inside_character(text: bytes) -> bool:
    """Is the last UTF-8 character of `text` not all there?"""
    for back, byte in enumerate(reversed(text[-4:]), 1):
        if byte & 0xC0 != 0x80:
            return byte >= 0xC0 and byte != 0xFF and back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
    return False


def _at_line_start(text: bytes, at: int) -> bool:
    return at == 0 or text[:at].rstrip(b" \t").endswith(b"\n")
