"""Sources to matchers for one model's vocabulary, by llguidance (ADR 0006). The only modules that know the library
are this one, `compiled_source`, `matcher`, `masks`, `vocabulary`, `text_sets`, and the two that borrow its regex and
GBNF translations.

Compiling releases the GIL and is bounded by the library's limits; compiled grammars are kept, the least used go first.
One that many rows use at once is compiled several times, since the copies of one compiled grammar wait for each other.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from llguidance import LLMatcher, LLParserLimits

from inference.grammar.compiled_source import CompiledSource
from inference.grammar.errors import GrammarError, GrammarTooComplex
from inference.grammar.matcher import Matcher
from inference.grammar.source import GrammarSource
from inference.grammar.vocabulary import Vocabulary

_MAX_SOURCE_CHARS = 4_000_000
# The library recurses once for each rule in a row, some 5 kB each, and optional members make a row of rules: with an
# ordinary stack of 8 MB the whole process dies of 1,700. Reserved, not used, unless such a grammar comes.
_STACK_BYTES = 128 << 20
_stack_size_lock = threading.Lock()
# What one grammar may cost: about 40 ms of lexer building, 70 ms a mask at worst, some 100 MB.
_LIMITS = LLParserLimits(
    initial_lexer_fuel=2_000_000,
    step_lexer_fuel=1_000_000,
    step_max_items=50_000,
    max_items_in_row=8_000,  # three for each optional member that may come next
    max_lexer_states=100_000,
    max_grammar_size=500_000,
    verbose_errors=False,
)
# A grammar that took the processor longer is compiled but once, and all grammars have so many extra replicas at most.
_CHEAP_S = 0.06
_MAX_EXTRA_REPLICAS = 64
_A = TypeVar("_A")
_R = TypeVar("_R")


class GrammarCompiler:
    """Thread-safe. One a model; holds `cache_size` compiled grammars and the threads that compile.

    num_replicas: how often one grammar is compiled at most, for rows that live at once: as many times as there are
    threads that compute masks.
    """

    def __init__(
        self, vocabulary: Vocabulary, *, cache_size: int = 256, num_threads: int = 2, num_replicas: int = 1
    ) -> None:
        self.vocabulary = vocabulary
        self._cache: OrderedDict[GrammarSource, CompiledSource] = OrderedDict()
        self._cache_size = cache_size
        self._num_replicas = num_replicas
        self._replicating: set[CompiledSource] = set()
        self._is_closed = False
        self._lock = threading.Lock()
        self._num_threads = num_threads
        self._threads = _new_threads(num_threads)
        self._replica_thread = _new_threads(1)  # its own, so that no request waits for what can wait

    @classmethod
    def from_folder(
        cls, folder: Path, vocab_size: int, end_token_ids: Sequence[int], *, num_replicas: int = 1
    ) -> GrammarCompiler:
        """For a checkpoint's folder, whose tokenizer.json exists. vocab_size: of the model's logits."""
        text = (folder / "tokenizer.json").read_text(encoding="utf-8")
        return cls(Vocabulary.from_tokenizer_json(text, vocab_size, end_token_ids), num_replicas=num_replicas)

    def check(self, source: GrammarSource, timeout_s: float = 2.0) -> None:
        """Compile ahead of its use, in a thread of ours. Blocks the calling thread for at most `timeout_s`.

        Raises GrammarError, or GrammarTooComplex past the limits; then the source is good for nothing.
        """
        try:
            self._in_thread(source).result(timeout_s)
        except TimeoutError:
            self._abandon_threads()
            message = f"the grammar takes longer than {timeout_s:g} s to compile. Simplify the schemas."
            raise GrammarTooComplex("", message) from None

    def matcher(self, source: GrammarSource) -> Matcher:
        """A matcher at the beginning. Microseconds for a source that was checked. Raises GrammarError."""
        compiled = self._cached(source) or self._in_thread(source).result()
        matcher = Matcher(compiled)
        if compiled.wants_replica():
            self._replicate_later(compiled)
        return matcher

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        for threads in (self._threads, self._replica_thread):
            threads.shutdown(wait=False, cancel_futures=True)

    def _abandon_threads(self) -> None:
        """What takes too long cannot be stopped, only be left alone, so that it holds up nobody else."""
        with self._lock:
            stuck, self._threads = self._threads, _new_threads(self._num_threads)
        stuck.shutdown(wait=False)

    def _in_thread(self, source: GrammarSource) -> Future[CompiledSource]:
        with self._lock:
            return _submit(self._threads, self._compiled, source)

    def _replicate_later(self, compiled: CompiledSource) -> None:
        """Nobody waits for it, and rows that have begun stay where they are."""
        with self._lock:
            if compiled not in self._replicating and not self._is_closed:
                self._replicating.add(compiled)
                _submit(self._replica_thread, self._replicate, compiled)

    def _replicate(self, compiled: CompiledSource) -> None:
        try:
            while self._goes_on(compiled):
                compiled.add_replica(self._prototype(compiled.source.lark))
        except BaseException:
            with self._lock:
                self._replicating.discard(compiled)
            raise

    def _goes_on(self, compiled: CompiledSource) -> bool:
        """Is another replica to be made? Once it is not, a row that comes asks anew: both under the lock, or a row that
        comes in between would be forgotten."""
        with self._lock:
            num_extra = sum(max(other.num_replicas - 1, 0) for other in self._cache.values())
            if compiled.wants_replica() and num_extra < _MAX_EXTRA_REPLICAS:
                return True
            self._replicating.discard(compiled)
            return False

    def _cached(self, source: GrammarSource) -> CompiledSource | None:
        with self._lock:
            found = self._cache.get(source)
            if found is None or found.is_broken:
                return None
            self._cache.move_to_end(source)
            return found

    def _compiled(self, source: GrammarSource) -> CompiledSource:
        found = self._cached(source)
        if found is not None:
            return found
        self._check_special_tokens(source)
        begun_s = time.thread_time()
        prototype = self._prototype(source.lark) if source.lark else None
        is_cheap = time.thread_time() - begun_s < _CHEAP_S
        compiled = CompiledSource(self.vocabulary, source, prototype, self._num_replicas if is_cheap else 1)
        with self._lock:
            self._cache[source] = compiled
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        return compiled

    def _check_special_tokens(self, source: GrammarSource) -> None:
        """A marker that is one token here must not be letters in the grammar."""
        known = dict(source.special_tokens)
        for text, token_id in self.vocabulary.special_tokens.items():
            if known.get(text) != token_id and source.mentions(text):
                raise GrammarError("", f"the grammar was built for another tokenizer: {text!r} is token {token_id}.")

    def _prototype(self, lark: str) -> LLMatcher:
        if len(lark) > _MAX_SOURCE_CHARS:
            raise GrammarTooComplex("", "the schemas make too large a grammar. Simplify them.")
        grammar = LLMatcher.grammar_from_lark(lark)
        matcher = LLMatcher(self.vocabulary.tokenizer, grammar, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise _error(matcher.get_error())
        # The first mask builds most of the lexer, and finds what only it can find too large.
        matcher.compute_bitmask()
        if matcher.is_error():
            raise _error(matcher.get_error())
        return matcher


def _submit(threads: ThreadPoolExecutor, work: Callable[[_A], _R], argument: _A) -> Future[_R]:
    with _stack_size_lock:
        former_bytes = threading.stack_size(_STACK_BYTES)
        try:
            return threads.submit(work, argument)
        finally:
            threading.stack_size(former_bytes)


def _new_threads(num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads, thread_name_prefix="grammar")


def _error(message: str) -> GrammarError:
    first = message.strip().splitlines()[0] if message.strip() else "unknown"
    words = ("fuel", "too complex", "too many", "limit", "too large", "size")
    if any(word in message.lower() for word in words):
        return GrammarTooComplex("", f"the schemas make too complex a grammar ({first:.200}). Simplify them.")
    return GrammarError("", f"the grammar cannot be compiled: {first:.300}")
