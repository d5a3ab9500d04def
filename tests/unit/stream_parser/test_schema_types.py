import pytest

from stream_parser.references import References
from stream_parser.schema_types import ALL_TYPES, TypeSet


def types(schema, root=None):
    return TypeSet(schema, References(schema if root is None else root))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"type": "integer", "nullable": True}, {"integer", "null"}),
        ({"nullable": True}, ALL_TYPES),
        ({"enum": ["a", 1, None]}, {"string", "integer", "number", "null"}),
        ({"type": "string", "enum": ["a", 1]}, {"string"}),
        ({"type": "string", "enum": [1]}, {"string"}),
        ({"enum": []}, ALL_TYPES),
        ({"const": True}, {"boolean"}),
        ({"const": 1.5}, {"number", "integer"}),
        ({"enum": [[1], {"a": 1}]}, {"array", "object"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"string", "null"}),
        ({"oneOf": [{"type": "array"}, {"anyOf": [{"type": "object"}, {"const": None}]}]}, {"array", "object", "null"}),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}, {"integer"}),
        ({"type": "number", "allOf": [{"type": "integer"}]}, {"integer"}),
        ({"type": "string", "allOf": [{"type": "integer"}]}, ALL_TYPES),
        ({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"object"}),
        ({"type": "str"}, {"string"}),
        ({"type": "LIST"}, {"array"}),
        ({"type": "whatever"}, ALL_TYPES),
        ({"type": [1, "string"]}, {"string"}),
        ({"type": 5, "anyOf": "x", "enum": 3}, ALL_TYPES),
        ({"anyOf": []}, ALL_TYPES),
        ({}, ALL_TYPES),
        (True, ALL_TYPES),
        (None, ALL_TYPES),
    ],
)
def test_the_types_of_a_schema(schema, expected):
    assert types(schema).types == expected


ROOT = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
        },
        "self": {"$ref": "#/$defs/self"},
        "a/b c": {"type": "boolean"},
        "list": [{"type": "string"}],
    },
    "properties": {"head": {"$ref": "#/$defs/node"}},
}


def test_references_are_followed_also_into_themselves():
    head = types(ROOT).property("head")
    assert head.types == {"object"}
    assert head.property("next").types == {"object", "null"}
    assert head.property("next").property("next").property("value").types == {"integer"}
    assert types({"$ref": "#/$defs/self"}, ROOT).is_unknown


def test_a_schema_that_multiplies_itself_is_resolved_in_bounded_time():
    steps = {f"s{i}": {"anyOf": [{"$ref": f"#/$defs/s{i + 1}"}] * 2} for i in range(60)}
    assert types({"$ref": "#/$defs/s0"}, {"$defs": steps}).is_unknown
    many = {"allOf": [{"anyOf": [{"type": "string"}] * 9}] * 3, "type": "string"}
    assert types(many).types == {"string"}


def test_members_are_typed_by_what_is_declared_for_them():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {}},
        "additionalProperties": {"type": "integer"},
        "allOf": [{"properties": {"a": {"enum": ["x"]}, "c": {"type": "null"}}}],
    }
    resolved = types(schema)
    assert resolved.keys == ("a", "b", "c")
    assert resolved.property("a").is_string_only
    assert resolved.property("b").is_unknown
    assert resolved.property("other").types == {"integer"}
    assert resolved.property("a") is resolved.property("a")
    assert types({"properties": 5}).property("a") is None


def test_alternatives_contribute_their_members():
    schema = {"anyOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "integer"}}}]}
    assert types(schema).property("a").types == {"string", "integer"}


def test_items_are_typed_by_items_and_prefix_items():
    assert types({"type": "array", "items": {"type": "string"}}).items.types == {"string"}
    assert types({"prefixItems": [{"type": "string"}, {"type": "null"}], "items": False}).items.types == {
        "string",
        "null",
    }
    assert types({"items": [{"type": "string"}]}).items.types == {"string"}
    untyped = types({"type": "array"})
    assert untyped.items is None
    assert untyped.items is None


def test_kinds_of_type_sets():
    assert types({"type": ["array", "null"]}).is_array
    assert types({"type": "object"}).is_object
    assert not types({}).is_array
    assert not types({}).is_object
    assert types({"type": "number"}).allows("integer")
    assert not types({"type": "integer"}).allows("number")
    assert repr(types({"type": ["string", "null"]})) == "TypeSet(null|string)"
