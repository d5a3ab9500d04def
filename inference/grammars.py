"""Who makes the matchers of an engine's turns, and their masks: the engine's own process, or several beside it."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from inference.grammar.compile import GrammarCompiler
from inference.grammar.source import GrammarSource
from inference.grammar_messages import Setup
from inference.mask_ledger import TokenMatcher
from inference.processors import num_grammar_processes
from inference.remote_grammars import GrammarProcesses
from inference.remote_masks import RemoteMasks
from inference.runner.loader import LoadedModel

logger = logging.getLogger("headrace.engine")


class Grammars:
    """folder: with the model's tokenizer.json, which takes a while to read: at the start, by others.

    num_processes: beside a device's engine, at least 1; by default what the machine's processors allow.
    """

    def __init__(self, folder: Path, model: LoadedModel, *, num_processes: int | None = None) -> None:
        shared = model.runner.shared_masks
        self._processes: GrammarProcesses | None = None
        if shared is not None:
            setup = Setup(folder, model.vocab_size, model.eos_token_ids, shared.num_rows)
            count = num_processes or num_grammar_processes()
            self._processes = GrammarProcesses(setup, shared, count)
            model.runner.leave_masks_to(RemoteMasks(self._processes))
            logger.info("constrained turns: followed by processes beside this one, %d of them", count)
            self._make: Callable[[GrammarSource], TokenMatcher] = self._processes.matcher
            return
        reader = ThreadPoolExecutor(1, thread_name_prefix="headrace-vocabulary")
        compiler = reader.submit(_read, folder, model)
        self._make = lambda source: compiler.result().matcher(source)

    def matcher(self, source: GrammarSource) -> TokenMatcher:
        """At its beginning. Raises GrammarError."""
        return self._make(source)

    def close(self) -> None:
        """No turn has a matcher any more. Where this is not called, the processes end with this one."""
        if self._processes is not None:
            self._processes.close()


def _read(folder: Path, model: LoadedModel) -> GrammarCompiler:
    compiler = GrammarCompiler.from_folder(folder, model.vocab_size, model.eos_token_ids)
    gc.freeze()  # lists as long as the vocabulary, which stay
    return compiler
