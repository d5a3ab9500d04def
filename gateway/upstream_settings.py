"""What `headrace serve --upstream` is told: its options, checked, as one value. Knows nothing of connections."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from gateway.option_types import ConfigError, count, seconds
from gateway.upstream_request import MaxTokensField, ReasoningStyle
from stream_parser import DIALECTS

_DEFAULT_PATH = "/v1"
_ENDPOINTS = ("/chat/completions", "/completions", "/models", "/responses", "/messages")


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """url: what the server's paths are added to, without a slash at its end. model: what every turn is sent to; None =
    what the client names. content_dialect: how calls are written that the upstream leaves in the content.

    idle_timeout_s: silence of the upstream before its turn fails; deadline_s: how long a turn may take in all.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    content_dialect: str | None = None
    max_tokens_field: MaxTokensField = "max_tokens"
    reasoning: ReasoningStyle = "effort"
    connect_timeout_s: float = 10.0
    idle_timeout_s: float = 600.0
    deadline_s: float = 3600.0
    max_retries: int = 2
    proxy: str | None = None
    ca_file: str | None = None


def add_upstream_arguments(group: argparse._ArgumentGroup) -> None:
    """All are None where they are not given: without --upstream none of them may be."""
    group.add_argument(
        "--upstream",
        metavar="URL",
        help="serve what another OpenAI-compatible server generates (vLLM, SGLang, llama.cpp, Ollama, a cloud) instead "
        "of a model here; the URL is the one that OpenAI's SDKs take as base_url, as http://127.0.0.1:8001/v1. --model "
        "then names the upstream's model for all turns (default: the one that the client names)",
    )
    group.add_argument(
        "--upstream-key-env",
        metavar="VAR",
        help="environment variable that holds the upstream's API key (default: none)",
    )
    group.add_argument(
        "--content-dialect",
        metavar="NAME",
        help="recover tool calls and reasoning that the upstream leaves in the content as the model's own markup",
    )
    group.add_argument(
        "--upstream-reasoning",
        choices=("effort", "template", "none"),
        help="how reasoning that clients of Messages and Responses ask for is put to the upstream: as "
        "reasoning_effort, as chat_template_kwargs (vLLM, SGLang), or not at all (default: effort)",
    )
    group.add_argument(
        "--upstream-max-tokens-field",
        choices=("max_tokens", "max_completion_tokens"),
        help="what the upstream calls the limit that clients of Messages and Responses set (default: max_tokens; "
        "OpenAI's own reasoning models need the other)",
    )
    _add_connection_arguments(group)


def _add_connection_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--upstream-connect-timeout",
        metavar="SECONDS",
        type=seconds,
        help="for a connection to the upstream (default: 10)",
    )
    group.add_argument(
        "--upstream-timeout",
        metavar="SECONDS",
        type=seconds,
        help="end a turn whose upstream is silent for this long (default: 600)",
    )
    group.add_argument(
        "--upstream-deadline",
        metavar="SECONDS",
        type=seconds,
        help="end a turn that takes longer in all (default: 3600)",
    )
    group.add_argument(
        "--upstream-retries",
        metavar="N",
        type=count,
        help="how often a request that failed before its answer began is sent again (default: 2)",
    )
    group.add_argument(
        "--upstream-proxy",
        metavar="URL",
        help="HTTP proxy to reach the upstream by; HTTP_PROXY and the like are ignored",
    )
    group.add_argument(
        "--upstream-ca", metavar="FILE", help="certificates (PEM) to trust instead of the public ones, for https://"
    )


_OPTIONS = (
    "upstream_key_env", "content_dialect", "upstream_reasoning", "upstream_max_tokens_field",
    "upstream_connect_timeout", "upstream_timeout", "upstream_deadline", "upstream_retries", "upstream_proxy",
    "upstream_ca",
)  # fmt: skip
# Those of an engine in this server.
_ENGINE_OPTIONS = ("dtype", "attention", "max_model_len", "kv_memory", "dialect")


