"""What the gateway is told: flags and environment, read once. Knows nothing of what is done with it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from gateway.option_types import MIB, ConfigError, count, port, positive, seconds, seconds_or_zero, size
from gateway.types import ReasoningField
from gateway.upstream_settings import UpstreamSettings, add_upstream_arguments, upstream_settings
from inference.config import Attention, Device, Dtype

API_KEY_VARIABLE = "HEADRACE_API_KEY"
SCRIPTED = "scripted:"  # what a --model of canned answers starts with


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Limits and switches of the gateway itself; the model's own are in the backend.

    served_names: the first is canonical, each is accepted as `model`; empty where the backend has models of its own
    (gateway.served_models). api_keys empty = no authentication.
    max_live_turns: turns generated at once, over all connections; more get 429. max_connection_turns: the same for
    one WebSocket. read_timeout_s: how long the head of a request may take, and its body, which has more time
    the longer it is. max_pending_chars: text that waits for one slow reader before its turn is paused;
    slow_reader_timeout_s: how long it may stay paused. keepalive_s: silence on an event stream before a comment.
    reasoning_field: what Chat Completions calls reasoning. drain_s: how long running turns may go on after a signal.
    allowed_origins: web origins that may use the API
    from a browser ("*" = all). resume_grace_s: how long turns of a lost native socket go on (0 = not at all);
    max_replay_bytes: what is kept of each for a client that comes back. max_sessions, max_session_bytes,
    session_ttl_s: the conversations kept for native clients. ping_interval_s, ping_timeout_s: how a WebSocket whose
    client is gone is found out. max_stored_responses, max_stored_bytes, stored_response_age_s: what is kept of
    Responses that clients may come back to. serves_responses_socket: whether /v1/responses takes WebSockets;
    responses_socket_age_s: after this long such a socket takes no new responses, so that clients open another.
    """

    served_names: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    max_body_bytes: int = 8 * MIB
    max_live_turns: int = 1024
    max_connection_turns: int = 1024
    max_pending_chars: int = 256 * 1024
    read_timeout_s: float = 30.0
    slow_reader_timeout_s: float = 30.0
    keepalive_s: float = 15.0
    reasoning_field: ReasoningField = "reasoning_content"
    drain_s: float = 1.0
    allowed_origins: tuple[str, ...] = ()
    resume_grace_s: float = 10.0
    max_replay_bytes: int = 64 * 1024
    max_sessions: int = 1024
    max_session_bytes: int = 256 * MIB
    session_ttl_s: float = 600.0
    ping_interval_s: float = 20.0
    ping_timeout_s: float = 20.0
    max_stored_responses: int = 10_000
    max_stored_bytes: int = 256 * MIB
    stored_response_age_s: float = 24 * 3600.0
    serves_responses_socket: bool = True
    responses_socket_age_s: float = 55 * 60.0


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """`headrace serve`, decoded. model None = the default one. kv_bytes and max_model_len None = chosen by the engine.

    gateway.served_names is empty when no --served-model-name was given: then the model's own name is served.
    strict_tools: every call keeps to its tool's schema, not only those of tools that say strict.
    upstream: set where another server generates; the model's options before it are unused then.
    """

    model: str | None
    device: Device
    dtype: Dtype | None
    attention: Attention
    max_model_len: int | None
    kv_bytes: int | None
    dialect: str | None
    strict_tools: bool
    max_guess: int
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"]
    gateway: GatewayConfig
    upstream: UpstreamSettings | None = None

    @property
    def needs_engine(self) -> bool:
        return self.upstream is None and not (self.model or "").startswith(SCRIPTED)


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    _add_model_arguments(parser.add_argument_group("model"))
    add_upstream_arguments(parser.add_argument_group("another server in the model's place"))
    _add_connection_arguments(parser.add_argument_group("connections"))
    _add_protocol_arguments(parser.add_argument_group("OpenAI protocols"))
    _add_limit_arguments(parser.add_argument_group("limits"))
    _add_native_arguments(parser.add_argument_group("native protocol"))


def _add_model_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model",
        metavar="SPEC",
        help="what to serve: nothing for the embedded default, a folder with config.json and safetensors, a .gguf "
        "file, random:CONFIG.json for random weights in real shapes, or scripted:FILE.jsonl for canned answers",
    )
    group.add_argument(
        "--served-model-name",
        metavar="NAME",
        action="append",
        default=[],
        help="the model's name in the API, instead of its own; may be repeated, the first is shown in answers",
    )
    group.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the model runs (default: cpu)")
    group.add_argument(
        "--dtype",
        choices=("int8", "fp32", "bf16", "fp16"),
        help="how weights are computed with (default: int8 on the CPU, bf16 on CUDA)",
    )
    group.add_argument(
        "--attention",
        choices=("auto", "triton", "flash"),
        help="what reads prompts on CUDA: FlashAttention 4 (flash), our own kernel (triton), or the first where the "
        "package flash-attn-4 is installed and can run, else the second (default: auto)",
    )
    group.add_argument(
        "--max-model-len",
        metavar="TOKENS",
        type=positive,
        help="longest prompt and answer together (default: as long as the model and the KV memory allow)",
    )
    group.add_argument(
        "--kv-memory", metavar="SIZE", type=size, help="memory for the KV cache, as 512MiB or 4GiB (default: measured)"
    )
    group.add_argument(
        "--dialect",
        metavar="NAME",
        help="how the model writes tool calls and reasoning (default: found from its chat template)",
    )
    group.add_argument(
        "--strict-tools",
        action="store_true",
        help="hold the arguments of every call to its tool's schema while they are written, not only those of tools "
        "that say strict: true",
    )
    group.add_argument(
        "--max-guess",
        metavar="TOKENS",
        type=count,
        default=8,
        help="guess up to so many tokens at once from what a turn has written before, and verify them in one step; the "
        "text is the same, and copies come faster; 0 guesses nothing (default: 8)",
    )


