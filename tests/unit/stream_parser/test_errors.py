"""What the package raises has one root, and says what to do."""

from __future__ import annotations

import pytest

from stream_parser.errors import ParserError, UnknownDialect, UnsupportedTemplate


@pytest.mark.parametrize(
    ("error", "builtin"), [(UnknownDialect("x"), LookupError), (UnsupportedTemplate("x"), ValueError)]
)
def test_errors_are_caught_by_the_packages_root_and_by_their_builtin_kind(
    error: Exception, builtin: type[Exception]
) -> None:
    assert isinstance(error, ParserError)
    assert isinstance(error, builtin)


def test_an_unknown_dialect_names_the_nearest_one() -> None:
    assert UnknownDialect("no such dialect", "hermes").nearest == "hermes"
    assert UnknownDialect("no such dialect").nearest == ""
    assert str(UnknownDialect("no such dialect")) == "no such dialect"


def test_an_unsupported_template_says_what_is_not_supported() -> None:
    assert str(UnsupportedTemplate("it has no fields")).endswith("cannot be imported: it has no fields")
