"""Texts and items that a client carries for us: `encrypted_content` of reasoning and compaction items.

Clients must send it back as it is and not look inside. It is compressed and encoded, not encrypted: nothing in it is
hidden from the client, whose own conversation it is.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

import orjson

from gateway.protocols.json_body import check_depth

_PREFIX = "headrace1."
MAX_UNSEALED_BYTES = 32 * 1024 * 1024


def seal(value: Any) -> str:
    packed = zlib.compress(orjson.dumps(value), 6)
    return _PREFIX + base64.urlsafe_b64encode(packed).decode()


class Unsealer:
    """Opens what one request carries, `max_bytes` in all: a megabyte of zeros compresses to a kilobyte. What does not
    fit costs work as well, so of that no more than as much again is unpacked."""

    def __init__(self, max_bytes: int = MAX_UNSEALED_BYTES) -> None:
        self._num_bytes_left = max_bytes
        self._num_bytes_unpacked_left = 2 * max_bytes

    def open(self, text: str) -> Any:
        """What `seal` was given; None for a text that is not ours, is damaged or does not fit any more.

        Raises InvalidRequest for what is nested deeper than a body may be.
        """
        if not text.startswith(_PREFIX):
            return None
        try:
            packed = base64.b64decode(text.removeprefix(_PREFIX), altchars=b"-_", validate=True)
            unpacker = zlib.decompressobj()
            # A limit of 0 would mean "none".
            limit = min(self._num_bytes_left, self._num_bytes_unpacked_left)
            raw = unpacker.decompress(packed, limit + 1)
            self._num_bytes_unpacked_left = max(0, self._num_bytes_unpacked_left - len(raw))
            if not unpacker.eof or len(raw) > limit:
                return None
            self._num_bytes_left -= len(raw)
            value = orjson.loads(raw)
        except (binascii.Error, zlib.error, ValueError):
            return None
        check_depth(value)
        return value
