import json

import pytest

from stream_parser import repair
from stream_parser.lax_args import LaxScanner
from stream_parser.schema import ToolIndex
from tests.testkit.scanning import scan_all_ways

TOOL = ToolIndex(
    [
        {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "opts": {"type": "object", "properties": {"zip": {"type": "string"}}},
                    "maybe": {"type": ["string", "null"]},
                },
            },
        }
    ]
).get("f")


@pytest.fixture(params=["", "<["], ids=["no stops", "stops"])
def make(request):
    return lambda: LaxScanner(delimiter='<|"|>', tool=TOOL, stops=request.param)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        ('{city:<|"|>Oslo "x" \\n {},:\n<|"|>,days:3}', {"city": 'Oslo "x" \\n {},:\n', "days": 3}),
        ('{tags:[<|"|>a<|"|>,<|"|>b, c<|"|>]}', {"tags": ["a", "b, c"]}),
        ('{<|"|>a key<|"|>:<|"|>a<b<|x<<|"|>}', {"a key": "a<b<|x<"}),
        ("{opts:{zip:00750,on:true},days:null}", {"opts": {"zip": "00750", "on": True}, "days": None}),
        ('{days:<|"|>5<|"|>}', {"days": 5}),
        ("{tags:<|\"|>['a', 'b']<|\"|>}", {"tags": ["a", "b"]}),
        ("{opts:<|\"|>{'zip': {'n': None}}<|\"|>}", {"opts": {"zip": {"n": None}}}),
        ("{maybe:null,other:null,x:None}", {"maybe": None, "other": None, "x": None}),
        ("{ city : 750 , days : -2 , f : 1.5 }", {"city": "750", "days": -2, "f": 1.5}),
    ],
)
def test_lax_objects_become_json_without_a_repair(make, text, value):
    result = scan_all_ways(make, text + "tail")
    assert json.loads(result.text) == value
    assert (result.reasons, result.rest) == ((), "tail")


@pytest.mark.parametrize(
    ("text", "value", "reason"),
    [
        ("{tags:[bug,ui]}", {"tags": ["bug", "ui"]}, repair.UNQUOTED_STRING),
        ("{city:New York,days:3}", {"city": "New York", "days": 3}, repair.UNQUOTED_STRING),
        ('{city:"Oslo",days:3', {"city": "Oslo", "days": 3}, repair.MISSING_CLOSER),
        ('{city:<|"|>Oslo', {"city": "Oslo"}, repair.UNCLOSED_STRING),
        ('{city:<|"|>Oslo<|', {"city": "Oslo<|"}, repair.UNCLOSED_STRING),
        ("{city:<x>,days:3}", {"city": "<x>", "days": 3}, repair.UNQUOTED_STRING),
        ("{<k>:1}", {"<k>": 1}, None),
        ('{opts:{}<|"|>city<|"|>:<|"|>x<|"|>}', {"opts": {}, "city": "x"}, repair.MISSING_COMMA),
        ("{city:<|", {"city": "<|"}, repair.UNQUOTED_STRING),
        ("", {}, repair.EMPTY_ARGUMENTS),
        ('(city:<|"|>Oslo)<|"|>,days:3)', {"city": "Oslo)", "days": 3}, repair.BRACES),
        ("(city:Oslo (NO),tags:[a,(b)],days:3)", {"city": "Oslo (NO)", "tags": ["a", "b"], "days": 3}, repair.BRACES),
        ("(opts:{zip:1,on:true)", {"opts": {"zip": "1", "on": True}}, repair.MISSING_CLOSER),
        ("(days:3}", {"days": 3}, repair.BRACES),
        ('(city:"x")', {"city": "x"}, repair.BRACES),
        ("()", {}, repair.BRACES),
    ],
)
def test_deviations_are_repaired(make, text, value, reason):
    result = scan_all_ways(make, text)
    assert json.loads(result.text) == value
    assert reason is None or reason in result.reasons


@pytest.mark.parametrize(
    ("text", "partial"),
    [('{city:<|"|>Os', '{"city":"Os'), ('{city:<|"|>Os<|"', '{"city":"Os'), ("{city:<|", '{"city":'), ("{ci", "{")],
)
def test_a_cut_object_is_not_completed(make, text, partial):
    assert scan_all_ways(make, text, complete=False).text == partial
