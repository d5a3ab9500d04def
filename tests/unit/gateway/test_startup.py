import argparse
import asyncio
import json
import os
import signal

import httpx
import pytest

from gateway.config import ConfigError, ServeOptions, add_serve_arguments, serve_options
from gateway.listener import listen
from gateway.model_backend import ModelBackend
from gateway.scripted import ScriptedBackend
from gateway.serve import serve
from gateway.startup import banner, build_backend
from inference.errors import ModelLoadError
from tests.testkit.gateway_kit import engine_info, gateway_config, scripted


def options(*argv: str) -> ServeOptions:
    parser = argparse.ArgumentParser()
    add_serve_arguments(parser)
    return serve_options(parser.parse_args(argv), {})


@pytest.fixture
def random_model(tmp_path):
    config = {"model_type": "llama", "vocab_size": 300, "hidden_size": 8}
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    return f"random:{tmp_path / 'tiny.json'}"


def test_a_script_is_served_under_its_files_name(tmp_path):
    (tmp_path / "demo.jsonl").write_text('{"text": "a"}')
    loaded = build_backend(options("--model", f"scripted:{tmp_path / 'demo.jsonl'}"))
    assert isinstance(loaded.backend, ScriptedBackend)
    assert (loaded.name, loaded.engine) == ("demo", None)


@pytest.mark.parametrize(
    ("flags", "device", "dtype"),
    [((), "cpu", "int8"), (("--device", "cuda"), "cuda", "bf16"), (("--dtype", "fp32"), "cpu", "fp32")],
)
def test_a_model_gets_an_engine_with_the_flags(random_model, flags, device, dtype):
    loaded = build_backend(options("--model", random_model, "--kv-memory", "1MiB", "--max-model-len", "64", *flags))
    assert isinstance(loaded.backend, ModelBackend)
    assert loaded.engine is not None
    config = loaded.engine._config
    assert (config.device, config.dtype, config.kv_bytes, config.max_model_len) == (device, dtype, 1 << 20, 64)
    assert config.random_weights


def test_the_engine_is_told_which_attention_to_use(random_model):
    for flags, attention in (((), "auto"), (("--device", "cuda", "--attention", "triton"), "triton")):
        assert build_backend(options("--model", random_model, *flags)).engine._config.attention == attention


def test_names_given_by_hand_replace_the_models_own(random_model):
    given = options("--model", random_model, "--served-model-name", "a", "--served-model-name", "b")
    assert build_backend(given).gateway_config(given).served_names == ("a", "b")
    plain = options("--model", random_model)
    loaded = build_backend(plain)
    assert loaded.gateway_config(plain).served_names == (loaded.name,)


def test_an_unknown_dialect_names_the_known_ones(random_model):
    with pytest.raises(ConfigError, match="hermes"):
        build_backend(options("--model", random_model, "--dialect", "martian"))


@pytest.mark.parametrize(
    "fields", [{}, {"text_config": None}, {"text_config": []}, {"vocab_size": -1}, {"vocab_size": True}]
)
def test_a_config_without_a_vocabulary_is_refused(fields, tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps({"model_type": "llama"} | fields))
    with pytest.raises(ModelLoadError, match="names no vocab_size"):
        build_backend(options("--model", f"random:{tmp_path / 'tiny.json'}"))


def test_the_banner_says_what_serves_where_and_how_to_ask(random_model):
    loaded = build_backend(options("--model", random_model))
    assert loaded.engine is not None
    loaded.engine.info = engine_info()
    text = banner("http://127.0.0.1:8000", loaded, gateway_config(api_keys=("secret",)))
    first = text.splitlines()[0]
    for part in ("http://127.0.0.1:8000", "test-model", "cpu", "fp32", "100 KV blocks", "1000 tokens"):
        assert part in first
    assert "secret" not in text
    assert text.count("KEY") == 3


class NeverReady:
    """A backend whose start hangs, or fails."""

    models = None
    is_ready = False
    max_model_len = None
    stats = None

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.is_closed = False

    async def start(self) -> None:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.is_closed = True


async def test_a_backend_that_cannot_start_ends_the_server_with_its_error():
    backend = NeverReady(ModelLoadError("no such weights"))
    async with asyncio.timeout(5):
        with pytest.raises(ModelLoadError, match="no such weights"):
            await serve(backend, gateway_config(), listen("127.0.0.1", 0), pytest.fail)
    assert backend.is_closed


async def test_while_the_model_loads_health_answers_and_a_signal_ends_it():
    backend = NeverReady()
    listener = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    serving = asyncio.create_task(serve(backend, gateway_config(), listener, pytest.fail))
    async with httpx.AsyncClient(base_url=url) as http:
        assert (await http.get("/health")).status_code == 200
        assert (await http.get("/ready")).status_code == 503
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(5):
        await serving
    assert backend.is_closed


async def test_the_base_url_is_told_once_the_backend_is_ready():
    told: asyncio.Queue[str] = asyncio.Queue()
    listener = listen("127.0.0.1", 0)
    serving = asyncio.create_task(serve(scripted("x"), gateway_config(), listener, told.put_nowait))
    assert await told.get() == f"http://127.0.0.1:{listener.getsockname()[1]}"
    os.kill(os.getpid(), signal.SIGINT)
    await serving
