"""Values on the command line: a function for each kind, which argparse calls with what was typed."""

from __future__ import annotations

import argparse
import re

MIB = 1024 * 1024

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_SIZE_FACTORS = {"": 1, "K": 1024, "M": MIB, "G": 1024 * MIB, "T": MIB * MIB}


class ConfigError(ValueError):
    """The command line cannot be followed; the message names the option."""


def positive(text: str) -> int:
    value = int(text) if text.isascii() and text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return value


def count(text: str) -> int:
    return 0 if text == "0" else positive(text)


def port(text: str) -> int:
    value = int(text) if text.isascii() and text.isdecimal() else -1
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"must be a port number from 0 to 65535, got {text!r}")
    return value


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return value


def seconds_or_zero(text: str) -> float:
    return 0.0 if text == "0" else seconds(text)


def size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    value = int(float(match[1]) * _SIZE_FACTORS[match[2].upper()]) if match else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a size as 512MiB or 4GiB, got {text!r}")
    return value
