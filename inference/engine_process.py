"""The engine's own process: loads the model, then steps; commands in, one report a step out.

inference.engine_start runs it. The first message on its socket is the EngineConfig. The process ends when the socket
closes, so it never outlives its gateway.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import socket
import sys
import threading
import time

from inference import channel
from inference.config import EngineConfig
from inference.engine import Engine
from inference.errors import ModelLoadError
from inference.grammars import Grammars
from inference.new_sequence import SchedulerLimits
from inference.paged_kv.block_pool import BlockPool
from inference.paged_kv.prefix_index import PrefixIndex
from inference.runner.loader import LoadedModel, load
from inference.runner.phase_clock import PhaseClock
from inference.scheduler import Scheduler
from inference.submissions import Ready, Refused, Submissions
from inference.types import EngineInfo, TokenChunk

logger = logging.getLogger("headrace.engine")

_CLOSED = object()


def serve(connection: socket.socket, clock: PhaseClock) -> int:
    """Returns the process's exit status, or ends it."""
    # Beside the step loop there are threads that read commands and compile grammars, and on a CPU one that runs steps:
    # nobody waits longer than this for the interpreter.
    sys.setswitchinterval(0.0005)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        config: EngineConfig = channel.receive(connection)
    except EOFError:
        return 0  # the gateway has found out that there is nothing to serve
    clock.lap("gateway")
    try:
        model = load(config, clock)
    except ModelLoadError as error:
        connection.sendall(channel.encode(channel.Failed(str(error))))
        return 1
    clock.lap("runner")
    # What is there now stays: it need not be looked through again and again for garbage between steps.
    gc.collect()
    gc.freeze()
    connection.sendall(channel.encode(channel.Ready(_info(config, model))))
    logger.info("ready in %s", clock.summary())
    try:
        _serve(connection, _engine(config, model), Grammars(config.model_dir, model))
    except EOFError:
        pass
    finally:
        # The gateway is gone or has said so: nobody wants the running step any more, so it is not waited for.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _serve(connection: socket.socket, engine: Engine, grammars: Grammars) -> None:
    """Runs until the gateway closes the socket (EOFError) or a step raises."""
    commands: queue.SimpleQueue[object] = queue.SimpleQueue()
    submissions = Submissions(commands, grammars.matcher)
    threading.Thread(target=_read_commands, args=(connection, commands, submissions), daemon=True).start()
    while True:
        refused = _take_commands(commands, engine)
        started = time.perf_counter()
        try:
            chunks = [*refused, *engine.step()]
        except Exception:
            logger.exception("a step failed; the engine restarts")
            os._exit(1)
        stats = engine.stats()
        stats.last_step_s = time.perf_counter() - started
        try:
            connection.sendall(channel.encode(channel.StepDone(tuple(chunks), stats)))
        except ConnectionError as error:
            raise EOFError from error


def _take_commands(commands: queue.SimpleQueue[object], engine: Engine) -> list[TokenChunk]:
    """Everything that has arrived; waits for something only while there is nothing to compute.

    Returns the ends of turns that were refused.
    """
    refused: list[TokenChunk] = []
    while not commands.empty() or not (engine.has_work or refused):
        match commands.get():
            case Ready(request, matchers):
                engine.submit(request, matchers)
            case Refused(turn_id, num_choices, message):
                refused += [
                    TokenChunk(turn_id, choice, (), finish_reason="error", error=message)
                    for choice in range(num_choices)
                ]
            case channel.Cancel(turn_id, choice):
                engine.cancel(turn_id, choice)
                if not engine.has_work:
                    return refused  # report the freed blocks before waiting again
            case _:
                raise EOFError
    return refused


def _read_commands(
    connection: socket.socket, commands: queue.SimpleQueue[object], submissions: Submissions
) -> None:
    try:
        while True:
            match channel.receive(connection):
                case channel.Submit(request):
                    submissions.submit(request)
                case channel.Cancel(turn_id, None) as cancel:
                    if not submissions.cancel(turn_id):
                        commands.put(cancel)
                case command:
                    commands.put(command)
    except EOFError:
        commands.put(_CLOSED)


def _engine(config: EngineConfig, model: LoadedModel) -> Engine:
    pool = BlockPool(model.num_blocks, config.block_size, PrefixIndex())
    limits = SchedulerLimits(
        max_rows=config.max_rows,
        max_step_tokens=model.max_step_tokens,
        max_model_len=model.max_model_len,
        eos_token_ids=model.eos_token_ids,
        # Decodes go on beside it, but share the device with it.
        long_prompt_chunk=512 if config.device == "cuda" else None,
        min_forced_run=3 if config.device == "cuda" else 2,
        max_guess=config.max_guess,
        bounds=model.runner.bounds,
    )
    return Engine(Scheduler(pool, limits), model.runner)


def _info(config: EngineConfig, model: LoadedModel) -> EngineInfo:
    return EngineInfo(
        model_name=config.model_name,
        architecture=model.architecture,
        device=config.device,
        dtype=config.dtype,
        attention_backend=model.attention_backend,
        max_model_len=model.max_model_len,
        vocab_size=model.vocab_size,
        eos_token_ids=model.eos_token_ids,
        block_size=config.block_size,
        num_blocks=model.num_blocks,
        kv_bytes=model.kv_bytes,
        num_parameters=model.num_parameters,
        context_bound=model.context_bound,
    )
