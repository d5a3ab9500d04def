"""What decoding enforces of a schema only in part is checked when it is whole: counted, logged and told, never changed.

Of turns that are held to schemas (docs/structured-outputs.md lists the keywords). Knows turn items and no wire formats.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gateway.types import ChatTurn, JsonSchema, PartlyEnforced, Turn, TurnEvent, TurnText
from inference.grammar.source import GrammarSource
from stream_parser.events import ContentDelta, Event, Finish, ToolCallEnd, ToolCallStart

Checked: TypeAlias = Literal["call", "answer"]
# Longer ones are not read again: it happens between two pieces of other turns.
_MAX_CHARS = 65_536


@dataclass(frozen=True, slots=True)
class Violation:
    """`text` says which schema is not kept, where, and by which keyword."""

    checked: Checked
    keyword: str
    text: str


def partly_enforced(turn: Turn, grammar: GrammarSource | None) -> PartlyEnforced | None:
    """What is to be checked of a turn under this grammar; None where it enforces all."""
    if grammar is None or not grammar.not_enforced:
        return None
    answer = turn.output.schema if isinstance(turn.output, JsonSchema) else True
    functions = [tool["function"] for tool in turn.tools] if isinstance(turn, ChatTurn) else []
    return PartlyEnforced(answer, {function["name"]: function.get("parameters") for function in functions})


class SchemaChecks:
    """Follows the choices of one prompt. `item` gives what the item has completed and what is off its schema."""

    def __init__(self, promised: PartlyEnforced) -> None:
        self._promised = promised
        self._names: dict[tuple[int, int], str] = {}
        self._texts: dict[int, list[str]] = {}

    def item(self, item: TurnEvent | TurnText) -> Violation | None:
        if isinstance(item, TurnEvent):
            return self._event(item.choice, item.event)
        self._text(item.choice, item.text)
        return self._answer(item.choice, item.finish_reason or "")

    def _event(self, choice: int, event: Event) -> Violation | None:
        match event:
            case ContentDelta(text=text):
                self._text(choice, text)
            case ToolCallStart(index=index, name=name):
                self._names[choice, index] = name
            case ToolCallEnd(index=index, arguments=arguments, outcome="ok" | "repaired"):
                name = self._names.get((choice, index), "")
                return _checked("call", f"call {index} ({name})", arguments, self._promised.tools.get(name))
            case Finish(reason=reason):
                return self._answer(choice, reason)
        return None

    def _text(self, choice: int, text: str) -> None:
        if self._promised.answer is not True:
            self._texts.setdefault(choice, []).append(text)

    def _answer(self, choice: int, reason: str) -> Violation | None:
        """Only of an answer that is whole: the others are no JSON."""
        text = "".join(self._texts.pop(choice, ())) if reason == "stop" else ""
        return _checked("answer", f"the answer of choice {choice}", text, self._promised.answer)


def _checked(checked: Checked, what: str, text: str, schema: object) -> Violation | None:
    """None as well where there is nothing to check, or too much."""
    # Late, as the library is: nobody waits for it whose turns are free.
    from inference.grammar.validation import Undecided, Validator

    if not text or len(text) > _MAX_CHARS:
        return None
    try:
        fault = Validator(schema).first_fault(json.loads(text))
    except (ValueError, RecursionError, Undecided):
        return None
    if fault is None:
        return None
    at = f" at {fault.path:.200}" if fault.path else ""
    told = f'{what} is off its schema{at}: "{fault.keyword}" is not enforced in decoding'
    return Violation(checked, fault.keyword, told)
