import json
import re
import time

import pytest

from stream_parser import repair
from stream_parser.json_scanner import JsonScanner
from stream_parser.schema import ToolIndex
from tests.testkit.scanning import scan, scan_all_ways

VALID = [
    "{}",
    '{ "a" : [ 1 , true,null ,-1.5e+3,{} ] ,\n\t"b":{"":""} }',
    '{"text": "</tool_call> {\\"x\\": 1} \\u00e9 \\ud83d\\ude80 \\\\", "n": 12345678901234567890123, "x": 1e400}',
    '{"a": "it\'s // no /* comment */ # here, really: {[(", "k\\"ey": ["x", "y"], "b": "C:\\\\dir"}',
    '[["a"], ["b", "c"], []]',
    '{"“smart”": "‘quotes’ stay"}',
]


def arguments(text: str, complete: bool = True) -> str:
    return scan_all_ways(JsonScanner, text, complete).text


def test_valid_json_passes_byte_for_byte():
    for text in VALID:
        for stops in ("", "<[`"):
            result = scan_all_ways(lambda stops=stops: JsonScanner(stops=stops), text)
            assert (result.text, result.reasons, result.rest) == (text, (), "")


def test_the_value_ends_at_its_own_bracket_and_the_rest_is_left():
    result = scan_all_ways(JsonScanner, '{"a": "}"}}</tool_call>')
    assert (result.text, result.rest) == ('{"a": "}"}', "}</tool_call>")


def test_valid_json_cut_anywhere_is_passed_on_up_to_what_is_undecided():
    for text in VALID:
        for end in range(len(text)):
            cut = text[:end]
            result = scan(JsonScanner, list(cut), complete=False)
            assert cut.startswith(result.text)
            assert re.fullmatch(r"""\\.*|"[\s,]*(".*)?|[\s,]*[\w.+-]*\s*""", cut[len(result.text) :]), (cut, result)


