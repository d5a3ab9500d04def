"""Forty tools' parameters such as people declare, each with something of JSON Schema that is easily got wrong."""

from __future__ import annotations

from typing import Any

STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
BOOLEAN: dict[str, Any] = {"type": "boolean"}


def text(**more: object) -> dict[str, Any]:
    return {"type": "string", **more}


def whole(low: int, high: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


def listed(*values: object) -> dict[str, Any]:
    return {"enum": list(values)}


def array(items: object, **more: object) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def record(*required: str, **properties: object) -> dict[str, Any]:
    """Takes undeclared members, as JSON Schema has it; see `closed`."""
    return {"type": "object", "properties": properties, "required": list(required)}


def closed(*required: str, **properties: object) -> dict[str, Any]:
    return record(*required, **properties) | {"additionalProperties": False}


def optional(**properties: object) -> dict[str, Any]:
    return closed(**properties)


_POINT = closed("x", "y", x=NUMBER, y=NUMBER)
_TREE = closed("label", label=STRING, children=array({"$ref": "#/$defs/tree"}, maxItems=2))
_NULLABLE = {"anyOf": [STRING, {"type": "null"}]}

CALL_SCHEMAS: dict[str, dict[str, Any]] = {
    "get_time": {},
    "list_users": {"type": "object", "properties": {}, "additionalProperties": False},
    "get_weather": closed("city", "unit", city=STRING, unit=listed("celsius", "fahrenheit")),
    "forecast": closed("city", "days", city=text(maxLength=20), days=whole(1, 14), hourly=BOOLEAN),
    "set_alarm": closed("hour", "minute", hour=whole(0, 23), minute=whole(0, 59), label=STRING),
    "convert": closed("amount", "to", amount={"type": "number", "minimum": 0}, to=text(pattern="^[A-Z]{3}$")),
    "search": closed("query", query=text(minLength=1), limit=whole(1, 100), sort=listed("date", "relevance", None)),
    "send_mail": closed("to", "subject", to=array(text(format="email"), minItems=1, maxItems=2), subject=STRING),
    "book_flight": closed(
        "from", "to", "on", on=text(format="date"),
        **{"from": text(pattern="^[A-Z]{3}$"), "to": text(pattern="^[A-Z]{3}$"), "class": listed("economy", "first")},
    ),
    "new_event": closed("title", "start", title=STRING, start=text(format="date-time"), all_day=BOOLEAN),
    "find_host": closed("address", address={"anyOf": [text(format="ipv4"), text(format="ipv6")]}),
    "get_order": closed("id", id=text(format="uuid")),
    "open_page": closed("url", url=text(format="uri"), wait_s={"type": "number", "minimum": 0, "maximum": 30}),
    "resolve": closed("host", host=text(format="hostname"), at=text(format="time"), ttl=text(format="duration")),
    "draw_line": closed("points", points=array(_POINT, minItems=2, maxItems=3)),
    "move_to": closed("target", target=_POINT, speed={"type": "number", "exclusiveMinimum": 0, "maximum": 2.5}),
    "set_matrix": closed("rows", rows=array(array(whole(-9, 9), minItems=2, maxItems=2), minItems=2, maxItems=2)),
    "tag_photo": closed("tags", tags=array(listed("cat", "dog", "sea"), maxItems=3), rating=whole(1, 5)),
    "pair": closed("both", both={"type": "array", "prefixItems": [STRING, INTEGER], "items": False, "minItems": 2}),
    "add_tree": closed("tree", tree={"$ref": "#/$defs/tree"}) | {"$defs": {"tree": _TREE}},
    "add_node": closed("node", node={"$ref": "#/definitions/n"})
    | {"definitions": {"n": closed("id", id=INTEGER, next={"anyOf": [{"$ref": "#/definitions/n"}, {"type": "null"}]})}},
    "ship": closed("to", to={"$ref": "#/$defs/address"}, back={"$ref": "#/$defs/address"})
    | {"$defs": {"address": closed("street", "zip", street=STRING, zip=text(pattern="^[0-9]{5}$"))}},
    "set_value": closed("value", value={"anyOf": [INTEGER, STRING, BOOLEAN, {"type": "null"}]}),
    "set_colour": closed(
        "colour", colour={"oneOf": [text(pattern="^#[0-9a-f]{6}$"), array(whole(0, 255), minItems=3, maxItems=3)]}
    ),
    "pay": closed(
        "by",
        by={
            "oneOf": [
                closed("kind", "card", kind={"const": "card"}, card=text(pattern="^[0-9]{4}( [0-9]{4}){3}$")),
                closed("kind", "iban", kind={"const": "bank"}, iban=text(pattern="^[A-Z]{2}[0-9]{2}[A-Z0-9]{4,12}$")),
            ]
        },
    ),
    "messe_größe": closed("größe", "Länge", größe=NUMBER, Länge=INTEGER, 名前=STRING),
    "set_тема": closed("тема", тема=listed("тёмная", "светлая"), emoji=listed("🙂", "🚀", "é")),
    "odd_names": closed("a-b", "c d", **{"a-b": INTEGER, "c d": STRING, "$e": BOOLEAN, "f.g": NUMBER}),
    "profile": closed(
        "user",
        user=closed(
            "name", "contact", name=STRING, contact=closed("mail", mail=text(format="email"), phone=_NULLABLE)
        ),
    ),
    "deep": closed("a", a=closed("b", b=closed("c", c=closed("d", d=closed("e", e=listed(1, "one", 1.5, True)))))),
    "all_optional": optional(a=STRING, b=INTEGER, c=BOOLEAN, d=NUMBER, e=listed("x", "y"), f=array(INTEGER)),
    "run_query": closed("filters", filters=array(
        closed(
            "field", "op", "value", field=STRING, op=listed("=", "<", ">", "!="), value={"type": ["string", "number"]}
        ),
        minItems=1, maxItems=2,
    )),
    "set_env": {"type": "object", "additionalProperties": text(maxLength=12), "minProperties": 1, "maxProperties": 3},
    "set_headers": {"type": "object", "patternProperties": {"^X-[A-Z]{1,4}$": STRING}, "additionalProperties": False},
    "merge": closed("base") | {"properties": {"base": {"allOf": [record("id", id=INTEGER), record("on", on=BOOLEAN)]}}},
    "multiples": closed("n", n={"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100}, half={"const": 0.5}),
    "exact_code": closed("code", "pin", code=text(minLength=4, maxLength=4), pin=text(pattern="^\\d{4}$")),
    "write_file": closed("path", "content", path=text(pattern="^/[a-z/]{1,20}$"), content=text(maxLength=120)),
    "free_form": record("payload", payload={}, note=STRING),
    "either": {
        "type": "object", "properties": {"id": INTEGER, "name": STRING}, "additionalProperties": False,
        "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
    },
}  # fmt: skip
assert len(CALL_SCHEMAS) == 40


def tool_of(name: str, *, strict: bool = True) -> dict[str, Any]:
    """As Chat Completions declares it."""
    function = {"name": name, "description": f"Does {name}.", "parameters": CALL_SCHEMAS[name], "strict": strict}
    return {"type": "function", "function": function}
