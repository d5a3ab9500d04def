"""What a turn's answer is held to: the grammar of its calls and its format, checked before the turn is admitted.

Blocking: call `of` in a thread. Knows one model's dialect and tokenizer; knows nothing of wire formats.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.errors import InvalidRequest
from gateway.protocols.output_format import schema_path
from gateway.types import ChatTurn, EngineInfo, NamedTool, Turn
from inference.grammar.errors import GrammarError
from inference.grammar.policy import FREE_TEXT, CallPolicy, Tool
from inference.grammar.source import GrammarSource
from stream_parser import StreamParser
from stream_parser.dialect import Dialect
from stream_parser.events import ReasoningDelta
from stream_parser.patterns import plain

if TYPE_CHECKING:
    from inference.grammar.compile import GrammarCompiler

log = logging.getLogger("headrace.turn_grammar")

# Raw prompts: no calls, no reasoning.
_PLAIN = Dialect(name="plain", families=(), syntax="")
_CHECK_S = 5.0
# What grammars call the place of an answer's schema.
_SCHEMA_OF_FORMAT = "response_format.schema"
_STRUCTURED = "structured_outputs"
_OF_A_TOOL = re.compile(r"(tools\[\d+\]\.)(name|parameters)\b")


@dataclass(frozen=True, slots=True)
class GrammarSettings:
    """strict_tools: calls keep to their schemas in every turn, not only where a tool says strict."""

    strict_tools: bool = False


@dataclass(frozen=True, slots=True)
class _Reader:
    """What is read from the tokenizer when the first grammar is wanted. special_tokens: as the library sees them."""

    compiler: GrammarCompiler
    special_tokens: Mapping[str, int]


class TurnGrammars:
    """folder: the checkpoint's, with its tokenizer.json. chat_template tells whether the model reasons."""

    def __init__(self, folder: Path, dialect: Dialect, chat_template: str, settings: GrammarSettings) -> None:
        self._folder = folder
        self._dialect = dialect
        self._reasons = any(plain(opener) in chat_template for span in dialect.reasoning for opener in span.opens)
        self._settings = settings
        self._lock = threading.Lock()
        self._reader: _Reader | None = None

    def warm(self, info: EngineInfo) -> bool:
        """Read the vocabulary now, so that nobody's first request has to. False where the library cannot: then no turn
        can be held to anything."""
        try:
            self._read(info)
        except (OSError, ValueError, RuntimeError) as error:
            log.warning("tool_choice and formats are not enforced: the tokenizer is not read: %s", error)
            return False
        return True

    def is_needed(self, turn: Turn) -> bool:
        """Cheap, and asked for every turn: most are free."""
        if turn.output != FREE_TEXT:
            return True
        if not isinstance(turn, ChatTurn):
            return False
        if turn.max_reasoning_tokens is not None:
            return True
        if not turn.tools:
            return False
        return turn.tool_choice != "auto" or self._settings.strict_tools or any(map(_is_strict, turn.tools))

    def of(self, turn: Turn, info: EngineInfo, prompt_tail: str = "") -> GrammarSource | None:
        """None where nothing is to be constrained. Raises InvalidRequest."""
        reader = self._read(info)
        try:
            source = self._build(turn, info, prompt_tail, reader.special_tokens)
            if source is not None:
                reader.compiler.check(source, _CHECK_S)
            return source
        except GrammarError as error:
            # What shows only when all of it is compiled: the largest part is at fault, most likely.
            error.locate(turn.output_field if turn.output != FREE_TEXT else "tools")
            path = error.path.replace(_SCHEMA_OF_FORMAT, schema_path(turn.output_field), 1)
            if error.path.startswith(_STRUCTURED):
                path = turn.output_field  # it has older names too
            if isinstance(turn, ChatTurn):
                path = _as_sent(path, turn.schema_field)
            raise InvalidRequest(path, str(error).replace(error.path, path, 1)) from error

    def _build(
        self, turn: Turn, info: EngineInfo, prompt_tail: str, special_tokens: Mapping[str, int]
    ) -> GrammarSource | None:
        from inference.grammar.build import build_grammar

        if not isinstance(turn, ChatTurn):
            return build_grammar(_PLAIN, CallPolicy(), turn.output, special_tokens=special_tokens)
        is_thinking = _is_thinking(self._dialect, prompt_tail)
        return build_grammar(
            self._dialect,
            self._policy(turn),
            turn.output,
            opening="reasoning" if is_thinking else "answer",
            special_tokens=special_tokens,
            end_tokens=[text for text, token_id in special_tokens.items() if token_id in info.eos_token_ids],
            max_reasoning_tokens=self._reasoning_budget(turn, is_thinking),
        )

    def _reasoning_budget(self, turn: ChatTurn, is_thinking: bool) -> int | None:
        """None: as much as the model likes. A call that must come has half of the answer's room left at least."""
        if not (self._reasons or is_thinking):
            return 0 if turn.output != FREE_TEXT or turn.tool_choice not in ("auto", "none") else None
        budget, room = turn.max_reasoning_tokens, turn.params.max_tokens
        if turn.tool_choice in ("auto", "none") or room is None:
            return budget
        return room // 2 if budget is None else min(budget, room // 2)

    def _policy(self, turn: ChatTurn) -> CallPolicy:
        tools = tuple(self._tool(tool, f"tools[{number}]") for number, tool in enumerate(turn.tools))
        match turn.tool_choice:
            case NamedTool(name):
                # As OpenAI's API and vLLM have it: one call of that tool, and nothing else.
                return CallPolicy("required", tuple(tool for tool in tools if tool.name == name), parallel=False)
            case mode:
                return CallPolicy(mode, tools, turn.parallel_calls)

    def _tool(self, tool: Mapping[str, object], place: str) -> Tool:
        function = tool["function"]
        assert isinstance(function, Mapping)
        parameters = function.get("parameters") or {}
        return Tool(function["name"], parameters, self._settings.strict_tools or _is_strict(tool), place)

    def _read(self, info: EngineInfo) -> _Reader:
        # Late: nobody waits for the library and the vocabulary who does not need them.
        from inference.grammar.compile import GrammarCompiler
        from inference.grammar.special_tokens import special_tokens_of

        with self._lock:
            if self._reader is None:
                compiler = GrammarCompiler.from_folder(self._folder, info.vocab_size, info.eos_token_ids)
                text = (self._folder / "tokenizer.json").read_text(encoding="utf-8")
                self._reader = _Reader(compiler, special_tokens_of(text))
            return self._reader


def _as_sent(path: str, schema_field: str) -> str:
    """A place in a tool, as the client's protocol spells it; its name stands beside its schema."""
    of_function = schema_field.removesuffix(schema_field.rpartition(".")[2])
    return _OF_A_TOOL.sub(lambda at: at[1] + (of_function + "name" if at[2] == "name" else schema_field), path, count=1)


def _is_strict(tool: Mapping[str, object]) -> bool:
    function = tool.get("function")
    return isinstance(function, Mapping) and function.get("strict") is True


def _is_thinking(dialect: Dialect, prompt_tail: str) -> bool:
    """Whether the prompt leaves the model in its reasoning: then a letter more would be some."""
    parser = StreamParser(dialect, _NO_TOOLS, prompt_tail=prompt_tail)
    return any(isinstance(event, ReasoningDelta) for event in (*parser.feed("a"), *parser.finish("length")))


_NO_TOOLS: Sequence[dict[str, object]] = []
