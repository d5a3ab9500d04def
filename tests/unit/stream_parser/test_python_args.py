import json

import pytest

from stream_parser import repair
from stream_parser.python_args import PythonScanner
from stream_parser.references import References
from stream_parser.schema import TypeSet
from tests.testkit.scanning import scan_all_ways


@pytest.mark.parametrize(
    ("text", "value", "rest"),
    [
        ("'Oslo')]", "Oslo", ")]"),
        ('"Oslo", n=1)', "Oslo", ", n=1)"),
        ("'it\\'s \"fine\"')", 'it\'s "fine"', ")"),
        ("'C:\\\\tmp\\\\', note=1)", "C:\\tmp\\", ", note=1)"),
        ("'one' 'two'  'three')", "onetwothree", ")"),
        ("('one'\n 'two')", "onetwo", ""),
        ("'''it's \"x\"''')", 'it\'s "x"', ")"),
        ('"""a\nb""", n=1)', "a\nb", ", n=1)"),
        ("r'\\d+')", "\\d+", ")"),
        ("Rb'\\n')", "\\n", ")"),
        ("f'{x}')", "{x}", ")"),
        ("'\\x41\\u00e9\\U0001F600\\101\\0\\a\\v\\q\\/\\\n')", "Aé😀A\0\a\v\\q\\/\\\n", ")"),
        ("'\\U00110000\\U0000d800\\x4\\U12')", "\ufffd\ufffd\\x4\\U12", ")"),
        ("'\\12')", "\n", ")"),
        ("-12.05, lon=2)", -12.05, ", lon=2)"),
        ("07)", 7, ")"),
        ("1_000)", 1000, ")"),
        ("True, b=None)", True, ", b=None)"),
        ("null)", None, ")"),
        ("(640, 480))", [640, 480], ")"),
        ("((1, 2), [3], (4), ()))", [[1, 2], [3], 4, []], ")"),
        ("{'k': (1,), 'm': {'n': None}, 'o': \"p\",})", {"k": [1], "m": {"n": None}, "o": "p"}, ")"),
        ('{"a": true, "b": null})', {"a": True, "b": None}, ")"),
        ("['a', 'b, c', \"d\"], n=1)", ["a", "b, c", "d"], ", n=1)"),
    ],
)
def test_python_literals_become_json(text, value, rest):
    result = scan_all_ways(PythonScanner, text)
    assert json.loads(result.text) == value
    assert result.rest == rest
    assert not set(result.reasons) - {repair.NUMBER}


@pytest.mark.parametrize(
    ("text", "value", "rest"),
    [
        ("'sed -n '1,9p' f')]", "sed -n '1,9p' f", ")]"),
        ("'awk -F',' '{print $1}' f', n=1)", "awk -F',' '{print $1}' f", ", n=1)"),
        ("'print('a', 'b')')]", "print('a', 'b')", ")]"),
        ("'echo \"a\" 'b'', n=1)", "echo \"a\" 'b'", ", n=1)"),
        ("'x', y' , *z)", "x', y", " , *z)"),
        ("'x' ,)", "x", " ,)"),
        ("'ls 'my dir' /tmp # x')\nping()", "ls 'my dir' /tmp # x", ")\nping()"),
        ("'a'] b')]", "a'] b", ")]"),
        ("r'\\d+\\'x')", "\\d+\\'x", ")"),
        ("'raw\nline\ttab')", "raw\nline\ttab", ")"),
        ("'x';)", "x';)", ""),
        ("Oslo)", "Oslo", ")"),
        ("New York, NY, days=3)", "New York, NY", ", days=3)"),
        ("New York, NY)", "New York, NY", ")"),
        ("datetime(2026, 1, 'x'), n=1)", "datetime(2026, 1, 'x')", ", n=1)"),
        ("two\nlines)", "two\nlines", ")"),
        ("http://a.b/c?d=e#f, n=1)", "http://a.b/c?d=e#f", ", n=1)"),
        ("[1, 2)", [1, 2], ")"),
        ("{'a': 1)", {"a": 1}, ")"),
        ("", None, ""),
        (")", None, ")"),
        (", n=1)", None, ", n=1)"),
        ("'x'", "x", ""),
        ("'x')", "x", ")"),
        ("'x', ", "x", ", "),
        ("'x", "x", ""),
    ],
)
def test_what_is_not_python_is_understood_too(text, value, rest):
    result = scan_all_ways(PythonScanner, text)
    assert json.loads(result.text) == value
    assert result.rest == rest


@pytest.mark.parametrize(
    ("text", "value", "rest"),
    [
        ("'a', 'b')", "a", ", 'b')"),
        ("'a', 2)", "a", ", 2)"),
        ("'a', -2)", "a", ", -2)"),
        ("'a', [1])", "a", ", [1])"),
        ("'a', True)", "a", ", True)"),
        ("'a', n=1)", "a", ", n=1)"),
        ("'a', then b')", "a', then b", ")"),
        ("'a', <x>')", "a', <x>", ")"),
        ("'a')", "a", ")"),
        ("5, 'b')", 5, ", 'b')"),
        ("x y, 'b')", "x y", ", 'b')"),
    ],
)
def test_a_positional_argument_ends_before_another_value(text, value, rest):
    result = scan_all_ways(lambda: PythonScanner(keyword=False), text)
    assert (json.loads(result.text), result.rest) == (value, rest)


def test_a_stop_behind_the_value_is_left_to_its_owner():
    scanner = PythonScanner(stops="<")
    text = "'x')<|tool_call_end|>"
    index = scanner.feed(text)
    assert scanner.done
    assert scanner.surplus + text[index:] == ")<|tool_call_end|>"
    scanner = PythonScanner(stops="<")
    assert text[3:][scanner.feed("'x'<|end|>") :] == text[3:][3:]
    assert scanner.stopped
    scanner.end(complete=True)
    assert scanner.take() == '"x"'


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "'3')", 3),
        ({"type": "array", "items": {"type": "string"}}, "\"['a', 'b']\")", ["a", "b"]),
        ({"type": "array", "items": {"type": "string"}}, "'a')", ["a"]),
        ({"type": "object"}, "\"{'k': {'n': 1}}\")", {"k": {"n": 1}}),
        ({"type": "string"}, "007)", "007"),
        ({"type": "string"}, "750)", 750),
        ({"type": "string"}, "Oslo)", "Oslo"),
        ({"type": ["string", "integer"]}, "'3')", "3"),
    ],
)
def test_the_schema_settles_what_the_literal_leaves_open(schema, text, value):
    result = scan_all_ways(lambda: PythonScanner(types=TypeSet(schema, References(schema))), text)
    assert json.loads(result.text) == value


@pytest.mark.parametrize(
    ("text", "partial"),
    [
        ("'it", '"it'),
        ("'it'", '"it'),
        ("'a', n", '"a'),
        ("'sed -n '1,9p", "\"sed -n '1,9p"),
        ("[1, (2", "[1, "),
        ("12", ""),
    ],
)
def test_a_cut_argument_is_not_completed(text, partial):
    assert scan_all_ways(PythonScanner, text, complete=False).text == partial
