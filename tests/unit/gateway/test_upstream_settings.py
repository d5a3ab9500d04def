import argparse

import pytest

from gateway.config import add_serve_arguments, serve_options
from gateway.option_types import ConfigError
from gateway.startup import banner, build_backend
from gateway.upstream_backend import UpstreamBackend
from gateway.upstream_settings import UpstreamSettings

URL = "http://127.0.0.1:8001/v1"


def settings(*argv, **environ):
    parser = argparse.ArgumentParser()
    add_serve_arguments(parser)
    return serve_options(parser.parse_args(argv), environ)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://127.0.0.1:8001", "http://127.0.0.1:8001/v1"),
        ("http://127.0.0.1:8001/", "http://127.0.0.1:8001/v1"),
        (" https://api.example/openai/v1/ ", "https://api.example/openai/v1"),
        ("http://[::1]:8001/v1", "http://[::1]:8001/v1"),
    ],
)
def test_a_url_is_the_one_that_sdks_take(given, url):
    assert settings("--upstream", given).upstream == UpstreamSettings(url)


def test_every_option_has_its_place():
    options = settings(
        *("--upstream", URL, "--upstream-key-env", "KEY", "--model", "m", "--served-model-name", "mine"),
        *("--content-dialect", "hermes", "--upstream-reasoning", "template", "--upstream-timeout", "5"),
        *("--upstream-max-tokens-field", "max_completion_tokens", "--upstream-connect-timeout", "2"),
        *("--upstream-deadline", "60", "--upstream-retries", "0", "--upstream-proxy", "http://proxy:3128"),
        KEY=" sk-1\n",
    )
    assert options.upstream == UpstreamSettings(
        URL, "sk-1", "m", "hermes", "max_completion_tokens", "template", 2.0, 5.0, 60.0, 0, "http://proxy:3128"
    )
    loaded = build_backend(options)
    assert isinstance(loaded.backend, UpstreamBackend)
    assert loaded.gateway_config(options).served_names == ("mine",)
    assert f"serves mine (answers of {URL})" in banner("http://x", loaded, loaded.gateway_config(options))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--upstream", "127.0.0.1:8001"], "http://"),
        (["--upstream", "ftp://a"], "http://"),
        (["--upstream", "http://"], "host"),
        (["--upstream", "http://a:99999"], "[Pp]ort"),
        (["--upstream", "http://a:0"], "port"),
        (["--upstream", "http://[::1"], "IPv6"),
        (["--upstream", "http://user:secret@a/v1"], "--upstream-key-env"),
        (["--upstream", f"{URL}/chat/completions"], "base URL"),
        (["--upstream", f"{URL}?a=b"], "query"),
        (["--upstream", URL, "--upstream-key-env", "NOT_SET"], "not set"),
        (["--upstream", URL, "--upstream-key-env", "BAD"], "characters"),
        (["--upstream", URL, "--content-dialect", "nope"], "choose one of"),
        (["--upstream", URL, "--dialect", "hermes"], "--content-dialect"),
        (["--upstream", URL, "--device", "cuda"], "leave it out"),
        (["--upstream", URL, "--dtype", "fp32"], "leave it out"),
        (["--upstream", URL, "--attention", "auto"], "leave it out"),
        (["--upstream", URL, "--max-model-len", "64"], "leave it out"),
        (["--upstream", URL, "--kv-memory", "1GiB"], "leave it out"),
        (["--upstream", URL, "--served-model-name", "a"], "needs --model"),
        (["--upstream", URL, "--model", "scripted:a.jsonl"], "the upstream serves"),
        (["--upstream", URL, "--model", " "], "the upstream serves"),
        (["--upstream", URL, "--upstream-proxy", "proxy:3128"], "give a URL"),
        (["--upstream", URL, "--upstream-ca", "/nowhere.pem"], "https"),
        (["--upstream", "https://a", "--upstream-ca", "/nowhere.pem"], "cannot be read"),
        (["--upstream", "https://a", "--upstream-ca", __file__], "no certificate"),
        (["--upstream-key-env", "KEY"], "needs --upstream"),
        (["--content-dialect", "hermes"], "needs --upstream"),
        (["--upstream-retries", "0"], "needs --upstream"),
    ],
)
def test_a_wrong_option_is_told_at_the_start(argv, words):
    with pytest.raises(ConfigError, match=words) as caught:
        settings(*argv, BAD="sk-\u20ac")
    assert "secret" not in str(caught.value)


def test_numbers_are_checked_by_the_parser(capsys):
    for argv in (["--upstream-timeout", "0"], ["--upstream-retries", "-1"], ["--upstream-reasoning", "much"]):
        with pytest.raises(SystemExit):
            settings("--upstream", URL, *argv)
    assert "must be a number of seconds" in capsys.readouterr().err
