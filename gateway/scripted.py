"""The scripted engine: raw model text from a JSONL file, through the real parser and encoders. No weights.

For tests of clients and of programs that use them. One line of the file is one turn:

    {"text": raw model text, "dialect": name?, "match": {"last_role"?: role, "contains"?: text}?,
     "chunk": "token" | "char" | N, "delay_ms"?: N, "finish"?: "stop" | "length", "repeat"?: bool}

The first line whose match fits and that is not used up answers; a turn that no line fits is refused. `last_role` is the
last message's role, `contains` a text that some message (or the prompt) contains. `chunk`: one word or sign, one
character or N characters a step ("token" by default); `delay_ms`: the pause before each. A line with `repeat` is never
used up. All choices of a turn (n) get the same text. docs/protocols.md has the guide.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson

from gateway.errors import InvalidRequest
from gateway.pieces import TextPiece
from gateway.protocols.fields import Fields, missing, wrong_type
from gateway.types import ChatTurn, CompletionTurn, EngineStats, Prepared, TokenCount, TokenLogprob, Turn
from stream_parser import DIALECTS

Chunk = Literal["token", "char"] | int

# A word with the blank before it, or one sign, or blanks: about what a BPE tokenizer would do.
_TOKEN = re.compile(r"[^\S\n]?\w+|[^\S\n]?[^\w\s]|\s+")
_ChunkWord = Literal["token", "char"]
_CHUNK_WORDS: tuple[_ChunkWord, ...] = ("token", "char")
_DEFAULT_DIALECT = "hermes"
_MAX_DELAY_MS = 600_000
_CERTAIN = 0.0


class ScriptError(ValueError):
    """The script file cannot be used; the message names file, line and field."""


@dataclass(frozen=True, slots=True)
class Match:
    last_role: str | None = None
    contains: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptLine:
    text: str
    dialect: str | None = None
    match: Match = Match()
    chunk: Chunk = "token"
    delay_s: float = 0.0
    finish: Literal["stop", "length"] = "stop"
    repeat: bool = False


_NO_ANSWER = ScriptLine("")


@dataclass(frozen=True, slots=True)
class ScriptedPrompt(Prepared):
    """encode: set where the output's token ids are wanted."""

    line: ScriptLine
    num_cached_tokens: int = 0
    encode: Callable[[str], list[int]] | None = None


def load_script(path: Path) -> tuple[ScriptLine, ...]:
    """Raises ScriptError."""
    try:
        raw_lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ScriptError(f"Cannot read the script {path}: {error.strerror}.") from error
    lines: list[ScriptLine] = []
    for number, raw in enumerate(raw_lines, 1):
        if not raw.strip():
            continue
        try:
            lines.append(_decode_line(Fields.of(orjson.loads(raw), "the line")))
        except (orjson.JSONDecodeError, InvalidRequest) as error:
            raise ScriptError(f"{path}, line {number}: {error}") from error
    if not lines:
        raise ScriptError(f"The script {path} has no lines: give at least one turn.")
    return tuple(lines)


def _decode_line(line: Fields) -> ScriptLine:
    fields = Fields(line.raw)
    text = fields.string("text")
    if text is None:
        raise missing("text", "the raw text of the model")
    match = fields.object("match") or Fields({}, "match")
    return ScriptLine(
        text=text,
        dialect=fields.choice("dialect", tuple(DIALECTS)),
        match=Match(match.string("last_role"), match.string("contains")),
        chunk=_chunk(fields),
        delay_s=fields.number("delay_ms", 0, low=0, high=_MAX_DELAY_MS) / 1000,
        finish=fields.choice("finish", ("stop", "length")) or "stop",
        repeat=fields.boolean("repeat"),
    )


def _chunk(fields: Fields) -> Chunk:
    value = fields.get("chunk")
    if isinstance(value, str):
        return fields.choice("chunk", _CHUNK_WORDS) or "token"
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise wrong_type("chunk", "'token', 'char' or a number of characters", value)
    return fields.integer("chunk", low=1, high=2**31) or "token"


