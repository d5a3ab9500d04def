"""A small vocabulary and short ways to ask what a grammar takes, for tests that need no model."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from llguidance import LLInterpreter, LLMatcher

from inference.grammar.build import build_grammar
from inference.grammar.compile import GrammarCompiler
from inference.grammar.matcher import Matcher
from inference.grammar.policy import Bounds, CallPolicy, JsonSchema
from inference.grammar.source import GrammarSource
from inference.grammar.vocabulary import Vocabulary
from stream_parser.dialects import DIALECTS

SPECIAL = ("<end>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "[TOOL_CALLS]",
           "｜DSML｜", "<|open|>", "<|close|>", "<|sep|>", "<escape>")  # fmt: skip
END = 0
# Pieces as byte-pair vocabularies have them: words with their space, and punctuation that runs over marker ends.
_PIECES = """
the and  the  and  of Oslo  Oslo rain  rain get set do _it tool _call call name arguments parameter function invoke
arg _key key _value value city days true false null True False None think  fox  sea été 東京 item :" ":" ": " ", ",
{" "} "}} }} {} [] [{ }] ]] </ > >\\n ></ "> <tool _call>\\n <tool_call> </tool_call> =" =' ', (' ') () </parameter
> <parameter= 00 12 19 20 123 -1 .5 e+ \\n\\n \\n <| |> <｜ ｜> << <b </b> ]<] [>[
"""
SMALL_BOUNDS = Bounds(
    integer_digits=6, fraction_digits=3, string_chars=16, key_chars=6, array_items=3, extra_members=2, free_depth=2,
    recursion_depth=2, calls=2,
)  # fmt: skip


@cache
def vocabulary() -> Vocabulary:
    pieces = [piece.replace("\\n", "\n") for piece in _PIECES.strip("\n").replace("\n", " ").split(" ")]
    spaced = [" " + piece for piece in pieces if piece.isalpha()]
    unique = dict.fromkeys(piece.encode() for piece in (*pieces, *spaced) if len(piece.encode()) > 1)
    tokens = [*(name.encode() for name in SPECIAL), *(bytes([byte]) for byte in range(256)), *unique]
    # As models' vocabularies are padded, so that no id beyond the tokens' own is ever allowed.
    return Vocabulary.from_token_bytes(tokens, len(tokens) + 45, [END], range(len(SPECIAL)))


SPECIAL_TOKENS = {name: number for number, name in enumerate(SPECIAL)}


@cache
def compiler() -> GrammarCompiler:
    return GrammarCompiler(vocabulary(), cache_size=64)


def schema_source(schema: Mapping[str, object] | bool, bounds: Bounds | None = None) -> GrammarSource:
    """The grammar of an answer that is JSON under this schema."""
    source = build_grammar(DIALECTS["plain"], CallPolicy(), JsonSchema(schema), bounds=bounds or Bounds(),
                           max_reasoning_tokens=0)  # fmt: skip
    assert source is not None
    return source


def takes(source: GrammarSource, text: str) -> bool:
    """Is `text`, whole, an answer under the grammar?"""
    matcher = compiler().matcher(source)
    tokens = vocabulary().tokens_of(vocabulary().encode(text, SPECIAL_TOKENS))
    return all(matcher.accept(token) for token in tokens) and matcher.accept(END)


def takes_value(schema: Mapping[str, object] | bool, value: object, bounds: Bounds | None = None) -> bool:
    return takes(schema_source(schema, bounds), json.dumps(value, ensure_ascii=False))


class Kit:
    """A compiler and what its vocabulary's special tokens are called; `end` ends a turn."""

    def __init__(self, own: GrammarCompiler, special_tokens: Mapping[str, int], end: str) -> None:
        self.compiler = own
        self.special_tokens = special_tokens
        self.end = end

    def allowed(self, matcher: Matcher) -> list[int] | None:
        """The ids that the mask lets pass; None where there is no mask."""
        row = np.zeros(self.compiler.vocabulary.mask_words, dtype=np.int32)
        if not matcher.mask(row):
            return None
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        found: list[int] = np.flatnonzero(bits).tolist()
        return found

    def text_of(self, tokens: Sequence[int]) -> str:
        names = {number: name.encode() for name, number in self.special_tokens.items()}
        vocabulary = self.compiler.vocabulary
        parts = [names[token] if token in names else vocabulary.bytes_of(token) for token in tokens]
        return b"".join(parts).decode("utf-8", "replace")

    def random_walk(self, source: GrammarSource, rng: random.Random, limit: int = 2000) -> str:
        """What tokens drawn evenly from the masks write, up to the end token, which must come within `limit`."""
        matcher = self.compiler.matcher(source)
        tokens: list[int] = []
        while len(tokens) < limit:
            choices = self.allowed(matcher)
            assert choices, f"nothing may follow {self.text_of(tokens)[-200:]!r} {matcher.error}"
            token = rng.choice(choices)
            assert matcher.accept(token), self.text_of(tokens)[-200:]
            if token == self.special_tokens[self.end]:
                return self.text_of(tokens)
            tokens.append(token)
        raise AssertionError(f"no end within {limit} tokens: {self.text_of(tokens)[-200:]!r}")


@cache
def small_kit() -> Kit:
    return Kit(compiler(), SPECIAL_TOKENS, "<end>")


def allowed(matcher: Matcher) -> list[int] | None:
    return small_kit().allowed(matcher)


def text_of(tokens: Sequence[int]) -> str:
    return small_kit().text_of(tokens)


def random_walk(source: GrammarSource, rng: random.Random) -> str:
    return small_kit().random_walk(source, rng)


def slices_applied(source: GrammarSource, text: str, num_bytes: int) -> list[int]:
    """How many slices of the vocabulary each mask takes at sight, before each of the last bytes and behind them."""
    grammar = LLMatcher.grammar_from_lark('%llguidance {"no_forcing": true}\n' + source.lark)
    row = LLInterpreter(vocabulary().tokenizer, grammar, enable_backtrack=False, enable_ff_tokens=False, log_level=0)
    row.start_without_prompt()
    tokens = vocabulary().tokens_of(vocabulary().encode(text[:-num_bytes], SPECIAL_TOKENS))
    found = []
    for token in [*tokens, *(vocabulary().tokens_of(bytes([byte]))[0] for byte in text[-num_bytes:].encode())]:
        found.append(_num_slices(row))
        row.commit_token(token)
    return [*found[len(tokens) :], _num_slices(row)]


def _num_slices(row: LLInterpreter) -> int:
    progress = json.loads(row.compute_mask()[1])["progress"]
    return sum(part["stats"]["slices_applied"] for part in progress)
