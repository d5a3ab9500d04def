"""Every case of fixtures/json_schema: a schema, and values of which jsonschema's validator says whether they fit.

A value that fits is taken by the grammar, spelled as models do and without blanks. One that does not is refused by the
grammar, or the schema's keyword is named as not enforced and the check afterwards finds it. A schema that cannot be
constrained is refused by its keyword. Nothing else happens.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from inference.grammar import keywords
from inference.grammar.errors import GrammarError
from inference.grammar.policy import Bounds
from inference.grammar.source import GrammarSource
from inference.grammar.validation import Fault, Validator
from stream_parser.references import subschemas
from tests.testkit.grammar_kit import schema_source, takes
from tests.testkit.keyword_table import CASES, PAGE, page_with_table, verdicts

# Each schema meets these too, whatever it is about.
POOL: list[Any] = [
    "", "a", "ab", "é", 0, 1, -1, 12, 1.5, True, False, None, [], [1], ["a"], [1, 1], [[]], {}, {"a": 1}, {"b": "x"},
    {"a": 1, "b": 2},
]  # fmt: skip
# The formats that the judge checks by itself.
FORMATS = FormatChecker(["date", "ipv4", "ipv6", "uuid"])
# What may let a value pass that does not fit: each is named in the table as not enforced.
LET_PASS = {
    "not", "if", "then", "else", "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems",
    "unevaluatedProperties", "oneOf", "minProperties", "propertyNames",
}  # fmt: skip
READ = [(name, case) for name, case in CASES if "refused" not in case]
REFUSED = [(name, case) for name, case in CASES if "refused" in case]


def _spellings(value: Any) -> tuple[str, str]:
    """As `json.dumps` writes it, and without blanks. Characters beyond ASCII stand for themselves."""
    return json.dumps(value, ensure_ascii=False), json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _sources(schema: Any) -> tuple[GrammarSource, GrammarSource]:
    return schema_source(schema), schema_source(schema, Bounds(compact_json=True))


def _judge(case: dict[str, Any]) -> Draft202012Validator:
    """judged_as: what the schema says in the draft's own keywords, where it is written in older ones."""
    checker = FORMATS if case.get("asserts_format") else None
    return Draft202012Validator(case.get("judged_as", case["schema"]), format_checker=checker)


def _fault(schema: Any, value: Any) -> Fault | None:
    return Validator(schema).first_fault(value)


@pytest.mark.parametrize("case", [case for _, case in READ], ids=[name for name, _ in READ])
def test_each_value_is_taken_or_refused_as_the_validator_says(case: dict[str, Any]) -> None:
    schema, judge = case["schema"], _judge(case)
    sources = _sources(schema)
    for value in [*case["values"], *(POOL if case.get("pool", True) else [])]:
        verdicts = [takes(source, text) for source, text in zip(sources, _spellings(value), strict=True)]
        assert verdicts[0] == verdicts[1], value
        if judge.is_valid(value):
            assert verdicts[0], value
        elif verdicts[0]:
            fault = _fault(schema, value)
            assert fault is not None, value
            assert fault.keyword in LET_PASS, (value, fault)
            named = {path.rsplit(".", 1)[-1] for path in sources[0].not_enforced}
            assert named & LET_PASS, (value, fault)


@pytest.mark.parametrize("case", [case for _, case in READ], ids=[name for name, _ in READ])
def test_the_check_afterwards_says_what_the_validator_says(case: dict[str, Any]) -> None:
    schema, judge = case["schema"], _judge(case | {"asserts_format": False})
    for value in [*case["values"], *(entry["value"] for entry in case.get("narrowed", ())), *POOL]:
        assert (_fault(schema, value) is None) == judge.is_valid(value), value


@pytest.mark.parametrize("case", [case for _, case in READ if "narrowed" in case])
def test_what_is_narrowed_says_why(case: dict[str, Any]) -> None:
    """Values that fit the schema, and that no grammar of it takes."""
    source, judge = schema_source(case["schema"]), _judge(case | {"asserts_format": False})
    for entry in case["narrowed"]:
        assert entry["why"]
        assert judge.is_valid(entry["value"]), entry
        assert not takes(source, _spellings(entry["value"])[0]), entry


@pytest.mark.parametrize("case", [case for _, case in READ if case.get("enforced")])
def test_what_is_said_to_be_enforced_needs_no_check_afterwards(case: dict[str, Any]) -> None:
    assert schema_source(case["schema"]).not_enforced == ()


@pytest.mark.parametrize("case", [case for _, case in REFUSED], ids=[name for name, _ in REFUSED])
def test_what_cannot_be_constrained_is_refused_by_its_keyword(case: dict[str, Any]) -> None:
    with pytest.raises(GrammarError) as caught:
        schema_source(case["schema"])
    assert caught.value.keyword == case["refused"], caught.value
    assert caught.value.path.startswith("response_format.schema")
    assert caught.value.path in str(caught.value)


def test_the_documentation_has_the_table_and_the_numbers_of_the_cases() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page_with_table(text) == text, "run python -m tests.testkit.keyword_table"
    num_pairs = sum(len(case["values"]) + (len(POOL) if case.get("pool", True) else 0) for _, case in READ)
    assert f"{len(CASES)} schemas and {num_pairs:,} pairs" in text


def test_the_table_says_of_each_keyword_what_the_code_does() -> None:
    said = verdicts()
    assert {word for word, verdict in said.items() if verdict == "enforced"} == keywords.ENFORCED
    assert {word for word, verdict in said.items() if verdict == "accepted but not enforced"} == keywords.NOT_ENFORCED
    assert {word for word, verdict in said.items() if verdict == "refused"} == keywords.REFUSED


def test_each_keyword_of_the_table_is_shown_by_cases() -> None:
    used = {word for _, case in CASES for part in subschemas(case["schema"]) for word in part}
    assert set(verdicts()) <= used
