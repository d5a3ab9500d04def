"""Tells people what dialects there are: the text of docs/dialects.md, and of one dialect by itself.

Made from the declarations alone, so that it cannot say anything else than what the parser does. After a change:

    python -m stream_parser.catalogue > docs/dialects.md
"""

from __future__ import annotations

from stream_parser.dialect import (
    Body,
    ByFirstChar,
    Dialect,
    ElementTree,
    JsonArguments,
    JsonCall,
    LaxArguments,
    NoArguments,
    PythonCalls,
    RawArgument,
    Recovery,
    TaggedArguments,
)
from stream_parser.dialects import DETECTION_ORDER
from stream_parser.patterns import plain
from stream_parser.renderer import WrittenCall, render

_BODIES: dict[type, str] = {
    JsonCall: "JSON call",
    JsonArguments: "head and JSON",
    TaggedArguments: "key and value tags",
    ElementTree: "element tree",
    LaxArguments: "lax object",
    PythonCalls: "Python calls",
    RawArgument: "raw text",
    NoArguments: "head only",
    ByFirstChar: "JSON or raw text",
}
_RECOVERIES: dict[Recovery, str] = {
    "missing_section_open": "calls also stand outside their section; a bare head counts under a declared tool's name",
    "missing_call_open": "a call may begin at its head, under a declared tool's name",
    "missing_value_close": "the next declared parameter, or the end of the call, ends a value",
    "wrapper_arg": "one parameter `arguments` or `input` that holds the whole object is unwrapped",
    "echo_after": "a call block repeated right behind its end is dropped",
    "name_from_args": "a bare counter in place of a name: the argument keys tell which tool is meant",
}
_PIPE = "\\|"  # the one escape that cells have, also within code
_EXAMPLE = WrittenCall("get_weather", {"city": "Oslo", "days": 3})

_HEAD = """\
# Dialects

How models write reasoning, answers and tool calls as text. Each such way is a declaration, data without code, and one
machine reads them all. [Adding one](adding-a-dialect.md) takes 10 to 30 lines. This page is printed from the
declarations (`python -m stream_parser.catalogue`).

## How one is picked

1. By name: `headrace serve --dialect NAME`, or `StreamParser(dialect="NAME")`. All names and aliases of the table will
   do. Among them are the values of vLLM's and SGLang's `--tool-call-parser` and `--reasoning-parser`, so that flags can
   be brought along. One dialect reads reasoning and calls: of two flags take the one for calls. Their names `hf` and
   `response_template` stand for no dialect but for the import under 3.
2. By the checkpoint: `dialect_for(chat_template, vocab)` takes the first dialect, from the most specific to the most
   common, of which all literals of a fingerprint stand in the template or the vocabulary.
3. By the checkpoint's own description: where none fits, `dialect_for(..., response_template=...)`
   [imports it](adding-a-dialect.md#importing-a-response_template).

If nothing fits, `dialect_for` raises `UnknownDialect` and names the nearest; the server reads `hermes` then. Whether an
answer begins inside the reasoning is no matter of flags: the end of the prompt tells, so pass it as `prompt_tail`.

## What holds for all of them

* A marker counts only if a valid header follows. `<tool_call>` in prose, in the reasoning, in a string or in a code
  block stays text. Text that may become a marker waits, and no longer than that.
* A think tag counts at the start of an answer or beside other markup; quoted later it is text. Special tokens are
  never prose; with token ids at hand they end even a string that was left open.
* A call ends reasoning that was not closed. A closer repeated, or astray beside other markup, is dropped.
* Strings inside JSON, Python and lax objects hide markers. A value between tags ends at a closing tag behind which the
  next parameter or the end of the call stands.
* Blanks beside markup belong to it, but between two pieces of content they stay.
* Values of dialects without JSON are typed by the tool's schema. Damaged JSON is repaired (docs/repair.md).
* What the token limit or a cancel cut is never completed: a call whose name was not whole is dropped, another ends
  `truncated`.
* A request without tools has no calls: call markup is content.

## Recoveries

Which of these a dialect has is declared. The table names those that mean something for its syntax.

"""


def catalogue() -> str:
    """The whole page, in Markdown."""
    lines = [_HEAD]
    lines += [f"* `{name}`: {text}\n" for name, text in _RECOVERIES.items()]
    lines += ["\n## Table\n\n", "| dialect | models | a call | arguments | recovers | also called |\n"]
    lines += ["|---|---|---|---|---|---|\n"]
    lines += [_row(dialect) for dialect in sorted(DETECTION_ORDER, key=lambda d: d.name)]
    lines += ["\n## An example of each\n"]
    lines += [_example(dialect) for dialect in sorted(DETECTION_ORDER, key=lambda d: d.name)]
    return "".join(lines)


def describe(dialect: Dialect) -> str:
    """One dialect for a terminal: what it is for, its names, its markers and an example."""
    reasoning = [f"{_opener(span.opens, span.bare_opens)} … {_opener(span.closes)}" for span in dialect.reasoning]
    rows = {
        "models": ", ".join(dialect.families),
        "also called": ", ".join(dialect.aliases) or "-",
        "call": dialect.syntax,
        "arguments": _bodies(dialect),
        "reasoning": ", ".join(reasoning) or ("messages" if dialect.messages else "-"),
        "recovers": ", ".join(_recoveries(dialect)) or "-",
    }
    table = "".join(f"{key:12} {value}\n" for key, value in rows.items())
    return f"{dialect.name}\n{table}\n{_rendered(dialect)}\n"


def _row(dialect: Dialect) -> str:
    names = ", ".join(f"`{alias}`" for alias in dialect.aliases)
    recoveries = ", ".join(f"`{name}`" for name in _recoveries(dialect))
    models = ", ".join(dialect.families)
    cells = (f"`{dialect.name}`", models, _code(dialect.syntax.strip()), _bodies(dialect), recoveries, names)
    return f"| {' | '.join(cell.replace('|', _PIPE) for cell in cells)} |\n"


def _code(text: str) -> str:
    """A code span has no escapes: its fence is longer than any run of backticks inside."""
    return f"```` {text} ````" if "`" in text else f"`{text}`"


def _recoveries(dialect: Dialect) -> list[Recovery]:
    """Those that mean something for the dialect's syntax."""
    bodies = [call.body for call in dialect.calls] + ([dialect.messages.body] if dialect.messages else [])
    moot: set[Recovery] = set() if dialect.sections else {"missing_section_open"}
    if not any(isinstance(body, TaggedArguments) for body in bodies):
        moot.add("missing_value_close")
    return sorted(dialect.recovery - moot)


def _bodies(dialect: Dialect) -> str:
    bodies: list[Body] = [call.body for call in dialect.calls]
    if dialect.messages and dialect.messages.body:
        bodies.append(dialect.messages.body)
    return ", ".join(dict.fromkeys(_BODIES[type(body)] for body in bodies)) or "-"


def _example(dialect: Dialect) -> str:
    return f"\n### {dialect.name}\n\n~~~text\n{_rendered(dialect)}\n~~~\n"


def _rendered(dialect: Dialect) -> str:
    thinks = dialect.reasoning or (dialect.messages and any(r.to == "reasoning" for r in dialect.messages.routes))
    calls = [_EXAMPLE] if dialect.calls or dialect.messages else []
    return render(dialect, "Look it up." if thinks else "", "" if calls else "Hello.", calls)


def _opener(*markers: tuple[str, ...]) -> str:
    return next((repr(plain(m))[1:-1] for group in markers for m in group), "")


if __name__ == "__main__":
    print(catalogue(), end="")