@pytest.mark.parametrize(
    ("text", "value", "reason"),
    [
        ("{'a': 'it\\'s', 'b': \"x\"}", {"a": "it's", "b": "x"}, repair.QUOTES),
        ("{'a': 'it's fine'}", {"a": "it's fine"}, repair.INNER_QUOTE),
        ("{“city”: “Oslo”}", {"city": "Oslo"}, repair.QUOTES),
        ("{‘city’: ‘Oslo's’}", {"city": "Oslo's"}, repair.QUOTES),
        ('{"a": """one "two"\nthree"""}', {"a": 'one "two"\nthree'}, repair.QUOTES),
        ("{city: 'x', $b-c.d: 1}", {"city": "x", "$b-c.d": 1}, repair.UNQUOTED_KEY),
        ("{naïve: 1, 日: 2}", {"naïve": 1, "日": 2}, repair.UNQUOTED_KEY),
        ("{1: 2}", {"1": 2}, repair.UNQUOTED_KEY),
        ('{"city": New York, "n": 1}', {"city": "New York", "n": 1}, repair.UNQUOTED_STRING),
        ('{"city": New York, NY, "n": 1}', {"city": "New York, NY", "n": 1}, repair.UNQUOTED_STRING),
        ('{"to": Bergen, Oslo}', {"to": "Bergen, Oslo"}, repair.UNQUOTED_STRING),
        ('{"u": http://a.b/c?d=1#e, "t": 12:30}', {"u": "http://a.b/c?d=1#e", "t": "12:30"}, repair.UNQUOTED_STRING),
        ('{"p": /tmp/x, "c": #fff}', {"p": "/tmp/x", "c": "#fff"}, repair.UNQUOTED_STRING),
        ('{"f": max(1, [2])}', {"f": "max(1, [2])"}, repair.UNQUOTED_STRING),
        ('{"d": 2026-01-15, "x": 5 apples}', {"d": "2026-01-15", "x": "5 apples"}, repair.UNQUOTED_STRING),
        ('{"a": say "hi"}', {"a": 'say "hi"'}, repair.UNQUOTED_STRING),
        ('{"a": "say "hi" there"}', {"a": 'say "hi" there'}, repair.INNER_QUOTE),
        ('{"a": "say "hi"", "b": 1}', {"a": 'say "hi"', "b": 1}, repair.INNER_QUOTE),
        ('{"c": "print("a", "b")", "n": 1}', {"c": 'print("a", "b")', "n": 1}, repair.INNER_QUOTE),
        ('{"c": "echo "$x" && ls "y""}', {"c": 'echo "$x" && ls "y"'}, repair.INNER_QUOTE),
        ('{"a": ["x "y" z", "w"]}', {"a": ['x "y" z', "w"]}, repair.INNER_QUOTE),
        ('{"a": "yes", or no"}', {"a": 'yes", or no'}, repair.INNER_QUOTE),
        ('["yes", then]', ['yes", then]'], repair.INNER_QUOTE),
        ("{'a': True, 'b': None, 'c': FALSE}", {"a": True, "b": None, "c": False}, repair.PYTHON_LITERAL),
        (
            '{"a": (1, 2), "b": (3,), "c": (), "d": (4)}',
            {"a": [1, 2], "b": [3], "c": [], "d": 4},
            repair.PYTHON_LITERAL,
        ),
        ("{'a': 'one ' 'two'}", {"a": "one two"}, repair.PYTHON_LITERAL),
        ('{"a": "one " "two" , "b": 1}', {"a": "one two", "b": 1}, repair.PYTHON_LITERAL),
        ("{\"a\": r'\\d', 'b': f\"x\"}", {"a": "\\d", "b": "x"}, repair.PYTHON_LITERAL),
        ('{"n": [+1, .5, 01, 5., 0x1f]}', {"n": [1, 0.5, 1, 5.0, 31]}, repair.NUMBER),
        ('{"n": [NaN, -Infinity]}', {"n": [None, None]}, repair.NOT_A_NUMBER),
        ('{"a": 1, "b": [1, 2,],}', {"a": 1, "b": [1, 2]}, repair.EXTRA_COMMA),
        ('{,"a": 1,, "b": [,1,,2]}', {"a": 1, "b": [1, 2]}, repair.EXTRA_COMMA),
        ('{"a": 1 "b": "x" "c": {} "d": [1 2]}', {"a": 1, "b": "x", "c": {}, "d": ["1 2"]}, repair.MISSING_COMMA),
        (
            '{"a": "x"\n"b": true\nc: 1\n"d": "y"\ne: 2}',
            {"a": "x", "b": True, "c": 1, "d": "y", "e": 2},
            repair.MISSING_COMMA,
        ),
        ('["a" "b" "c"]', ["a", "b", "c"], repair.MISSING_COMMA),
        ('["a""b"]', ["a", "b"], repair.MISSING_COMMA),
        ('[{"a": 1} {"b": 2}]', [{"a": 1}, {"b": 2}], repair.MISSING_COMMA),
        ('{"a" 1, "b" = 2, "c" => "x", "d" {}}', {"a": 1, "b": 2, "c": "x", "d": {}}, repair.COLON),
        ('{"a": , "b":, "c"}', {"a": None, "b": None, "c": None}, repair.MISSING_VALUE),
        ('{"a", "b": 1}', {"a": None, "b": 1}, repair.MISSING_VALUE),
        (
            '{"a": 1, // one\n "b": 2 /* two **/ , # three\n "c": [ /**/ 3 ]}',
            {"a": 1, "b": 2, "c": [3]},
            repair.COMMENT,
        ),
        ('{"a": # one\n 1, "b" /* x */ : 2, "c": "x" // y\n}', {"a": 1, "b": 2, "c": "x"}, repair.COMMENT),
        ('{"a": "x"\n# y\n}', {"a": "x"}, repair.COMMENT),
        ('{"a": "tab\there\r\n\x01"}', {"a": "tab\there\r\n\x01"}, repair.CONTROL_CHARACTER),
        ('{"a": "C:\\work\\data \\\' \\x41 \\u12 \\q"}', {"a": "C:\\work\\data ' \\x41 \\u12 \\q"}, repair.ESCAPE),
        ('{"a": "x \\\ny"}', {"a": "x \\\ny"}, repair.ESCAPE),
        (
            '{"a": "\\ud83d \\ude80 \\ud83d\\n \\ud83d\\u0041"}',
            {"a": "\ufffd \ufffd \ufffd\n \ufffdA"},
            repair.SURROGATE,
        ),
        ('{"a": "\ud83d \ude80 \ud83d\ude80"}', {"a": "\ufffd \ufffd 🚀"}, repair.SURROGATE),
        ('```json\n{"a": 1}', {"a": 1}, repair.CODE_FENCE),
        ('"{\\"a\\": \\"x\\\\ny\\", \\"b\\": [1]}"', {"a": "x\ny", "b": [1]}, repair.DOUBLE_ENCODED),
        ('\'{"a": "it\'s"}\'', {"a": "it's"}, repair.DOUBLE_ENCODED),
        ('{\\"a\\": \\"x\\", \\"b\\": 1}', {"a": "x", "b": 1}, repair.DOUBLE_ENCODED),
        ('"{"a": "x"}"', {"a": "x"}, repair.QUOTES),
        ('""', {}, repair.EMPTY_ARGUMENTS),
        ("null", {}, repair.EMPTY_ARGUMENTS),
        ("", {}, repair.EMPTY_ARGUMENTS),
        ('{{[:"a": 1}', {"a": 1}, repair.STRAY_TEXT),
        ('{"a": [1] ; , "b": {} ) }', {"a": [1], "b": {}}, repair.STRAY_TEXT),
        ('{"a": 1], "b": "x"]}', {"a": 1, "b": "x"}, repair.EXTRA_CLOSER),
        ('{"a": [1, {"b": 2], "c": 3}', {"a": [1, {"b": 2}], "c": 3}, repair.MISSING_CLOSER),
        ('{"a": [1, 2}', {"a": [1, 2]}, repair.MISSING_CLOSER),
        ('{"a": [1, {"b": "x"', {"a": [1, {"b": "x"}]}, repair.MISSING_CLOSER),
        ('{"a": "x, ', {"a": "x, "}, repair.UNCLOSED_STRING),
    ],
)
def test_what_is_not_json_is_repaired(text, value, reason):
    result = scan_all_ways(JsonScanner, text)
    assert reason in result.reasons
    assert json.loads(result.text) == value


