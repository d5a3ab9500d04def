"""The id under which a client and the log speak of the same request."""

from __future__ import annotations

import re
from secrets import token_hex

from starlette.datastructures import Headers

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


def request_id(headers: Headers) -> str:
    """The client's own, when it sent a usable one."""
    for name in ("x-request-id", "x-client-request-id"):
        given = headers.get(name, "")
        if _REQUEST_ID.fullmatch(given):
            return given
    return f"req_{token_hex(12)}"