def upstream_settings(args: argparse.Namespace, environ: Mapping[str, str]) -> UpstreamSettings | None:
    """None without --upstream. Raises ConfigError."""
    if args.upstream is None:
        for name in _OPTIONS:
            if getattr(args, name) is not None:
                raise ConfigError(f"{_spelled(name)} needs --upstream URL.")
        return None
    _check_engine_options(args)
    defaults = UpstreamSettings(_base_url(args.upstream))
    return UpstreamSettings(
        url=defaults.url,
        api_key=_api_key(args.upstream_key_env, environ),
        model=_model(args),
        content_dialect=_content_dialect(args.content_dialect),
        max_tokens_field=args.upstream_max_tokens_field or defaults.max_tokens_field,
        reasoning=args.upstream_reasoning or defaults.reasoning,
        connect_timeout_s=args.upstream_connect_timeout or defaults.connect_timeout_s,
        idle_timeout_s=args.upstream_timeout or defaults.idle_timeout_s,
        deadline_s=args.upstream_deadline or defaults.deadline_s,
        max_retries=defaults.max_retries if args.upstream_retries is None else args.upstream_retries,
        proxy=_proxy(args.upstream_proxy),
        ca_file=_ca_file(args.upstream_ca, defaults.url),
    )


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_engine_options(args: argparse.Namespace) -> None:
    for name in _ENGINE_OPTIONS:
        if getattr(args, name) is not None:
            hint = " To read calls that the upstream leaves in its text, give --content-dialect." * (name == "dialect")
            raise ConfigError(f"{_spelled(name)} is for a model in this server: leave it out with --upstream.{hint}")
    if args.device != "cpu":
        raise ConfigError("--device is for a model in this server: leave it out with --upstream.")


def _base_url(given: str) -> str:
    def wrong(why: str) -> ConfigError:
        return ConfigError(f"--upstream {given}: {why} Give the server's base URL, as http://127.0.0.1:8001/v1.")

    try:
        parts = urlsplit(given.strip())
        port = parts.port
    except ValueError as error:
        raise wrong(f"{error}.") from error
    if parts.scheme not in ("http", "https"):
        raise wrong("it begins neither with http:// nor with https://.")
    if not parts.hostname or port == 0:
        raise wrong("it names no host, or port 0.")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "--upstream holds a user or password: put the key in a variable, and name it with --upstream-key-env."
        )
    if parts.query or parts.fragment:
        raise wrong("it has a query or a fragment.")
    path = parts.path.rstrip("/")
    if path.endswith(_ENDPOINTS):
        raise wrong("it is one of the server's paths.")
    return f"{parts.scheme}://{parts.netloc}{path or _DEFAULT_PATH}"


def _api_key(variable: str | None, environ: Mapping[str, str]) -> str | None:
    if variable is None:
        return None
    key = environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"--upstream-key-env {variable}: this environment variable is not set, or empty.")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"--upstream-key-env {variable}: its value has characters that no API key can have.")
    return key


def _model(args: argparse.Namespace) -> str | None:
    if args.model is None:
        if args.served_model_name:
            raise ConfigError(
                "--served-model-name with --upstream needs --model, the upstream's own name for the model."
            )
        return None
    model = str(args.model).strip()
    if not model or model.startswith(("scripted:", "random:")):
        raise ConfigError(
            f"--model {args.model}: with --upstream this is the name of a model that the upstream serves."
        )
    return model


def _content_dialect(name: str | None) -> str | None:
    if name is not None and name not in DIALECTS:
        raise ConfigError(f"--content-dialect {name}: choose one of {', '.join(sorted(DIALECTS))}.")
    return name


def _proxy(url: str | None) -> str | None:
    if url is not None and (not url.startswith(("http://", "https://")) or not urlsplit(url).hostname):
        raise ConfigError(f"--upstream-proxy {url}: give a URL, as http://proxy.example:3128.")
    return url


def _ca_file(path: str | None, url: str) -> str | None:
    if path is None:
        return None
    if not url.startswith("https://"):
        raise ConfigError("--upstream-ca is for an upstream at https://.")
    try:
        text = Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--upstream-ca {path}: cannot be read ({error}).") from error
    if "BEGIN CERTIFICATE" not in text:
        raise ConfigError(f"--upstream-ca {path}: holds no certificate in PEM.")
    return str(Path(path).expanduser())
