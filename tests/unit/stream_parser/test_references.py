import pytest

from stream_parser.references import References, subschemas
from stream_parser.schema import ToolSchema, check

NODE = {"$id": "T0", "type": "object", "properties": {"next": {"$ref": "T0"}}}
ROOT = {
    "$id": "https://example.org/schemas/root.json#",
    "$defs": {
        "a/b c": {"type": "boolean"},
        "list": [{"type": "string"}],
        "anchored": {"$anchor": "here", "type": "null"},
        "node": NODE,
        "other": {"$id": "/other", "$defs": {"x": {"type": "array"}}},
        "listed": {"enum": [{"$anchor": "listed", "$id": "listed"}]},
        "strange": {"$id": "http://[", "$anchor": 3},
    },
}


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("#", ROOT),
        ("#/$defs/a~1b%20c", {"type": "boolean"}),
        ("#/$defs/list/0", {"type": "string"}),
        ("#/$defs/list/7", None),
        ("#/$defs/list/x", None),
        ("#/$defs/none", None),
        ("#/$defs/none/more", None),
        ("#here", ROOT["$defs"]["anchored"]),
        ("root.json#here", ROOT["$defs"]["anchored"]),
        ("T0", NODE),
        ("T0#", NODE),
        ("https://example.org/schemas/T0#/properties/next", {"$ref": "T0"}),
        ("https://example.org/schemas/root.json", ROOT),
        ("root.json#/$defs/list/0", {"type": "string"}),
        ("https://example.org/other#/$defs/x", {"type": "array"}),
        ("#nowhere", None),
        ("#listed", None),
        ("listed", None),
        ("https://example.org/elsewhere", None),
        ("http://[#x", None),
        ("", ROOT),
        (7, None),
    ],
)
def test_a_reference_leads_to_what_the_document_calls_so(reference, expected):
    assert References(ROOT).target(reference) == expected


def test_without_an_id_of_the_root_names_are_taken_as_they_are():
    root = {"$defs": {"node": NODE, "x": {"$anchor": "x"}}, "$ref": "T0"}
    assert References(root).target("T0") is NODE
    assert References(root).target("#x") is root["$defs"]["x"]
    assert References("no schema").target("#x") is None


def test_schemas_are_found_where_schemas_stand():
    schema = {"items": [{"type": "null"}], "properties": {"enum": {"not": True}}, "allOf": 3, "default": {"items": {}}}
    assert next(subschemas(schema)) is schema
    assert {"type": "null"} in list(subschemas(schema))
    assert {} not in list(subschemas(schema))


@pytest.mark.parametrize("reference", ["#here", "thing", "#/$defs/thing"])
def test_arguments_are_held_against_what_a_reference_names(reference):
    thing = {"$id": "thing", "$anchor": "here", "type": "integer"}
    tool = ToolSchema("f", {"properties": {"n": {"$ref": reference}}, "$defs": {"thing": thing}})
    assert check(tool, '{"n": 1}', "")[1:] == ("ok", "")
    assert check(tool, '{"n": "x"}', "")[1:] == ("invalid", "schema_type")
    assert tool.param("n").types == {"integer"}
