"""Where the references of one schema document lead: by JSON pointer, by `$anchor`, by `$id` (draft 2020-12, section 8).

Nothing is fetched: what the document does not hold is not found. Pointers that begin with # start at its root, also
within a part that has an `$id` of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urljoin

# Keywords that hold a schema, several, and named ones. What `enum` or `default` hold is no schema, whatever it says.
_HOLDING_ONE = frozenset(
    {
        "items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties",
        "propertyNames", "not", "if", "then", "else",
    }
)  # fmt: skip
_HOLDING_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_HOLDING_NAMED = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)


class References:
    """Names are looked for when the first reference is no pointer: most schemas have none. Cheap to ask again."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._base = ""
        self._named: dict[str, object] | None = None

    def target(self, reference: object) -> object:
        """What a reference names; None for one that leads nowhere in this document."""
        if not isinstance(reference, str):
            return None
        if reference == "#" or reference.startswith("#/"):
            return _pointed(reference[1:], self._root)
        if self._named is None:
            self._named = self._read_names()
        resource, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            return self._named.get(_joined(self._base, reference))
        return _pointed(fragment, self._named.get(_joined(self._base, resource)))

    def _read_names(self) -> dict[str, object]:
        """By absolute name, as far as the root's own `$id` makes them absolute."""
        own = self._root.get("$id") if isinstance(self._root, Mapping) else None
        self._base = own.partition("#")[0] if isinstance(own, str) else ""
        found: dict[str, object] = {}
        for part in subschemas(self._root):
            anchor, name = part.get("$anchor"), part.get("$id")
            if isinstance(anchor, str):
                found.setdefault(_joined(self._base, f"#{anchor}"), part)
            if isinstance(name, str):
                found.setdefault(_joined(self._base, name.removesuffix("#")), part)
        return found


def subschemas(schema: object) -> Iterator[Mapping[str, object]]:
    """The schema and all that it holds where schemas stand."""
    waiting = [schema]
    while waiting:
        found = waiting.pop()
        if not isinstance(found, Mapping):
            continue
        yield found
        for keyword in found.keys() & _HOLDING_ONE:
            waiting.append(found[keyword])
        for keyword in found.keys() & _HOLDING_MANY:
            held = found[keyword]
            waiting += held if isinstance(held, list) else ()
        for keyword in found.keys() & _HOLDING_NAMED:
            named = found[keyword]
            waiting += named.values() if isinstance(named, Mapping) else ()


def _joined(base: str, name: str) -> str:
    try:
        return urljoin(base, name)
    except ValueError:  # of a host in brackets that is none
        return name


def _pointed(pointer: str, target: object) -> object:
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = target.get(key)
        elif isinstance(target, list) and re.fullmatch("[0-9]{1,6}", key) and int(key) < len(target):
            target = target[int(key)]
        else:
            return None
    return target
