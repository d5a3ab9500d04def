from decimal import Decimal

import pytest

from stream_parser.json_value import MAX_DEPTH, JsonError, Number, dump, parse, type_name


def test_numbers_keep_their_text():
    for text in ("12345678901234567890123", "1e400", "-0.10", "3.0", "9" * 10_000):
        assert dump(parse(text)) == text


def test_a_value_comes_back_in_the_common_spelling():
    text = '{"a": [1, true, false, null, "x\\"é"], "b": {}}'
    assert dump(parse(text.replace(" ", ""))) == text


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "NaN", "[Infinity]", "1 2", "01"])
def test_what_is_not_json_is_refused(text):
    with pytest.raises(JsonError) as caught:
        parse(text)
    assert not caught.value.is_too_deep


def test_nesting_is_bounded():
    def nested(depth):
        return "[" * depth + "]" * depth

    assert dump(parse(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    with pytest.raises(JsonError) as caught:
        parse(nested(MAX_DEPTH + 1))
    assert caught.value.is_too_deep
    brackets_in_strings = '["' + "[{" * MAX_DEPTH + '", {}, {}]'
    assert dump(parse(brackets_in_strings)) == brackets_in_strings


def test_whole_numbers_are_integers_however_they_are_spelled():
    names = [type_name(parse(text)) for text in ("3", "3.0", "3e2", "3.5", "1e400", "1e-400", "1e99999999999999999999")]
    assert names == ["integer", "integer", "integer", "number", "integer", "number", "number"]
    assert [type_name(parse(t)) for t in ("null", "true", '"x"', "[]", "{}")] == [
        "null", "boolean", "string", "array", "object",
    ]  # fmt: skip


def test_an_exponent_out_of_all_bounds_counts_as_infinity():
    assert Number("1e99999999999999999999").decimal == Decimal("Infinity")
    assert Number("-1e99999999999999999999").decimal == Decimal("-Infinity")
