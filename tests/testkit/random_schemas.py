"""Schemas at random, of keywords that grammars enforce and of all others, well formed and not."""

from __future__ import annotations

import random
from typing import Any

_SCALARS: dict[str, list[Any]] = {
    "type": ["string", "integer", "number", "object", "array", ["string", "null"], "boolean", "nope", [], 3],
    "enum": [["a", "b"], [1, 2.5, None], [[1], {"a": 1}], [], "x"],
    "const": ["a", 3, None, {"a": [1]}],
    "minLength": [0, 2, 9, -1, "1"], "maxLength": [0, 3, 20, 2.0, 1.5],
    "pattern": ["^a+$", "b", "^[^\"]*$", "(", r"(?=x)", r"\p{L}", "^.{3}$", 7, r"^\d{4}$", "[]"],
    "format": ["date", "uuid", "ipv4", "iri", "email", 3],
    "minimum": [0, 3, -2.5, 1e20, "x", 1e-12], "maximum": [5, 2, 0.75, -1e20], "exclusiveMinimum": [0, 2, True],
    "exclusiveMaximum": [1, 7.5], "multipleOf": [1, 0.25, 3, 0, -1, 7919, 1e-20, 999983],
    "minItems": [0, 1, 4, -1], "maxItems": [0, 2, 3], "uniqueItems": [True, False],
    "minContains": [0, 2], "maxContains": [1],
    "required": [["a"], ["a", "zz"], [], "a", [1]], "minProperties": [0, 1, 3], "maxProperties": [0, 2],
    "dependentRequired": [{"a": ["b"]}, {"a": 3}, []],
    "$ref": ["#", "#/$defs/x", "#/$defs/none", "http://x.org", 3, "#/properties/a"],
    "$anchor": ["here"], "$dynamicRef": ["#x"], "$id": ["http://x.org/s"], "title": ["T"], "x-own": [{"$ref": "no"}],
    "contentEncoding": ["base64"], "default": [3], "discriminator": [{"propertyName": "t"}],
}  # fmt: skip
_ONE = ("items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames", "contains",
        "not", "if", "then", "else", "additionalItems")  # fmt: skip
_MANY = ("anyOf", "allOf", "oneOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "dependentSchemas", "dependencies")


def random_schema(rng: random.Random, depth: int) -> Any:
    """With up to `depth` schemas within each other. Most are well formed, since what is not is refused at once."""
    if depth == 0 or rng.random() < 0.08:
        return rng.choice([True, False, {}, {"type": "string"}, {"type": "integer", "minimum": 1}, {"const": "t"}])
    schema: dict[str, Any] = {}
    for keyword in rng.sample(sorted(_SCALARS), rng.randint(0, 4)):
        values = _SCALARS[keyword]
        schema[keyword] = rng.choice(values if rng.random() < 0.3 else values[:2])
    for keyword in rng.sample(_ONE, rng.randint(0, 1)):
        schema[keyword] = random_schema(rng, depth - 1)
    for keyword in rng.sample(_MANY, rng.randint(0, 1)):
        schema[keyword] = [random_schema(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    for keyword in rng.sample(_NAMED, rng.randint(0, 2)):
        schema[keyword] = {name: random_schema(rng, depth - 1) for name in rng.sample(["a", "b", "x", "^a", "$ref"], 2)}
    return schema
