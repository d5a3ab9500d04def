"""Where the server is and how long to wait for it. The environment is read here, once a client, and nowhere else."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from headrace.errors import HeadraceError

TransportName: TypeAlias = Literal["websocket", "sse"]

DEFAULT_URL = "http://127.0.0.1:8000"
_SCHEMES = {"http": ("http", "ws"), "https": ("https", "wss"), "ws": ("http", "ws"), "wss": ("https", "wss")}


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """`http_url` and `ws_url` have no trailing slash and no `/v1`. Times are seconds; None waits for ever.

    `resume_timeout_s`: how long to try to take up the turns of a socket that was lost; 0 = not at all.
    """

    http_url: str
    ws_url: str
    api_key: str | None
    connect_timeout_s: float | None
    idle_timeout_s: float | None
    use_proxy: bool
    resume_timeout_s: float = 0.0

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


def client_config(
    url: str | None,
    api_key: str | None,
    *,
    connect_timeout_s: float | None,
    idle_timeout_s: float | None,
    resume_timeout_s: float = 0.0,
    environ: Mapping[str, str] | None = None,
) -> ClientConfig:
    """Fill what was left out from `HEADRACE_URL` and `HEADRACE_API_KEY`.

    A trailing `/v1`, as OpenAI's SDK wants it, is accepted. Raises HeadraceError for what is no http(s) or ws(s) URL.
    """
    environ = os.environ if environ is None else environ
    url = url or environ.get("HEADRACE_URL") or DEFAULT_URL
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise HeadraceError(f"not a server's URL: {url!r}; write it like {DEFAULT_URL}", code="invalid_url")

    http_scheme, ws_scheme = _SCHEMES[parts.scheme]
    path = parts.path.rstrip("/").removesuffix("/v1")
    return ClientConfig(
        http_url=urlunsplit((http_scheme, parts.netloc, path, "", "")),
        ws_url=urlunsplit((ws_scheme, parts.netloc, path, "", "")),
        api_key=api_key or environ.get("HEADRACE_API_KEY") or None,
        connect_timeout_s=connect_timeout_s,
        idle_timeout_s=idle_timeout_s,
        # A proxy from the environment can't reach a server on this machine's loopback.
        resume_timeout_s=resume_timeout_s,
        use_proxy=not _is_loopback(parts.hostname),
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
