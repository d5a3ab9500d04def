"""What can be read of JSON that was cut off, for answers that have no place for half a value."""

from __future__ import annotations

from stream_parser.json_scanner import JsonScanner


def completed(text: str) -> str:
    """The text with what is open in it closed; "" where nothing can be read. Valid JSON otherwise."""
    scanner = JsonScanner(expect="any")
    scanner.feed(text)
    scanner.end(True)
    return scanner.take()
