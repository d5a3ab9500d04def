"""What makes a request's grammar impossible. All are the caller's to mend, so all are `InvalidTurn`."""

from __future__ import annotations

from inference.errors import InvalidTurn


class GrammarError(InvalidTurn):
    """The output cannot be constrained as asked. `path` leads to the place: tools[0].parameters.properties.a."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, f"{path}: {message}" if path else message)
        self.path = path


class UnsupportedKeyword(GrammarError):
    """A schema's `keyword`, at `path`, cannot be enforced, and to ignore it would break the promise."""

    def __init__(self, path: str, keyword: str, message: str) -> None:
        super().__init__(path, f'"{keyword}" {message}')
        self.keyword = keyword


class GrammarTooComplex(GrammarError):
    """Building the grammar would take more time or memory than one request may have."""


class DialectNotConstrainable(GrammarError):
    """The model's call syntax leaves nothing to constrain, or none is known."""