class ScriptedBackend:
    """Answers turns from script lines, in order. Tokens are words and signs; ids are given out as words are seen."""

    def __init__(self, lines: tuple[ScriptLine, ...], default_dialect: str | None = None) -> None:
        self._lines = lines
        self._default_dialect = default_dialect or _DEFAULT_DIALECT
        self._is_used = [False] * len(lines)
        self._words = _Words()
        self._num_running = 0

    @property
    def is_ready(self) -> bool:
        return True

    @property
    def models(self) -> None:
        return None

    @property
    def forces(self) -> bool:
        return False

    @property
    def max_model_len(self) -> int | None:
        return None

    @property
    def info(self) -> None:
        return None

    @property
    def stats(self) -> EngineStats | None:
        return EngineStats(num_running=self._num_running)

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def prepare(self, turn: Turn, turn_id: str) -> tuple[Prepared, ...]:
        """Chooses the lines. Raises InvalidRequest when none fits."""
        if isinstance(turn, CompletionTurn):
            return tuple(self._prepare_prompt(turn, turn_id, prompt) for prompt in turn.prompts)
        texts = [text for message in turn.messages for text in (message.content, message.reasoning) if text]
        texts += [use.arguments for message in turn.messages for use in message.tool_uses]
        # A turn without an answer uses no line up.
        is_empty = turn.params.max_tokens == 0
        past = turn.continues
        prompt_ids = () if past is None else (*past.token_ids, *self._new_ids(turn, past.num_messages))
        line = _NO_ANSWER if is_empty else self._take_line(turn.messages[-1].role, texts)
        return (
            ScriptedPrompt(
                turn_id=turn_id,
                params=turn.params,
                n=turn.n,
                num_prompt_tokens=len(prompt_ids) or sum(len(split_tokens(text)) for text in texts),
                prompt_text="",
                dialect=line.dialect or self._default_dialect,
                prompt_tail="",
                vocab=None,
                tools=() if turn.tool_choice == "none" else turn.tools,
                line=line,
                num_cached_tokens=0 if past is None else len(past.token_ids),
                encode=None if past is None else self._words.ids,
                prompt_ids=prompt_ids,
            ),
        )

    def _new_ids(self, turn: ChatTurn, num_old_messages: int) -> list[int]:
        return [token for message in turn.messages[num_old_messages:] for token in self._words.ids(message.content)]

    def _prepare_prompt(self, turn: CompletionTurn, turn_id: str, prompt: str | tuple[int, ...]) -> Prepared:
        text = prompt if isinstance(prompt, str) else self._words.text(prompt)
        num_tokens = len(split_tokens(prompt)) if isinstance(prompt, str) else len(prompt)
        line = self._take_line(None, [text])
        return ScriptedPrompt(turn_id, turn.params, turn.n, num_tokens, text, None, "", None, (), line)

    def _take_line(self, last_role: str | None, texts: list[str]) -> ScriptLine:
        for i, line in enumerate(self._lines):
            if not self._is_used[i] and _fits(line.match, last_role, texts):
                self._is_used[i] = not line.repeat
                return line
        num_used = sum(self._is_used)
        message = f"No line of the script answers this turn (last role: {last_role}): of its {len(self._lines)} lines "
        message += f"{num_used} are used up and the others do not match. Add a line, or 'repeat': true to one."
        raise InvalidRequest("messages" if last_role else "prompt", message, code="script_no_match")

    def generate(self, prepared: Prepared) -> ScriptedPieces:
        assert isinstance(prepared, ScriptedPrompt)
        return ScriptedPieces(prepared, self._add_running)

    def _add_running(self, number: int) -> None:
        self._num_running += number

    async def count_tokens(self, turn: Turn) -> TokenCount:
        return TokenCount(len(await self.tokenize(turn)))

    async def tokenize(self, turn: Turn) -> list[int]:
        if isinstance(turn, ChatTurn):
            return [token for message in turn.messages for token in self._words.ids(message.content)]
        prompt = turn.prompts[0]
        return self._words.ids(prompt) if isinstance(prompt, str) else list(prompt)

    def detokenize(self, token_ids: list[int]) -> str:
        return self._words.text(token_ids)