@pytest.mark.parametrize(
    ("text", "partial"),
    [
        ('{"a": "x\\', '{"a": "x'),
        ('{"a": "x\\u00', '{"a": "x'),
        ('{"a": "x\\ud83d', '{"a": "x'),
        ('{"a": "x\\ud83d\\ud', '{"a": "x'),
        ('{"a": "x\ud83d', '{"a": "x'),
        ('{"a": "x"', '{"a": "x'),
        ('{"a": "x", ', '{"a": "x'),
        ('{"a": "x", "b": 1', '{"a": "x", "b": '),
        ('{"a": 1, ', '{"a": 1'),
        ('{"a": [1, {"b": [', '{"a": [1, {"b": ['),
        ("{'a': 'it", '{"a": "it'),
        ('{"a": (1', '{"a": '),
        ('{"a": (1, 2', '{"a": [1, '),
        ('"{\\"a\\": \\"x\\\\', '{"a": "x'),
        ('"   ', ""),
        ('"plain', '"plain'),
        ("", ""),
    ],
)
def test_a_cut_text_is_never_completed_and_its_undecided_end_is_not_said(text, partial):
    assert arguments(text, complete=False) == partial


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "x\\', "x\\"),
        ('{"a": "x\\u00', "x\\u00"),
        ('{"a": "x\ud83d', "x\ufffd"),
        ('{"a": "x", an', 'x", an'),
        ('{"a": x, y', "x, y"),
        ('{"a": /', "/"),
        ('{"a": #', "#"),
        ('{"a": // x', None),
        ('{"a": ""', ""),
        ('{"a": "x",', "x"),
        ('{"a": "x" /', 'x" /'),
        ('{"a": tru', "tru"),
        ('{"a"', None),
        ("{a", None),
        ('"{\\"a\\": \\"x\\', "x\\"),
        ('"{\\"a\\": \\"x', "x"),
        ('"{"a": "x"', "x"),
        ('"{"a": "x"}', "x"),
        ('\'{"a": 1 ', 1),
    ],
)
def test_a_natural_end_supplies_what_is_missing(text, value):
    assert json.loads(arguments(text)) == {"a": value}


