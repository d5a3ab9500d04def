"""From the command line to a backend that can be started, and what the user reads once it is ready."""

from __future__ import annotations

import json
import logging
import platform
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.backend import Backend
from gateway.config import SCRIPTED, GatewayConfig, ServeOptions
from gateway.model_backend import ModelBackend
from gateway.option_types import ConfigError
from gateway.scripted import ScriptedBackend, ScriptError, load_script
from gateway.turn_grammar import GrammarSettings, TurnGrammars
from gateway.upstream_settings import UpstreamSettings
from inference import models
from inference.config import Device, Dtype, EngineConfig
from inference.engine_client import EngineClient
from inference.engine_launch import EngineProcess
from inference.errors import ModelLoadError
from inference.tokenizer import CheckpointTokenizer, SyntheticTokenizer, Tokenizer
from stream_parser import DIALECTS, dialect_for
from stream_parser.dialect import Dialect
from stream_parser.errors import UnknownDialect

log = logging.getLogger("headrace.startup")

_DEFAULT_DIALECT = "hermes"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A backend that is not started yet. name None: the backend has models of its own. engine: where there is one."""

    backend: Backend
    name: str | None
    engine: EngineClient | None = None
    upstream_url: str | None = None

    def gateway_config(self, options: ServeOptions) -> GatewayConfig:
        names = () if self.name is None else (self.name,)
        return replace(options.gateway, served_names=options.gateway.served_names or names)


def build_backend(options: ServeOptions, started: EngineProcess | None = None) -> Loaded:
    """May download and convert a bundled model, with progress bars. started: a process for the engine, if there is one
    already. Raises ConfigError and ModelLoadError."""
    if options.upstream is not None:
        return _upstream(options.upstream, options.gateway.max_live_turns)
    if options.dialect is not None and options.dialect not in DIALECTS:
        raise ConfigError(f"--dialect {options.dialect}: choose one of {', '.join(sorted(DIALECTS))}.")
    if options.model is not None and options.model.startswith(SCRIPTED):
        return _scripted(Path(options.model.removeprefix(SCRIPTED)).expanduser(), options.dialect)
    source = models.resolve(options.model)
    config = EngineConfig(
        model_name=source.name,
        model_dir=source.folder,
        random_weights=source.random_weights,
        device=options.device,
        dtype=options.dtype or _default_dtype(options.device),
        attention=options.attention,
        max_model_len=options.max_model_len,
        kv_bytes=options.kv_bytes,
        max_guess=options.max_guess,
    )
    tokenizer = _tokenizer(source)
    engine = EngineClient(config, started)
    named = options.dialect or source.dialect
    dialect = DIALECTS[named] if named else _detect_dialect(tokenizer)
    grammars = None
    if not source.random_weights:
        settings = GrammarSettings(strict_tools=options.strict_tools)
        grammars = TurnGrammars(source.folder, dialect, tokenizer.chat_template or "", settings)
    backend = ModelBackend(tokenizer, engine, dialect, tokenizer.max_chars_per_token, grammars)
    return Loaded(backend, source.name, engine)


def _detect_dialect(tokenizer: Tokenizer) -> Dialect:
    """Templates that know no tools get them described in the default dialect's words (inference.chat_template)."""
    try:
        return dialect_for(
            tokenizer.chat_template or "", tokenizer.vocab, response_template=tokenizer.response_template
        )
    except UnknownDialect as error:
        if "tools" in (tokenizer.chat_template or ""):
            log.warning("%s Reading tool calls as %s; --dialect chooses another.", error, _DEFAULT_DIALECT)
        return DIALECTS[_DEFAULT_DIALECT]


def _default_dtype(device: Device) -> Dtype:
    """The int8 kernels are x86's."""
    if device == "cuda":
        return "bf16"
    return "int8" if platform.machine() in ("x86_64", "AMD64") else "fp32"


def _scripted(path: Path, dialect: str | None) -> Loaded:
    try:
        lines = load_script(path)
    except ScriptError as error:
        raise ConfigError(str(error)) from error
    return Loaded(ScriptedBackend(lines, dialect), path.stem)


def _upstream(settings: UpstreamSettings, max_turns: int) -> Loaded:
    # httpx takes a tenth of a second to import, and no other mode needs it.
    from gateway.upstream_backend import UpstreamBackend

    return Loaded(UpstreamBackend(settings, max_turns), settings.model, upstream_url=settings.url)


def _tokenizer(source: models.ModelSource) -> Tokenizer:
    if source.random_weights:
        return SyntheticTokenizer(_vocab_size(source))
    return CheckpointTokenizer.from_folder(source.folder)


def _vocab_size(source: models.ModelSource) -> int:
    config = json.loads((source.folder / "config.json").read_text())
    nested = config.get("text_config")
    size = config.get("vocab_size") or (nested.get("vocab_size") if isinstance(nested, dict) else None)
    if type(size) is not int or size < 1:
        raise ModelLoadError(f"{source.folder / 'config.json'} names no vocab_size that is a number above 0.")
    return size


def banner(base_url: str, loaded: Loaded, config: GatewayConfig) -> str:
    """One line that says what serves where, then three requests to copy."""
    names = config.served_names or (loaded.backend.models.names if loaded.backend.models is not None else ())
    return _BANNER.format(
        url=base_url,
        ws_url="ws" + base_url.removeprefix("http"),
        model=names[0] if names else "MODEL",
        details=_describe(loaded),
        curl_key=" -H 'Authorization: Bearer KEY'" if config.api_keys else "",
        python_key="KEY" if config.api_keys else "none",
        ws_key=', additional_headers={"Authorization": "Bearer KEY"}' if config.api_keys else "",
    )


_BANNER = """\
Ready: {url} serves {model} ({details}). Ctrl-C ends it.

curl -N {url}/v1/chat/completions{curl_key} -H 'content-type: application/json' \\
  -d '{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Hello!"}}]}}'

python -c 'from openai import OpenAI
client = OpenAI(base_url="{url}/v1", api_key="{python_key}")
messages = [{{"role": "user", "content": "Hello!"}}]
for chunk in client.chat.completions.create(model="{model}", messages=messages, stream=True):
    print(chunk.choices[0].delta.content or "", end="", flush=True)'

python -c 'import json
import logging
from websockets.sync.client import connect
with connect("{ws_url}/v1/stream"{ws_key}) as socket:
    messages = [{{"role": "user", "content": "Hello!"}}]
    socket.send(json.dumps({{"type": "turn.create", "turn": "1", "messages": messages}}))
    for frame in socket:
        print(frame)
        if "turn.done" in frame or "turn.error" in frame: break'
"""


def _describe(loaded: Loaded) -> str:
    if loaded.upstream_url is not None:
        return f"answers of {loaded.upstream_url}"
    info = loaded.engine.info if loaded.engine is not None else None
    if info is None:
        return "scripted answers"
    kv = f"{info.num_blocks} KV blocks of {info.block_size} tokens = {info.kv_bytes / 2**20:.0f} MiB"
    weights = f"{info.architecture}, {info.num_parameters / 1e6:.0f}M parameters, {info.device}, {info.dtype}"
    return f"{weights}, {kv}, context {info.max_model_len} tokens"
