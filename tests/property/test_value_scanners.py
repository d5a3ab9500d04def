"""What holds for every text that a scanner may meet, and for every way to cut it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_parser.json_scanner import JsonScanner
from stream_parser.lax_args import LaxScanner
from stream_parser.python_args import PythonScanner
from stream_parser.repair import REASONS
from stream_parser.schema import ToolIndex
from tests.testkit.scanning import begins_json, scan

TOOL = ToolIndex(
    [
        {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "array", "items": {"type": "string"}},
                    "c": {"type": "object"},
                    "d": {"type": "string"},
                },
            },
        }
    ]
).get("f")

SCANNERS = {
    "json": lambda: JsonScanner(),
    "json with stops": lambda: JsonScanner(stops="<[`"),
    "json with types": lambda: JsonScanner(types=TOOL.types),
    "any json": lambda: JsonScanner(expect="any"),
    "python": lambda: PythonScanner(),
    "python with types": lambda: PythonScanner(types=TOOL.param("b"), stops="<"),
    "positional": lambda: PythonScanner(keyword=False),
    "lax": lambda: LaxScanner(delimiter='<|"|>', tool=TOOL),
    "lax with stops": lambda: LaxScanner(delimiter="<escape>", stops="<"),
}

ATOMS = [
    *"{}[](),:\"'\\\n ab01-.e#`<>=;+_\t\x01é🙂\ud83d\ude80“”‘’",
    '"a"', '"b":', "'c'", '{"a": ', '", "b": ', '"}', "]}", "true", "None", "Tr", "nul", "NaN", "//", "/*", "*/",
    "```json", '<|"|>', "<escape>", '\\"', "\\n", "\\u00e9", "\\ud83d", "\\ude80", "\\x41", "\\U0001F600", "\\0", "f(",
    'r"', '"""', "'''", "x y", "0x1",
]  # fmt: skip
garbage = st.lists(st.sampled_from(ATOMS), max_size=24).map("".join)
openings = st.sampled_from(["", "{", '"', "'", "[", '{"a": "', "{'a': '", '"{\\"a\\": '])

TRICKY = ["a", "it's", 'say "hi"', "x, y", '": ', '"}', "], [", "//", "</tool_call>", "é", "\\", "\n"]
strings = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.lists(st.sampled_from(TRICKY)).map("".join),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | strings,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4),
    max_leaves=12,
)
json_objects = st.dictionaries(strings, json_values, max_size=4)


def pieces(text: str, marks: list[float]) -> list[str]:
    places = sorted(int(mark * len(text)) for mark in marks)
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


marks = st.lists(st.floats(0, 1), max_size=4)


@pytest.mark.parametrize("name", SCANNERS)
@given(opening=openings, tail=garbage, marks=marks)
def test_any_text_gives_the_same_valid_json_however_it_is_cut(name, opening, tail, marks):
    make, text = SCANNERS[name], opening + tail
    whole = scan(make, [text])
    assert scan(make, list(text)) == whole
    assert scan(make, pieces(text, marks)) == whole
    whole.text.encode()
    json.loads(whole.text)
    assert set(whole.reasons) <= REASONS


@pytest.mark.parametrize("name", SCANNERS)
@given(opening=openings, tail=garbage, marks=marks, end=st.floats(0, 1))
def test_a_cut_text_gives_the_beginning_of_what_the_whole_gives(name, opening, tail, marks, end):
    make, text = SCANNERS[name], opening + tail
    cut = text[: int(end * len(text))]
    result = scan(make, [cut], complete=False)
    assert scan(make, list(cut), complete=False) == result
    assert scan(make, pieces(cut, marks), complete=False) == result
    assert scan(make, [text]).text.startswith(result.text)
    result.text.encode()
    assert begins_json(result.text)


@pytest.mark.parametrize("stops", ["", "<[`"])
@given(
    value=json_objects,
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
    separators=st.sampled_from([None, (",", ":"), (" , ", " : ")]),
    marks=marks,
)
def test_valid_json_passes_verbatim(stops, value, ascii_only, indent, separators, marks):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    result = scan(lambda: JsonScanner(stops=stops), [*pieces(text, marks), " tail"])
    assert (result.text, result.reasons, result.rest) == (text, (), " tail")


@given(value=json_objects.filter(bool), marks=marks)
def test_an_object_encoded_twice_is_the_object(value, marks):
    text = json.dumps(value)
    result = scan(JsonScanner, pieces(json.dumps(text), marks))
    assert (result.text, result.reasons) == (text, ("double_encoded",))


@given(value=json_values, marks=marks)
def test_a_python_literal_is_its_value(value, marks):
    result = scan(PythonScanner, [*pieces(repr(value), marks), ")", "]"])
    assert json.loads(result.text) == value
    assert (result.reasons, result.rest) == ((), ")]")


def lax(value: object) -> str:
    match value:
        case str():
            return f'<|"|>{value}<|"|>'
        case list():
            return "[" + ",".join(map(lax, value)) + "]"
        case dict():
            return "{" + ",".join(f'<|"|>{key}<|"|>:{lax(item)}' for key, item in value.items()) + "}"
        case _:
            return json.dumps(value)


@given(value=json_objects, marks=marks)
def test_a_lax_object_is_its_value(value, marks):
    result = scan(lambda: LaxScanner(delimiter='<|"|>'), pieces(lax(value), marks))
    assert json.loads(result.text) == value
    assert result.reasons == ()
