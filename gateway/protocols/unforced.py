"""Warnings that hold only where decoding cannot force a call or a format. Whether it can is the backend's to know."""

from __future__ import annotations


class Unforced(str):
    """One of a turn's warnings, told apart from the others by its class."""

    __slots__ = ()


FORCED_CALL = Unforced("tool_choice is treated as auto: decoding cannot force a call yet")


def forced_format(field: str, fate: str = "ignored") -> Unforced:
    return Unforced(f"{field} is {fate}: decoding cannot force a format yet")