def _add_protocol_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--reasoning-field",
        choices=("reasoning_content", "reasoning", "both"),
        default="reasoning_content",
        help="where reasoning stands in the messages and deltas of Chat Completions; with both it is sent twice, and "
        "some clients show it twice (default: reasoning_content)",
    )
    group.add_argument(
        "--no-responses-websocket",
        action="store_true",
        help="refuse WebSockets at /v1/responses (426); clients then use event streams",
    )


def _add_connection_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    group.add_argument("--port", type=port, default=8000, help="port to listen on, 0 for a free one (default: 8000)")
    group.add_argument(
        "--api-key",
        metavar="KEY",
        action="append",
        default=[],
        help=f"key that clients must send; may be repeated or hold several with commas (also: {API_KEY_VARIABLE}, "
        "which other users of the machine cannot see)",
    )
    group.add_argument(
        "--allow-origin",
        metavar="ORIGIN",
        action="append",
        default=[],
        help="web origin whose pages may use the server, as https://chat.example or *; may be repeated",
    )
    group.add_argument(
        "--keepalive",
        metavar="SECONDS",
        type=seconds,
        default=15.0,
        help="send a keepalive on an event stream after this much silence (default: 15)",
    )
    group.add_argument(
        "--drain",
        metavar="SECONDS",
        type=seconds,
        default=1.0,
        help="let running turns go on for this long after Ctrl-C or SIGTERM (default: 1)",
    )
    group.add_argument(
        "--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), default="WARNING", help="(default: WARNING)"
    )


def _add_limit_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--max-turns", metavar="N", type=positive, default=1024, help="turns at once; more get 429 (default: 1024)"
    )
    group.add_argument(
        "--max-connection-turns",
        metavar="N",
        type=positive,
        default=1024,
        help="turns at once on one WebSocket, waiting ones included (default: 1024)",
    )
    group.add_argument(
        "--max-body-bytes", metavar="SIZE", type=size, default=8 * MIB, help="largest request (default: 8MiB)"
    )
    group.add_argument(
        "--store-responses", metavar="N", type=positive, default=10_000, help="Responses kept (default: 10000)"
    )
    group.add_argument(
        "--store-memory", metavar="SIZE", type=size, default=256 * MIB, help="memory for them (default: 256MiB)"
    )
    group.add_argument(
        "--store-age", metavar="SECONDS", type=seconds, default=24 * 3600.0, help="how long (default: 86400)"
    )
    group.add_argument(
        "--read-timeout",
        metavar="SECONDS",
        type=seconds,
        default=30.0,
        help="close a connection whose request is not here after this long; a long body has a second more for each KiB "
        "(default: 30)",
    )
    group.add_argument(
        "--slow-reader-timeout",
        metavar="SECONDS",
        type=seconds,
        default=30.0,
        help="end a turn whose client has not read for this long (default: 30)",
    )


def _add_native_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--resume-grace",
        metavar="SECONDS",
        type=seconds_or_zero,
        default=10.0,
        help="let the turns of a native socket that was lost go on for this long, so that its client can resume them, "
        "then cancel them; 0 cancels them at once (default: 10)",
    )
    group.add_argument(
        "--max-sessions",
        metavar="N",
        type=positive,
        default=1024,
        help="conversations kept for native clients; the one unused for the longest makes room (default: 1024)",
    )
    group.add_argument(
        "--session-ttl",
        metavar="SECONDS",
        type=seconds,
        default=600.0,
        help="forget a conversation that was not used for this long (default: 600)",
    )


def serve_options(args: argparse.Namespace, environ: Mapping[str, str]) -> ServeOptions:
    """Raises ConfigError. Keys of the command line and of the environment are all accepted."""
    api_keys = _split_keys([*args.api_key, environ.get(API_KEY_VARIABLE, "")])
    if args.api_key and not api_keys:
        raise ConfigError("--api-key is empty: give a key, or leave the option out to serve without authentication.")
    return ServeOptions(
        model=args.model,
        device=cast(Device, args.device),
        dtype=cast("Dtype | None", args.dtype),
        attention=cast(Attention, args.attention or "auto"),
        max_model_len=args.max_model_len,
        kv_bytes=args.kv_memory,
        dialect=args.dialect,
        strict_tools=args.strict_tools,
        max_guess=args.max_guess,
        log_level=args.log_level,
        gateway=GatewayConfig(
            served_names=tuple(args.served_model_name),
            host=args.host,
            port=args.port,
            api_keys=api_keys,
            max_body_bytes=args.max_body_bytes,
            max_live_turns=args.max_turns,
            max_connection_turns=args.max_connection_turns,
            slow_reader_timeout_s=args.slow_reader_timeout,
            keepalive_s=args.keepalive,
            read_timeout_s=args.read_timeout,
            reasoning_field=cast(ReasoningField, args.reasoning_field),
            drain_s=args.drain,
            resume_grace_s=args.resume_grace,
            max_sessions=args.max_sessions,
            session_ttl_s=args.session_ttl,
            allowed_origins=tuple(args.allow_origin),
            max_stored_responses=args.store_responses,
            max_stored_bytes=args.store_memory,
            stored_response_age_s=args.store_age,
            serves_responses_socket=not args.no_responses_websocket,
        ),
        upstream=upstream_settings(args, environ),
    )


def _split_keys(values: list[str]) -> tuple[str, ...]:
    return tuple(key.strip() for value in values for key in value.split(",") if key.strip())
