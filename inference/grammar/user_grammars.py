"""A grammar that a client wrote, nested into ours. It binds that client's row only, so it is not looked into."""

from __future__ import annotations

import re

from inference.grammar.errors import GrammarError
from inference.grammar.gbnf import GbnfError, gbnf_to_lark, is_gbnf

_MAX_CHARS = 65_536
# Strings, regular expressions and comments, in which an operator is none.
_LITERALS = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/|//[^\n]*|#[^\n]*')
_LARK_START = re.compile(r"^[ \t]*\??start\b[^:\n]*:", re.MULTILINE)
_PATH = "structured_outputs.grammar"


def nested_grammar(text: str) -> str:
    """The body of a rule. Raises GrammarError for text that is neither Lark nor GBNF."""
    if len(text) > _MAX_CHARS:
        raise GrammarError(_PATH, f"is longer than {_MAX_CHARS} characters.")
    return "%lark {\n" + _lark(text) + "\n}"


def _lark(text: str) -> str:
    if is_gbnf(text):
        try:
            return gbnf_to_lark(text)
        except GbnfError as error:
            raise GrammarError(_PATH, f"is no GBNF, as which its ::= is read: {error}.") from error
    if not _LARK_START.search(text):
        message = 'is neither Lark, which begins at a rule "start: …", nor GBNF, which begins at "root ::= …".'
        raise GrammarError(_PATH, message)
    rules = _LITERALS.sub("", text)
    if "~" in rules:
        raise GrammarError(_PATH, "uses the operator ~, which may take minutes to compile. Say what may come instead.")
    if "%json" in rules:
        # Some schemas keep the library busy for hours, and of integers below -2**63 the process dies.
        raise GrammarError(_PATH, "uses %json. Send the schema itself, as structured_outputs.json or response_format.")
    return text
