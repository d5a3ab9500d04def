"""What can be read of JSON that was cut off, for answers that have no place for half a value."""

from __future__ import annotations

import re

from stream_parser.json_scanner import JsonScanner

_STRING = re.compile(r'"(?:[^"\\]|\\.)*("?)', re.DOTALL)
_WORD = re.compile(r"[^\s,:{}\[\]\"]+")
_WHOLE_WORDS = ("true", "false", "null")


def completed(text: str) -> str:
    """The text with what is open in it closed; "" where nothing can be read. Valid JSON otherwise."""
    scanner = JsonScanner(expect="any")
    scanner.feed(text)
    scanner.end(True)
    return scanner.take()


def without_open_member(text: str) -> str:
    """Cut before a member that has no value yet: half a key, a key alone, or half a word for a value.

    What is written of a string or a number stays, since a value's beginning is better than none. One pass.
    """
    in_object: list[bool] = []  # for each container that is open
    expects_key = False
    member = None  # where the open member begins, while it has no value
    end = at = 0  # `end`: behind the last whole thing, where a cut leaves no comma
    while at < len(text):
        char = text[at]
        if char == '"':
            found = _STRING.match(text, at)
            assert found is not None
            if expects_key:
                member, expects_key = end, False
            else:
                member = None
            at = found.end()
            end = end if member is not None else at
            continue
        word = _WORD.match(text, at)
        if word is not None:
            at = word.end()
            is_half = at == len(text) and word[0].isalpha() and word[0] not in _WHOLE_WORDS
            if member is not None and not is_half:
                member, end = None, at
            continue
        at += 1
        if char in "{[":
            in_object.append(char == "{")
            expects_key, member, end = char == "{", None, at
        elif char in "}]":
            if in_object:
                in_object.pop()
            expects_key, member, end = False, None, at
        elif char == ",":
            expects_key = bool(in_object) and in_object[-1]
    return text if member is None else text[:member]
