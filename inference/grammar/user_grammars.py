"""A grammar that a client wrote, nested into ours. It binds that client's row only, so it is not looked into."""

from __future__ import annotations

import re

from llguidance.gbnf_to_lark import GbnfToLarkError, any_to_lark

from inference.grammar.errors import GrammarError

_MAX_CHARS = 65_536
# Strings, regular expressions and comments, in which an operator is none.
_LITERALS = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/|//[^\n]*|#[^\n]*')
_PATH = "structured_outputs.grammar"


def nested_grammar(text: str) -> str:
    """The body of a rule. Raises GrammarError for text that is neither Lark nor GBNF."""
    if len(text) > _MAX_CHARS:
        raise GrammarError(_PATH, f"is longer than {_MAX_CHARS} characters.")
    try:
        lark = any_to_lark(text)
    except (GbnfToLarkError, ValueError, RecursionError) as error:
        raise GrammarError(_PATH, f"is neither Lark nor GBNF: {error!s:.300}") from error
    rules = _LITERALS.sub("", lark)
    if "~" in rules:
        raise GrammarError(_PATH, "uses the operator ~, which may take minutes to compile. Say what may come instead.")
    if "%json" in rules:
        # Some schemas keep the library busy for hours, and of integers below -2**63 the process dies.
        raise GrammarError(_PATH, "uses %json. Send the schema itself, as structured_outputs.json or response_format.")
    return "%lark {\n" + lark + "\n}"
