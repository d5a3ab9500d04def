import argparse

import pytest

from gateway.config import ConfigError, ServeOptions, add_serve_arguments, serve_options


def parse(*argv: str, environ: dict[str, str] | None = None) -> ServeOptions:
    parser = argparse.ArgumentParser()
    add_serve_arguments(parser)
    return serve_options(parser.parse_args(argv), environ or {})


def test_no_flags_serve_the_default_model_on_loopback_without_a_key():
    options = parse()
    assert (options.model, options.device, options.dtype, options.max_model_len) == (None, "cpu", None, None)
    assert (options.gateway.host, options.gateway.port, options.gateway.api_keys) == ("127.0.0.1", 8000, ())


def test_keys_come_from_flags_and_environment_one_or_many():
    options = parse("--api-key", "a,b", "--api-key", " c ", environ={"HEADRACE_API_KEY": "d, e"})
    assert options.gateway.api_keys == ("a", "b", "c", "d", "e")


def test_attention_is_the_engines_to_choose_or_what_the_server_is_told():
    assert parse().attention == "auto"
    assert parse("--attention", "flash").attention == "flash"


def test_reasoning_is_called_as_the_server_is_told():
    assert parse().gateway.reasoning_field == "reasoning_content"
    assert parse("--reasoning-field", "both").gateway.reasoning_field == "both"


def test_an_empty_key_is_an_error_and_not_a_server_without_a_lock():
    with pytest.raises(ConfigError, match="--api-key"):
        parse("--api-key", "")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1024", 1024), ("512MiB", 512 << 20), ("4GiB", 4 << 30), ("4G", 4 << 30), ("1.5gb", 3 << 29), ("8 KiB", 8192)],
)
def test_sizes_are_read_in_the_usual_spellings(text, size):
    assert parse("--kv-memory", text).kv_bytes == size


@pytest.mark.parametrize(
    "argv",
    [
        ("--kv-memory", "lots"),
        ("--kv-memory", "0"),
        ("--kv-memory", "-1G"),
        ("--port", "70000"),
        ("--port", "http"),
        ("--max-model-len", "0"),
        ("--max-turns", "-1"),
        ("--keepalive", "0"),
        ("--keepalive", "nan"),
        ("--reasoning-field", "thoughts"),
        ("--resume-grace", "-1"),
        ("--session-ttl", "0"),
        ("--max-sessions", "0"),
        ("--device", "tpu"),
        ("--dtype", "fp8"),
    ],
)
def test_a_value_out_of_range_names_its_option(argv, capsys):
    with pytest.raises(SystemExit):
        parse(*argv)
    assert argv[0] in capsys.readouterr().err


def test_several_names_and_origins_may_be_given():
    options = parse("--served-model-name", "a", "--served-model-name", "b", "--allow-origin", "*")
    assert options.gateway.served_names == ("a", "b")
    assert options.gateway.allowed_origins == ("*",)


def test_every_option_is_explained():
    parser = argparse.ArgumentParser()
    add_serve_arguments(parser)
    assert [action.dest for action in parser._actions if not action.help] == []


def test_what_is_kept_of_responses_is_bounded_and_their_socket_can_be_switched_off():
    default = parse().gateway
    assert default.serves_responses_socket
    chosen = parse(
        "--store-responses", "5", "--store-memory", "1MiB", "--store-age", "60", "--no-responses-websocket"
    ).gateway
    assert (chosen.max_stored_responses, chosen.max_stored_bytes, chosen.stored_response_age_s) == (5, 1 << 20, 60)
    assert not chosen.serves_responses_socket


def test_what_is_kept_for_native_clients_is_bounded_by_flags():
    config = parse("--resume-grace", "2.5", "--max-sessions", "7", "--session-ttl", "60").gateway
    assert (config.resume_grace_s, config.max_sessions, config.session_ttl_s) == (2.5, 7, 60.0)
    assert parse("--resume-grace", "0").gateway.resume_grace_s == 0
    assert parse().gateway.resume_grace_s == 10
