"""The table of dialects: names, aliases, and that every declaration is whole."""

from __future__ import annotations

import pytest

from stream_parser import DIALECTS
from stream_parser.dialect import Dialect, Span
from stream_parser.dialects import DETECTION_ORDER

# The names under which other servers know tool-call and reasoning parsers: people bring their flags along.
VLLM = [
    "apertus",
    "beam",
    "cohere_command3",
    "cohere_command4",
    "deepseek_r1",
    "deepseek_v3",
    "deepseek_v31",
    "deepseek_v32",
    "deepseek_v4",
    "deepseek_v41",
    "dots",
    "ernie45",
    "functiongemma",
    "gemma4",
    "gigachat3",
    "glm45",
    "glm47",
    "granite",
    "granite-20b-fc",
    "granite4",
    "granite_thinking_parser",
    "hermes",
    "holo2",
    "hunyuan_a13b",
    "hy_v3",
    "hy_v4",
    "inkling",
    "internlm",
    "jamba",
    "k2_horizon",
    "kimi_k2",
    "kimi_k3",
    "lfm2",
    "ling3",
    "llama3_json",
    "llama4_json",
    "llama4_pythonic",
    "longcat",
    "mimo",
    "minicpm5",
    "minicpmv",
    "minimax",
    "minimax_m2",
    "minimax_m2_append_think",
    "minimax_m3",
    "mistral",
    "muse",
    "muse_glimmer",
    "musespark1x",
    "nemotron_v3",
    "olmo3",
    "openai",
    "openai_gptoss",
    "phi4_mini_json",
    "plamo3",
    "poolside_v1",
    "pythonic",
    "qwen3",
    "qwen3_coder",
    "qwen3_json",
    "qwen3_xml",
    "seed_oss",
    "solar_open2",
    "step3",
    "step3p5",
    "step5",
    "xlam",
]
SGLANG = [
    "apertus2509",
    "cohere_command4",
    "deepseek-r1",
    "deepseek-v3",
    "deepseekv3",
    "deepseekv31",
    "deepseekv32",
    "deepseekv4",
    "deepseekv41",
    "dots",
    "gemma4",
    "gigachat3",
    "gigachat35",
    "glm",
    "glm45",
    "glm47",
    "gpt-oss",
    "hermes",
    "hunyuan",
    "interns1",
    "iquest_q1",
    "kimi",
    "kimi_k2",
    "kimi_k3",
    "lfm2",
    "ling3",
    "llama3",
    "mimo",
    "minicpm5",
    "minimax",
    "minimax-append-think",
    "minimax-m2",
    "minimax-m3",
    "mistral",
    "muse",
    "nanbeige",
    "nano_v3",
    "nemotron_3",
    "poolside_v1",
    "pythonic",
    "qwen",
    "qwen25",
    "qwen3",
    "qwen3-thinking",
    "qwen3_coder",
    "spark25",
    "step3",
    "step3p5",
    "trinity",
]


@pytest.mark.parametrize("name", sorted({*VLLM, *SGLANG}))
def test_names_of_other_servers_parsers_are_understood(name: str) -> None:
    assert isinstance(DIALECTS[name], Dialect)


def test_no_name_means_two_dialects() -> None:
    names = [name for dialect in DETECTION_ORDER for name in (dialect.name, *dialect.aliases)]
    assert len(names) == len(set(names)) == len(DIALECTS)


@pytest.mark.parametrize("dialect", DETECTION_ORDER, ids=lambda d: d.name)
def test_declaration_is_whole(dialect: Dialect) -> None:
    assert dialect.families
    assert dialect.syntax
    assert "\n" not in dialect.syntax
    if dialect.reasoning and dialect.name != "react":
        assert all(span.closes for span in dialect.reasoning)
    for call in dialect.calls:
        assert call.opens or call.heads or call.anchor != "anywhere" or call.known_name


def test_text_that_opens_the_reasoning_comes_from_the_first_span_or_is_said() -> None:
    assert DIALECTS["qwen3"].reasoning_open == "<think>\n"
    assert DIALECTS["hy_v3"].reasoning_open == "<think>"
    assert DIALECTS["gpt_oss"].reasoning_open == "<|start|>assistant<|channel|>analysis<|message|>"
    assert DIALECTS["apriel"].reasoning_open == "Here are my reasoning steps:\n"
    assert DIALECTS["granite_20b_fc"].reasoning_open == ""
    assert Dialect(name="d", families=(), syntax="", reasoning=(Span(bare_opens=("x",)),)).reasoning_open == ""
