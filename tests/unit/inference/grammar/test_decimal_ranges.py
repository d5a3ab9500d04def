import re
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from inference.grammar.decimal_ranges import decimal_range, integer_range

TEXT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]{1,3})?")
scaled = st.integers(-130_000, 130_000) | st.integers(-1500, 1500) | st.integers(-12, 12)


@settings(deadline=None)
@given(low=scaled, high=scaled, near=st.integers(-3, 3) | st.integers(-200, 200), drop=st.integers(0, 3))
def test_a_number_matches_if_and_only_if_it_lies_between_the_bounds(low, high, near, drop):
    low, high = sorted((low, high))
    expression = re.compile(decimal_range(low, high, 3))
    for number in (low, high, low + near, high + near, (low + high) // 2, 0, near, round(low, -2), round(high, -3)):
        text = f"{Decimal(number).scaleb(-3):.3f}"
        spelled = text[: len(text) - drop].rstrip(".") if drop and not text[-drop:].strip("0") else text
        assert TEXT.fullmatch(spelled), spelled
        assert bool(expression.fullmatch(spelled)) == (low <= number <= high), (low, high, spelled)


@settings(deadline=None)
@given(low=scaled, high=scaled)
def test_every_match_is_a_number_as_json_spells_it(low, high):
    low, high = sorted((low, high))
    expression = re.compile(decimal_range(low, high, 3))
    for text in ("", "-", ".5", "1.", "01", "-01.5", "1.2345", "+1", "1e3", " 1", "--1"):
        assert not expression.fullmatch(text), text


def test_no_text_ends_with_its_point_whatever_the_bounds():
    bounds = [-2000, -1500, -1000, -999, -1, 0, 1, 999, 1000, 1001, 1500, 2000, 3000, 12_000]
    for num_digits in (1, 3):
        for low in bounds:
            for high in (bound for bound in bounds if bound >= low):
                expression = re.compile(decimal_range(low, high, num_digits))
                for whole in range(-200, 1201):
                    assert not expression.fullmatch(f"{whole}."), (low, high, num_digits, whole)
                assert not expression.fullmatch("-0."), (low, high)


@settings(deadline=None)
@given(low=scaled, high=scaled, near=st.integers(-3, 3) | st.integers(-20_000, 20_000))
def test_an_integer_matches_if_and_only_if_it_lies_between_the_bounds(low, high, near):
    low, high = sorted((low, high))
    expression = re.compile(integer_range(low, high))
    for number in (low, high, low + near, high + near, (low + high) // 2, 0, near, low * 10, high // 10):
        assert bool(expression.fullmatch(str(number))) == (low <= number <= high), (low, high, number)
    assert not expression.fullmatch(f"0{abs(low)}")