def test_an_encoded_text_that_ends_before_it_begins_is_empty_or_plain():
    assert arguments('"  ') == "{}"
    assert json.loads(arguments('"\\')) == "\\"


def test_an_end_behind_the_end_changes_nothing():
    for text in ('{"a": 1}', '"{\\"a\\": 1}"'):
        scanner = JsonScanner()
        scanner.feed(text)
        scanner.end(complete=False)
        scanner.end(complete=True)
        assert (scanner.take(), scanner.done) == ('{"a": 1}', True)


def test_text_behind_a_decoded_object_is_dropped_and_noted():
    result = scan_all_ways(JsonScanner, '"{\\"a\\": 1} \\n " tail')
    assert (result.text, result.reasons, result.rest) == ('{"a": 1}', (repair.DOUBLE_ENCODED,), " tail")
    result = scan_all_ways(JsonScanner, '"{\\"a\\": 1} so "')
    assert (result.text, result.reasons) == ('{"a": 1}', (repair.DOUBLE_ENCODED, repair.STRAY_TEXT))


def test_a_stray_quote_in_front_of_the_object_takes_the_one_behind_it_along():
    assert scan_all_ways(JsonScanner, '"{"a": 1} " }').rest == " }"
    assert scan_all_ways(JsonScanner, '"{"a": 1} }').rest == "}"


def test_a_string_that_holds_no_object_stays_a_string():
    for text in ('"plain \\"text\\""', '"  \\n x"', '"\\u0041"'):
        assert arguments(text) == text


def test_any_value_may_be_asked_for():
    for text in ('"{\\"a\\": 1}"', "null", "12", "true", '""', "[1]"):
        assert scan_all_ways(lambda: JsonScanner(expect="any"), text).text == text
    assert scan_all_ways(lambda: JsonScanner(expect="any"), "").text == "null"


def test_a_bare_value_ends_before_the_delimiter_that_belongs_to_others():
    for tail in (", 1", "}", "]", "\n x"):
        result = scan_all_ways(lambda: JsonScanner(expect="any"), "12" + tail)
        assert (result.text, result.rest) == ("12", tail)
    for tail in (",", "}", ")"):
        result = scan_all_ways(lambda: JsonScanner(expect="any"), tail)
        assert (result.text, result.reasons, result.rest) == ("null", (repair.MISSING_VALUE,), tail)


def test_a_stop_outside_of_strings_returns_at_its_index():
    scanner = JsonScanner(stops="<[")
    text = '{"a": [1], "b": "<x>" </tool_call>'
    index = scanner.feed(text)
    assert text[index:] == "</tool_call>"
    assert scanner.feed(text, index) == index
    scanner.end(complete=True)
    assert scanner.take() == '{"a": [1], "b": "<x>" }'
    assert scanner.done


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "x"<b>y"}', {"a": 'x"<b>y'}),
        ('{"a": "x", <b> y"}', {"a": 'x", <b> y'}),
        ('{"a": <b>, "c": 1<2}', {"a": "<b>", "c": "1<2"}),
        ('{<a>: 1, b<: 2, "c"<: 3, "d": [4]<}', {"<a>": 1, "b<": 2, 'c"<: 3, "d': [4]}),
        ('{"a": x, <y}', {"a": "x, <y"}),
        ('{"a": f(<x)}', {"a": "f(<x)"}),
        ('{"a": f[0]}', {"a": "f[0]"}),
        ('{"a": {}<b>}', {"a": {}, "b>": None}),
        ("```json\n{}", {}),
        ('{"a": 1 `x`}', {"a": "1 `x`"}),
        ('{[\\"a\\": 1}', {"a": 1}),
        ('{"a": "say "x" "<y>" z"}', {"a": 'say "x" "<y>" z'}),
    ],
)
def test_a_stop_that_is_no_marker_can_be_forced(text, value):
    result = scan_all_ways(lambda: JsonScanner(stops="<[`"), text)
    assert json.loads(result.text) == value


