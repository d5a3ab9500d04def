"""Regexes for the numbers between two bounds, exact: what digits a text leaves out are zeros.

The grammar library has such regexes too. But between 0.1 and 0.11 it takes 0.10 and not 0.1, and of integers below
-2**63 the whole process dies.
"""

from __future__ import annotations

from collections.abc import Callable


def decimal_range(low: int, high: int, num_digits: int) -> str:
    """low <= number <= high, both in units of the last of `num_digits` digits behind the point, of which a text has
    as many or fewer."""
    return _signed(low, high, lambda first, last: _from_zero(first, last, num_digits))


def integer_range(low: int, high: int) -> str:
    return _signed(low, high, _integers)


def _signed(low: int, high: int, from_zero: Callable[[int, int], str]) -> str:
    assert low <= high
    options = []
    if low < 0:
        options.append("-" + from_zero(max(-high, 0), -low))
    if high >= 0:
        options.append(from_zero(max(low, 0), high))
    return _either(options)


def _from_zero(low: int, high: int, size: int) -> str:
    (first, above), (last, below) = _split(low, size), _split(high, size)
    if first == last:
        return str(first) + _fraction(_between(above, below), may_be_none=not above.strip("0"))
    digits = above.rstrip("0")
    options = [str(first) + _fraction(_at_least(digits, size) if digits else _any(1, size), may_be_none=not digits)]
    if first + 1 < last:
        options.append(_integers(first + 1, last - 1) + _fraction(_any(1, size), may_be_none=True))
    options.append(str(last) + _fraction(_at_most(below, is_first=True), may_be_none=True))
    return _either(options)


def _split(number: int, size: int) -> tuple[int, str]:
    """The whole part, and `size` digits behind the point."""
    whole, rest = divmod(number, 10**size)
    return whole, f"{rest:0{size}d}"


def _fraction(digits: str, *, may_be_none: bool) -> str:
    return rf"(?:\.{digits})?" if may_be_none else rf"\.{digits}"


def _any(low: int, high: int) -> str:
    return f"[0-9]{{{low},{high}}}" if high else ""


def _at_least(digits: str, size: int) -> str:
    """At most `size` digits that, with zeros behind them, are no less than `digits`, which end in none."""
    if not digits:
        return _any(0, size)
    digit, rest = digits[0], digits[1:]
    options = [digit + _at_least(rest, size - 1)]
    if digit < "9":
        options.append(f"[{int(digit) + 1}-9]{_any(0, size - 1)}")
    return _either(options)


def _at_most(digits: str, *, is_first: bool = False) -> str:
    """No more digits than these, and no greater number. is_first: at least one digit."""
    if not digits:
        return ""
    digit, rest = digits[0], digits[1:]
    options = [digit + _at_most(rest)]
    if digit > "0":
        options.append(f"[0-{int(digit) - 1}]{_any(0, len(rest))}")
    return _either(options) if is_first else f"(?:{'|'.join(options)})?"


def _between(low: str, high: str) -> str:
    """At least one digit, and no more than either has; both have as many."""
    size = len(low)
    shared = next((at for at in range(size) if low[at] != high[at]), size)
    exact = low.rstrip("0") or "0"
    options = [exact + (f"0{{0,{size - len(exact)}}}" if len(exact) < size else "")]
    if shared < size:
        rest = size - shared - 1
        lower, upper = int(low[shared]), int(high[shared])
        options.append(low[:shared] + low[shared] + _at_least(low[shared + 1 :].rstrip("0"), rest))
        if lower + 1 < upper:
            options.append(f"{low[:shared]}[{lower + 1}-{upper - 1}]{_any(0, rest)}")
        options.append(low[:shared] + high[shared] + _at_most(high[shared + 1 :]))
    return _either(options)


def _integers(low: int, high: int) -> str:
    options = []
    for size in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (size - 1) if size > 1 else 0)
        last = min(high, 10**size - 1)
        options.append(_same_size(str(first), str(last)))
    return _either(options)


def _same_size(low: str, high: str) -> str:
    if low == high:
        return low
    size = len(low) - 1
    if low[0] == high[0]:
        return low[0] + _same_size(low[1:], high[1:])
    first, last = int(low[0]), int(high[0])
    options = []
    if low[1:].strip("0"):
        options.append(low[0] + _same_size(low[1:], "9" * size))
        first += 1
    if high[1:].strip("9"):
        options.append(high[0] + _same_size("0" * size, high[1:]))
        last -= 1
    if first <= last:
        options.append(f"[{first}-{last}]" + (f"[0-9]{{{size}}}" if size else ""))
    return _either(options)


def _either(options: list[str]) -> str:
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"
