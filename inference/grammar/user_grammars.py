"""A grammar that a client wrote, nested into ours. It binds that client's row only, so it is not looked into."""

from __future__ import annotations

from llguidance.gbnf_to_lark import GbnfToLarkError, any_to_lark

from inference.grammar.errors import GrammarError

_MAX_CHARS = 65_536
_PATH = "structured_outputs.grammar"


def nested_grammar(text: str) -> str:
    """The body of a rule. Raises GrammarError for text that is neither Lark nor GBNF."""
    if len(text) > _MAX_CHARS:
        raise GrammarError(_PATH, f"is longer than {_MAX_CHARS} characters.")
    try:
        lark = any_to_lark(text)
    except (GbnfToLarkError, ValueError, RecursionError) as error:
        raise GrammarError(_PATH, f"is neither Lark nor GBNF: {error!s:.300}") from error
    return "%lark {\n" + lark + "\n}"
