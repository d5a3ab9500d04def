"""Turns that a real model samples under a grammar, in this process, and what is wrong with what they wrote.

A case is a dialect, a tool that matters among others, and a policy. Its text goes through the parser piece by piece,
as it would to a client, and its calls through `jsonschema`. Knows the engine, no server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any, Literal
from urllib.parse import urlsplit

import jsonschema

from inference.grammar.build import build_grammar
from inference.grammar.compile import GrammarCompiler
from inference.grammar.policy import Bounds, CallPolicy, Tool
from inference.mask_ledger import TokenMatcher
from inference.models import resolve
from inference.runner.loader import LoadedModel
from inference.tokenizer import CheckpointTokenizer
from inference.types import FinishReason
from stream_parser.dialects import DIALECTS
from stream_parser.events import Message, ToolCall
from stream_parser.renderer import WrittenCall, render
from tests.testkit.call_schemas import CALL_SCHEMAS, tool_of
from tests.testkit.local_engine import LocalEngine, loaded, local_engine
from tests.testkit.parser_streams import parse_message

# opened: auto, and the model is made to write a call's opening, since small ones seldom do by themselves.
# example: auto behind an answer that called. unheld: the same with no grammar, to compare.
Mode = Literal["required", "named", "opened", "example", "none", "unheld"]
ALWAYS_CALL: tuple[Mode, ...] = ("required", "named", "opened")
# So that an answer has an end within MAX_TOKENS: at this temperature a model writes a string up to its bound.
BOUNDS = Bounds(
    integer_digits=9, fraction_digits=4, string_chars=40, key_chars=8, array_items=3, extra_members=2, free_depth=2,
    recursion_depth=3, calls=3,
)  # fmt: skip
MAX_TOKENS = 1500
_MAX_FREE_TOKENS = 32
_MAX_REASONING_TOKENS = 12
# Pairs of dialect and tool that the dialect's syntax has no words for: keywords and bare keys are identifiers, and
# undeclared parameters have no tag.
UNWRITABLE = frozenset({
    ("gemma4", "odd_names"), ("minimax_m3", "set_env"), ("pythonic", "odd_names"), ("pythonic", "set_env"),
    ("pythonic", "set_тема"), ("qwen3_coder", "set_env"),
})  # fmt: skip
_EXAMPLE_QUESTION = "Do it now, please."


@dataclass(frozen=True, slots=True)
class Case:
    """shows_tools: the prompt describes them. Reading that takes longest, and the grammar holds without."""

    dialect: str
    tool: str
    mode: Mode
    seed: int
    temperature: float = 1.5
    shows_tools: bool = True

    @property
    def tool_names(self) -> list[str]:
        """Two of the forty: the one that matters, and the next in the list that the dialect can write."""
        names = [name for name in CALL_SCHEMAS if (self.dialect, name) not in UNWRITABLE]
        at = names.index(self.tool)
        return [self.tool, names[(at + 1) % len(names)]]


@dataclass(frozen=True, slots=True)
class Answer:
    """problem: what is wrong, "" if nothing is, and `text` what was written."""

    case: Case
    text: str
    num_tokens: int
    num_calls: int
    problem: str = ""
    detail: str = ""


class CallSampler:
    """Runs cases in batches on one engine."""

    def __init__(self, model: LoadedModel, bounds: Bounds, *, max_rows: int = 16) -> None:
        folder = resolve(None).folder
        self.tokenizer = CheckpointTokenizer.from_folder(folder)
        self._bounds = bounds
        self._end_ids = model.eos_token_ids
        self._compiler = GrammarCompiler.from_folder(folder, model.vocab_size, model.eos_token_ids)
        self.engine: LocalEngine = local_engine(model, max_rows=max_rows, max_step_tokens=512)

    def run(self, cases: Iterable[Case]) -> Iterator[Answer]:
        """Each answer when it is complete. At most two batches wait in the engine."""
        waiting, running = iter(cases), dict[str, tuple[Case, str]]()
        while True:
            while len(running) < 32 and (case := next(waiting, None)) is not None:
                turn_id = str(len(self.engine.chunks) + len(running)) + repr(case)
                running[turn_id] = case, self._submit(turn_id, case)
            if not running:
                return
            self.engine.step()
            for turn_id in [key for key in running if self._is_over(key)]:
                yield self._answer(turn_id, *running.pop(turn_id))

    def _is_over(self, turn_id: str) -> bool:
        chunks = self.engine.chunks.get((turn_id, 0))
        return bool(chunks) and chunks[-1].finish_reason is not None

    def _submit(self, turn_id: str, case: Case) -> str:
        prompt = self.prompt(case)
        free = case.mode in ("none", "example", "unheld")
        self.engine.submit(
            turn_id, self.tokenizer.encode(prompt), matchers=self._matchers(case), temperature=case.temperature,
            seed=case.seed, max_tokens=_MAX_FREE_TOKENS if free else MAX_TOKENS,
        )  # fmt: skip
        return prompt

    def prompt(self, case: Case) -> str:
        messages = [{"role": "user", "content": f"Call {case.tool} with values of your own ({case.seed})."}]
        if case.mode in ("none", "example", "unheld"):
            called = render(DIALECTS[case.dialect], calls=[WrittenCall("get_time", {})])
            example = {"role": "user", "content": _EXAMPLE_QUESTION}
            messages = [example, {"role": "assistant", "content": called}] * 2 + messages
        tools = [tool_of(name) for name in case.tool_names] if case.shows_tools else None
        return self.tokenizer.render_chat(messages, tools)

    def _matchers(self, case: Case) -> list[TokenMatcher]:
        if case.mode == "unheld":
            return []
        special = dict(self.tokenizer.special_tokens)
        source = build_grammar(
            DIALECTS[case.dialect], _policy(case), special_tokens=special, bounds=self._bounds,
            end_tokens=[text for text, token_id in special.items() if token_id in self._end_ids],
            max_reasoning_tokens=_MAX_REASONING_TOKENS,
        )  # fmt: skip
        assert source is not None
        matcher = self._compiler.matcher(source)
        if case.mode != "opened":
            return [matcher]
        opening = self.tokenizer.encode(f"Let me see.\n{source.triggers[0].text}")
        return [OpenedMatcher(matcher, opening)]

    def _answer(self, turn_id: str, case: Case, prompt: str) -> Answer:
        chunks = self.engine.chunks.pop((turn_id, 0))
        detokenizer, pieces = self.tokenizer.detokenizer(), []
        for chunk in chunks:
            ended = chunk.stop_token_id is not None
            pieces.append(detokenizer.feed(chunk.token_ids[:-1] if ended else chunk.token_ids))
        pieces.append(detokenizer.flush())
        reason = chunks[-1].finish_reason
        assert reason is not None
        text, num_tokens = "".join(pieces), sum(len(chunk.token_ids) for chunk in chunks)
        if reason == "error":
            return Answer(case, text, num_tokens, 0, "the engine gave up", chunks[-1].error or "")
        message = parsed(case, pieces, reason, prompt)
        problem, detail = check(case, message, reason)
        return Answer(case, text, num_tokens, len(message.tool_calls), problem, detail)


class OpenedMatcher:
    """Forces the beginning of a text, and then leaves it to another matcher, which saw every token."""

    def __init__(self, inner: TokenMatcher, opening: Sequence[int]) -> None:
        self._inner = inner
        self._left = list(opening)

    @property
    def is_done(self) -> bool:
        return not self._left and self._inner.is_done

    @property
    def error(self) -> str:
        return self._inner.error

    def expect(self, token_id: int) -> None:
        """`accept` does it all."""

    def accept(self, token_id: int) -> bool:
        if self._left and self._left.pop(0) != token_id:
            return False
        return self._inner.accept(token_id)

    def forced(self) -> tuple[int, ...]:
        return tuple(self._left) or self._inner.forced()

    lets_most_through = writes_text = False
    has_mask = is_answered = True

    def mask(self, out: Any) -> bool:
        if not self._left:
            return self._inner.mask(out)
        out[:] = 0
        out.view("uint32")[self._left[0] >> 5] = 1 << (self._left[0] & 31)
        return True


@contextmanager
def call_sampler(dtype: str = "int8", bounds: Bounds = BOUNDS, kv_bytes: int = 512 << 20) -> Iterator[CallSampler]:
    """Over the embedded default model."""
    with loaded(resolve(None).folder, dtype=dtype, kv_bytes=kv_bytes) as model:
        yield CallSampler(model, bounds)


def _policy(case: Case) -> CallPolicy:
    tools = tuple(Tool(name, CALL_SCHEMAS[name], strict=True) for name in case.tool_names)
    match case.mode:
        case "named":
            return CallPolicy("required", tools[:1], parallel=False)
        case "required":
            return CallPolicy("required", tools)
        case "opened":
            return CallPolicy("auto", tools, parallel=False)
        case "none":
            return CallPolicy("none", tools)
        case _:
            return CallPolicy("auto", tools)


def parsed(case: Case, pieces: Sequence[str], reason: FinishReason, prompt: str) -> Message:
    tools = [tool_of(name) for name in case.tool_names]
    # Some openers count only behind what the dialect's own template ends with.
    turns = DIALECTS[case.dialect].turns
    return parse_message(case.dialect, pieces, tools, reason, prompt_tail=turns[0] if turns else prompt[-4096:])


def check(case: Case, message: Message, reason: FinishReason) -> tuple[str, str]:
    """The kind of what is wrong, and about what; ("", "") if nothing is."""
    calls = message.tool_calls
    if case.mode == "unheld":
        return "", ""
    if case.mode == "none":
        return ("a call where none may be", calls[0].name) if calls else ("", "")
    if case.mode in ALWAYS_CALL and not calls:
        return "no call where one must be", reason
    if case.mode in ("required", "named") and message.content.strip():
        return "text beside the call", message.content
    if case.mode == "named" and [call.name for call in calls] != [case.tool]:
        return "not the named tool", str([call.name for call in calls])
    cut_off = reason == "length" and case.mode in ("example", "opened")
    for call in calls[:-1] if cut_off and len(calls) > (case.mode == "opened") else calls:
        problem = _problem_of(call, case.tool_names)
        if problem[0]:
            return problem
    return ("cut off", reason) if reason == "length" and case.mode in ("required", "named") else ("", "")


def _problem_of(call: ToolCall, names: Sequence[str]) -> tuple[str, str]:
    if call.name not in names:
        return "not a declared tool", call.name
    if call.outcome != "ok":
        return f"outcome {call.outcome}", call.reason or call.arguments
    try:
        arguments = json.loads(call.arguments)
    except ValueError as error:
        return "arguments are no JSON", str(error)
    errors = jsonschema.Draft202012Validator(CALL_SCHEMAS[call.name], format_checker=FORMATS).iter_errors(arguments)
    error = next(errors, None)
    return ("invalid arguments", f"{error.json_path}: {error.message}") if error is not None else ("", "")


# Formats, which jsonschema checks only with packages of their own.

FORMATS = jsonschema.FormatChecker(formats=("email", "ipv4", "ipv6", "uuid"))


def _format(name: str, read: Callable[[str], object]) -> None:
    FORMATS.checks(name, raises=ValueError)(lambda value: not isinstance(value, str) or read(value) is not None)


def _matching(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern, re.ASCII).fullmatch


def _is_uri(value: str) -> object:
    return (urlsplit(value).scheme and _matching(r"[!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]+")(value)) or None


def _is_time(value: str) -> object:
    # RFC 3339 has leap seconds and demands an offset; the standard library has and does neither.
    shape = re.fullmatch(r"(\d\d:\d\d:)(\d\d)(\.\d+)?([zZ]|[+-]\d\d:\d\d)", value, re.ASCII)
    return shape and time.fromisoformat(f"{shape[1]}{min(int(shape[2]), 59 if shape[2] <= '60' else 61):02}")


def _is_date_time(value: str) -> object:
    day, _, rest = value.upper().partition("T")
    return datetime.combine(date.fromisoformat(day), time()) and _is_time(rest)


_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_format("date", lambda value: (len(value) == 10 and date.fromisoformat(value)) or None)
_format("time", _is_time)
_format("date-time", _is_date_time)
_format("hostname", _matching(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*"))
_format("uri", _is_uri)
_TIME_OF_DURATION = r"T(?=\d)(\d+H)?(\d+M)?(\d+S)?"
_format(
    "duration",
    _matching(rf"P(?=[\dT])((\d+Y)?(\d+M)?(\d+D)?({_TIME_OF_DURATION})?|\d+W)"),
)