def test_stops_reach_a_text_that_is_escaped_as_a_whole():
    scanner = JsonScanner(stops="<")
    text = '{\\"a\\": 1 </tool_call>'
    assert text[scanner.feed(text) :] == "</tool_call>"
    assert json.loads(scan_all_ways(lambda: JsonScanner(stops="<"), '{\\"a\\": 1\\u003c2, \\<\\"b\\": 1}').text)


def test_strings_stream_out_as_they_arrive():
    scanner = JsonScanner()
    taken = []
    for piece in ('{"text": "one', " two", " three\\n", ' "', "}"):
        scanner.feed(piece)
        taken.append(scanner.take())
    assert taken == ['{"text": "one', " two", " three\\n", " ", '"}']


TOOL = ToolIndex(
    [
        {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {
                    "count": {"type": "integer"},
                    "on": {"type": "boolean"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "steps": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
                    "where": {"type": "object", "properties": {"age": {"type": ["integer", "null"]}}},
                    "ids": {"type": "array", "items": {"type": "integer"}},
                    "text": {"type": "string"},
                    "free": {},
                },
            },
        }
    ]
).get("f")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"count": "5", "on": "true"}', {"count": 5, "on": True}),
        ('{"tags": "bug"}', {"tags": ["bug"]}),
        ('{"tags": ["a", "b"]}', {"tags": ["a", "b"]}),
        ("{\"tags\": \"['a', 'b']\"}", {"tags": ["a", "b"]}),
        ('{"steps": {"n": "1"}}', {"steps": [{"n": 1}]}),
        ('{"steps": [{"n": "1"}]}', {"steps": [{"n": 1}]}),
        ('{"where": "{\\"age\\": \\"4\\"}"}', {"where": {"age": 4}}),
        ('{"where": {"age": "null", "name": "5"}}', {"where": {"age": None, "name": "5"}}),
        ('{"count": "many", "on": "maybe", "where": "here"}', {"count": "many", "on": "maybe", "where": "here"}),
        ('{"where": [1], "count": {"x": 1}}', {"where": [1], "count": {"x": 1}}),
        ('{"text": 007, "free": "5"}', {"text": "007", "free": "5"}),
        ("{count: '5'}", {"count": 5}),
        ('{"tags": 5}', {"tags": 5}),
        ('{"ids": 5}', {"ids": [5]}),
    ],
)
def test_members_are_brought_to_their_declared_type_where_that_is_certain(text, value):
    result = scan_all_ways(lambda: JsonScanner(types=TOOL.types), text)
    assert json.loads(result.text) == value


def test_a_member_of_another_type_is_held_and_all_others_stream():
    scanner = JsonScanner(types=TOOL.types)
    scanner.feed('{"text": "abc')
    assert scanner.take() == '{"text": "abc'
    scanner.feed('", "count": "12')
    assert scanner.take() == '", "count": '
    scanner.feed('"}')
    assert scanner.take() == "12}"
    assert scanner.reasons == [repair.COERCED_TYPE]


def test_a_held_member_that_is_cut_is_not_said():
    assert scan_all_ways(lambda: JsonScanner(types=TOOL.types), '{"count": "1', complete=False).text == '{"count": '


def test_deep_nesting_costs_no_recursion():
    text = '{"a": ' + "[" * 20_000
    assert len(scan(JsonScanner, [text]).text) == len(text) + 20_001


def test_a_long_string_costs_the_same_at_its_end_as_at_its_start():
    """In processor time, with much room for noise: a scanner that reads again what it has would take 100 times."""
    pieces = ["word"] * 40_000
    times = []
    for part in (pieces[:4_000], pieces[36_000:]):
        scanner = JsonScanner()
        scanner.feed('{"text": "')
        if part is not pieces[:4_000]:
            for piece in pieces[:36_000]:
                scanner.feed(piece)
                scanner.take()
        start = time.process_time()
        for piece in part:
            scanner.feed(piece)
            scanner.take()
        times.append(time.process_time() - start)
    assert times[1] < 5 * times[0]
