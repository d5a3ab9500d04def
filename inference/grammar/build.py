"""Puts a grammar together: what the dialect's frame allows, under what the request demands.

The result is data (`GrammarSource`); `compile` meets it with a tokenizer. Pure, and bounded in time whatever the
schemas say; still, a large schema takes some 100 ms, so call it off the event loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias, assert_never

from inference.grammar.calls import ReadTool, read_tools
from inference.grammar.conjunctions import checked_pattern
from inference.grammar.errors import GrammarError
from inference.grammar.frames import Frame, bare_call_patterns, choice, frame_of, free_text
from inference.grammar.lark import LarkWriter, either, regex, sequence
from inference.grammar.nodes import Members, OneOf, flat_options
from inference.grammar.notations import json_notation
from inference.grammar.plain_strings import PlainStrings
from inference.grammar.policy import (
    DEFAULT_BOUNDS,
    FREE_TEXT,
    Bounds,
    CallPolicy,
    Choice,
    FreeText,
    JsonObject,
    JsonSchema,
    OutputFormat,
    Regex,
    TextGrammar,
)
from inference.grammar.schema import SchemaReader
from inference.grammar.source import GrammarSource, Reasoning, Trigger
from inference.grammar.text_patterns import anchored_pattern
from inference.grammar.text_sets import text_set
from inference.grammar.user_grammars import nested_grammar
from inference.grammar.values import ValueWriter
from stream_parser.dialect import ByFirstChar, Dialect, JsonArguments, JsonCall

Opening: TypeAlias = Literal["answer", "reasoning"]


def build_grammar(
    dialect: Dialect,
    policy: CallPolicy,
    output: OutputFormat = FREE_TEXT,
    *,
    opening: Opening = "answer",
    special_tokens: Mapping[str, int] | None = None,
    end_tokens: Collection[str] = (),
    bounds: Bounds = DEFAULT_BOUNDS,
    max_reasoning_tokens: int | None = None,
) -> GrammarSource | None:
    """The grammar of one answer; None where nothing is to be constrained, and the row runs without masks.

    opening: where the prompt left the model, which the parser finds from the prompt's tail. special_tokens: text to id,
    from `special_tokens_of`; markers among them are matched as tokens, all others as text. end_tokens: texts of the
    tokens that end a turn. max_reasoning_tokens: 0 allows none, None as much as the turn has room for.

    Raises GrammarError: a schema, pattern or dialect that cannot be constrained, with the path to it.
    """
    return _Builder(
        dialect, policy, output, opening, special_tokens or {}, end_tokens, bounds, max_reasoning_tokens
    ).build()


class _Builder:
    def __init__(
        self,
        dialect: Dialect,
        policy: CallPolicy,
        output: OutputFormat,
        opening: Opening,
        special_tokens: Mapping[str, int],
        end_tokens: Collection[str],
        bounds: Bounds,
        max_reasoning_tokens: int | None,
    ) -> None:
        self._dialect = dialect
        self._policy = policy
        self._output = output
        self._opening = opening
        self._special = special_tokens
        self._end_tokens = frozenset(end_tokens)
        self._bounds = bounds
        self._max_reasoning = max_reasoning_tokens
        self._writer = LarkWriter(special_tokens)
        self._frame: Frame = frame_of(self._writer, dialect, bounds, self._end_tokens)
        self._not_enforced: dict[str, None] = {}
        self._strings = PlainStrings()
        self._are_plain: list[bool] = []  # the strings of each part that may begin the answer

    def build(self) -> GrammarSource | None:
        policy = self._policy
        if policy.mode == "required" and not policy.tools:
            raise GrammarError("tool_choice", "a call is required, and there is no tool to call.")
        if policy.mode == "required":
            return self._source(self._answer(calls=True, text=False))
        if not isinstance(self._output, FreeText):
            return self._source(self._answer(calls=policy.mode == "auto" and bool(policy.tools), text=True))
        if policy.mode == "none" and policy.tools:
            return self._source(self._without_calls())
        if policy.mode == "auto" and any(tool.strict for tool in policy.tools):
            tools = self._tools()
            return self._source(self._frame.stretch(tools, parallel=policy.parallel), self._frame.triggers(tools))
        reasoning = self._reasoning()
        return self._with_special(GrammarSource("", reasoning=reasoning)) if reasoning else None

    def _source(self, start: str, triggers: tuple[Trigger, ...] = ()) -> GrammarSource:
        source = GrammarSource(
            lark=self._writer.grammar(start or '""'),
            triggers=triggers,
            ends_after_call=bool(triggers) and not self._policy.parallel,
            reasoning=self._reasoning(),
            not_enforced=tuple(self._not_enforced),
            searches_text=self._writer.searches_text,
            has_plain_strings=self._are_plain == [True],  # several parts may begin alike
            has_plain_keys=self._are_plain == [True] and self._strings.keys_too,
        )
        return self._with_special(source)

    def _with_special(self, source: GrammarSource) -> GrammarSource:
        """With the special tokens that its texts contain; a tokenizer may have a thousand more."""
        found = ((text, token_id) for text, token_id in self._special.items() if source.mentions(text))
        return replace(source, special_tokens=tuple(sorted(found)))

    def _tools(self) -> list[ReadTool]:
        tools = read_tools(self._policy.tools, self._bounds, self._not_enforced)
        strings = self._strings
        is_one_each = len({tool.name for tool in tools}) == len(tools)
        is_plain = is_one_each and _writes_json(self._dialect) and all(strings.only(tool.arguments) for tool in tools)
        self._are_plain.append(is_plain)
        return tools

    def _answer(self, *, calls: bool, text: bool) -> str:
        """Reasoning, if it may be, and then calls, or text in its format."""
        options = [self._frame.calls(self._tools(), parallel=self._policy.parallel)] if calls else []
        if text:
            options.append(self._frame.answer(self._format()))
        rest = either(options)
        thinking = self._frame.thinking(opened=self._opening == "reasoning")
        if not thinking or (self._opening == "answer" and self._max_reasoning == 0):
            return rest
        return sequence([thinking if self._opening == "reasoning" else f"({thinking})?", rest])

    def _without_calls(self) -> str:
        """Free text in which no call can begin."""
        names = [tool.name for tool in self._policy.tools]
        specials = {marker: number for marker, number in self._special.items() if marker not in self._end_tokens}
        texts: list[str] = []
        for mark in self._frame.marks():
            pieces = self._writer.pieces(mark)
            own = [piece for piece, is_special in pieces if is_special and self._only_in_calls(piece)]
            for piece in own:
                specials.pop(piece, None)
            if own:
                texts.append(mark)  # nor may it be spelled
            else:
                texts += [piece for piece, is_special in pieces if not is_special and piece.strip()]
        return free_text(self._writer, texts, bare_call_patterns(self._dialect, names), specials.values())

    def _only_in_calls(self, token: str) -> bool:
        dialect = self._dialect
        spans = (*dialect.reasoning, *dialect.answer)
        others = [marker for span in spans for marker in (*span.opens, *span.closes)]
        if dialect.messages is not None:
            others += [*dialect.messages.starts, dialect.messages.message, *dialect.messages.ends]
            others += [route.render for route in dialect.messages.routes if route.to not in ("call", "calls")]
        return not any(token in marker for marker in others)

    def _format(self) -> str:
        output = self._output
        match output:
            case JsonObject():
                return self._json({"type": "object"}, "response_format")
            case JsonSchema(schema=schema):
                return self._json(schema, "response_format.schema")
            case Regex(pattern=pattern):
                whole = anchored_pattern(checked_pattern(pattern, "structured_outputs.regex", "regex"))
                if text_set(whole).is_empty:
                    raise GrammarError("structured_outputs.regex", f"{pattern!r:.80} fits no text at all.")
                return self._writer.terminal(regex(whole))
            case Choice(options=options):
                if not any(options):
                    raise GrammarError("structured_outputs.choice", "there is nothing to choose from.")
                return choice(options, self._writer)
            case TextGrammar(text=text):
                self._writer.may_spell(text)
                return self._writer.rule(nested_grammar(text))
            case FreeText():
                raise AssertionError("free text has no format")
            case _:
                assert_never(output)

    def _json(self, schema: Mapping[str, object] | bool, path: str) -> str:
        try:
            reader = SchemaReader(schema, path, self._bounds)
            node = reader.read()
            if isinstance(self._output, JsonObject):
                objects = [option for option in flat_options(node) if isinstance(option, Members)]
                node = OneOf(tuple(objects))
            self._not_enforced.update(reader.not_enforced)
            self._are_plain.append(self._strings.only(node))
            values = ValueWriter(self._writer, json_notation(compact=self._bounds.compact_json), self._bounds)
            return values.expression(node, path)
        except GrammarError as error:
            error.locate(path)
            raise

    def _reasoning(self) -> Reasoning | None:
        frame = self._frame
        if self._max_reasoning is None or not frame.closes_reasoning:
            return None
        inside = self._opening == "reasoning"
        if self._max_reasoning == 0 and not inside and self._policy.mode == "required":
            return None  # the grammar leaves no room for any
        return Reasoning(
            frame.reasoning_opens, frame.reasoning_closes, frame.closes_reasoning, inside, self._max_reasoning
        )


def _writes_json(dialect: Dialect) -> bool:
    """Are the arguments of its calls in JSON?"""
    bodies = [call.body for call in dialect.calls[:1]]
    if dialect.messages is not None and dialect.messages.body is not None:
        bodies = [dialect.messages.body]
    written = [body.choices[0][1] if isinstance(body, ByFirstChar) else body for body in bodies]
    return all(isinstance(body, JsonCall | JsonArguments) for body in written)
