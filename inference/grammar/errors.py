"""What makes a request's grammar impossible. All are the caller's to mend, so all are `InvalidTurn`.

Each names its place, the keyword at fault, what it says, and what would do instead.
"""

from __future__ import annotations

from inference.errors import InvalidTurn


class GrammarError(InvalidTurn):
    """The output cannot be constrained as asked. `path` leads to the place: tools[0].parameters.properties.a.

    keyword: what there is at fault; "" where no keyword is, and `path` is the field itself.
    """

    def __init__(self, path: str, message: str, *, keyword: str = "") -> None:
        super().__init__(path, f"{path}: {message}" if path else message)
        self.path = path
        self.message = message
        self.keyword = keyword

    def locate(self, path: str, owner: str = "") -> None:
        """Add what only those know through whom the error passes: its place, unless it names one, and whose that is."""
        self.path = self.field = self.path or path
        self.message += f" ({owner})" if owner else ""
        self.args = (f"{self.path}: {self.message}",)


class UnsupportedKeyword(GrammarError):
    """A schema's `keyword`, at `path`, cannot be enforced, and to ignore it would break the promise."""

    def __init__(self, path: str, keyword: str, message: str) -> None:
        super().__init__(path, f'"{keyword}" {message}', keyword=keyword)


class UnsatisfiableSchema(GrammarError):
    """No value fits the schema, so no answer could."""


class GrammarTooComplex(GrammarError):
    """Building the grammar would take more time or memory than one request may have."""


class DialectNotConstrainable(GrammarError):
    """The model's call syntax leaves nothing to constrain, or none is known."""
