"""The engine's own process: loads the model, then steps; commands in, one report a step out.

Started by inference.engine_client as `python -m inference.engine_process FD`, where FD is its end of a socket pair.
The first message on it is the EngineConfig. The process ends when the socket closes, so it never outlives its gateway.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time

from inference import channel
from inference.config import EngineConfig
from inference.engine import Engine
from inference.errors import ModelLoadError
from inference.paged_kv.block_pool import BlockPool
from inference.paged_kv.prefix_index import PrefixIndex
from inference.runner.loader import LoadedModel, load
from inference.scheduler import Scheduler, SchedulerLimits
from inference.types import EngineInfo

logger = logging.getLogger("headrace.engine")

_CLOSED = object()


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the gateway decides when to end
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    connection = socket.socket(fileno=int(argv[0]))
    config: EngineConfig = channel.receive(connection)
    try:
        model = load(config)
    except ModelLoadError as error:
        connection.sendall(channel.encode(channel.Failed(str(error))))
        return 1
    connection.sendall(channel.encode(channel.Ready(_info(config, model))))
    try:
        _serve(connection, _engine(config, model))
    except EOFError:
        pass
    finally:
        # The gateway is gone or has said so: nobody wants the running step any more, so it is not waited for.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _serve(connection: socket.socket, engine: Engine) -> None:
    """Runs until the gateway closes the socket (EOFError) or a step raises."""
    commands: queue.SimpleQueue[object] = queue.SimpleQueue()
    threading.Thread(target=_read_commands, args=(connection, commands), daemon=True).start()
    while True:
        _take_commands(commands, engine)
        started = time.perf_counter()
        try:
            chunks = engine.step()
        except Exception:
            logger.exception("a step failed; the engine restarts")
            os._exit(1)
        stats = dataclasses.replace(engine.stats(), last_step_s=time.perf_counter() - started)
        try:
            connection.sendall(channel.encode(channel.StepDone(tuple(chunks), stats)))
        except ConnectionError as error:
            raise EOFError from error


def _take_commands(commands: queue.SimpleQueue[object], engine: Engine) -> None:
    """Everything that has arrived; waits for something only while there is nothing to compute."""
    while not commands.empty() or not engine.has_work:
        match commands.get():
            case channel.Submit(request):
                engine.submit(request)
            case channel.Cancel(turn_id, choice):
                engine.cancel(turn_id, choice)
                if not engine.has_work:
                    return  # report the freed blocks before waiting again
            case _:
                raise EOFError


def _read_commands(connection: socket.socket, commands: queue.SimpleQueue[object]) -> None:
    try:
        while True:
            commands.put(channel.receive(connection))
    except EOFError:
        commands.put(_CLOSED)


def _engine(config: EngineConfig, model: LoadedModel) -> Engine:
    pool = BlockPool(model.num_blocks, config.block_size, PrefixIndex())
    limits = SchedulerLimits(
        max_rows=config.max_rows,
        max_step_tokens=model.max_step_tokens,
        max_model_len=model.max_model_len,
        eos_token_ids=model.eos_token_ids,
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