class ScriptedPieces:
    """The pieces of one line, choice by choice within a step, cut at max_tokens."""

    def __init__(self, prompt: ScriptedPrompt, add_running: Callable[[int], None]) -> None:
        self._delay_s = prompt.line.delay_s
        self._pieces = _pieces(prompt)
        self._num_choices = prompt.n
        self._num_given = 0
        self._add_running = add_running
        self._is_open = True
        self._ended: set[int] = set()
        add_running(1)

    async def taken(self, timeout_s: float) -> None:
        """At once."""

    def __aiter__(self) -> ScriptedPieces:
        return self

    async def __anext__(self) -> TextPiece:
        while True:
            if self._num_given % self._num_choices == 0:
                # Without a delay the loop still has to come round, or nothing else would run until the text is over.
                await asyncio.sleep(self._delay_s)
            if not self._is_open:
                raise StopAsyncIteration
            piece = next(self._pieces, None)
            if piece is None:
                raise StopAsyncIteration
            self._num_given += 1
            if piece.choice not in self._ended:
                return piece

    def end_choice(self, choice: int) -> None:
        self._ended.add(choice)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._add_running(-1)


def _pieces(prompt: ScriptedPrompt) -> Iterator[TextPiece]:
    line, params = prompt.line, prompt.params
    chunks, finish_reason = _cut(_chunks(line.text, line.chunk), params.max_tokens, line.finish)
    num_top = params.logprobs
    for step, (text, num_tokens) in enumerate(chunks, 1):
        logprobs = () if num_top is None else tuple(_logprob(token, num_top) for token in split_tokens(text))
        reason = finish_reason if step == len(chunks) else None
        output_ids = () if prompt.encode is None else tuple(prompt.encode(text))
        for choice in range(prompt.n):
            cached = prompt.num_cached_tokens if step == 1 else None
            yield TextPiece(choice, text, (), num_tokens, logprobs, reason, cached, output_ids)


def _chunks(text: str, chunk: Chunk) -> list[tuple[str, int]]:
    """The texts of the steps, with their numbers of tokens."""
    if chunk == "token":
        return [(token, 1) for token in split_tokens(text)]
    num_chars = 1 if chunk == "char" else chunk
    pieces = (text[i : i + num_chars] for i in range(0, len(text), num_chars))
    return [(piece, len(split_tokens(piece))) for piece in pieces]


def _cut(
    chunks: list[tuple[str, int]], max_tokens: int | None, finish: Literal["stop", "length"]
) -> tuple[list[tuple[str, int]], Literal["stop", "length"]]:
    num_left = max_tokens
    kept: list[tuple[str, int]] = []
    for text, num_tokens in chunks:
        if num_left is not None and num_tokens > num_left:
            rest = split_tokens(text)[:num_left]
            return ([*kept, ("".join(rest), len(rest))], "length") if rest or not kept else (kept, "length")
        kept.append((text, num_tokens))
        num_left = None if num_left is None else num_left - num_tokens
    # A line without text still has to say that it ends.
    return kept or [("", 0)], finish


def _logprob(token: str, num_top: int) -> TokenLogprob:
    """The script is certain of itself."""
    top = ((token, _CERTAIN),) if num_top else ()
    return TokenLogprob(token, _CERTAIN, top, len(token))


def split_tokens(text: str) -> list[str]:
    """Words with the blank before them, and signs. Joined, they are the text."""
    return _TOKEN.findall(text)


def _fits(match: Match, last_role: str | None, texts: list[str]) -> bool:
    if match.last_role is not None and match.last_role != last_role:
        return False
    return match.contains is None or any(match.contains in text for text in texts)


class _Words:
    """Token ids for /tokenize and /detokenize: a number for each word, given out when it is first seen."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._words: list[str] = []

    def ids(self, text: str) -> list[int]:
        return [self._id(word) for word in split_tokens(text)]

    def _id(self, word: str) -> int:
        number = self._ids.setdefault(word, len(self._words))
        if number == len(self._words):
            self._words.append(word)
        return number

    def text(self, token_ids: Sequence[int]) -> str:
        """Ids that no text has had yet stand for no text."""
        return "".join(self._words[i] for i in token_ids if 0 <= i < len(self._words))
