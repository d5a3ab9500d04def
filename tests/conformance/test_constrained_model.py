"""The embedded model held to grammars: hot, it still writes calls that parse and are valid; its neighbours see nothing.

The thousand calls of which these are a few: tests/soak/constrained_calls.py.
"""

from __future__ import annotations

import pytest

from inference.grammar.policy import Bounds
from stream_parser.events import Message, ToolCall
from tests.testkit.sampled_calls import ALWAYS_CALL, Case, call_sampler, check

pytestmark = [pytest.mark.model, pytest.mark.timeout(280)]

BOUNDS = Bounds(integer_digits=4, fraction_digits=2, string_chars=20, array_items=2, recursion_depth=2, calls=2)
CASES = [
    Case(dialect, tool, mode, seed, shows_tools=False)
    for seed, (dialect, tool, mode) in enumerate([
        ("hermes", "get_time", "required"), ("hermes", "messe_größe", "named"), ("hermes", "convert", "opened"),
        ("qwen3_coder", "find_host", "required"), ("qwen3_coder", "forecast", "named"),
        ("qwen3_coder", "set_colour", "opened"), ("pythonic", "get_weather", "required"),
        ("pythonic", "pair", "opened"), ("gemma4", "set_matrix", "opened"), ("gemma4", "either", "named"),
        ("minimax_m3", "multiples", "named"),
    ])
]  # fmt: skip
# With an example of a call before it, the model would like to call, so that its not calling says something.
TEMPTED = [Case("hermes", "get_time", mode, 0, temperature=0, shows_tools=False) for mode in ("none", "unheld")]


@pytest.fixture(scope="module", params=["int8", "fp32"])
def sampler(request):
    with call_sampler(request.param, BOUNDS, kv_bytes=64 << 20) as sampler:
        yield sampler


def _wrong(answers):
    return [(answer.problem, answer.detail, answer.case, answer.text) for answer in answers if answer.problem]


@pytest.mark.parametrize("sampler", ["int8"], indirect=True)
def test_calls_sampled_at_a_high_temperature_parse_and_are_valid(sampler):
    answers = list(sampler.run([*CASES, *TEMPTED]))
    assert not _wrong(answers)
    assert all(answer.num_calls for answer in answers if answer.case.mode in ALWAYS_CALL)
    assert [bool(answer.num_calls) for case in TEMPTED for answer in answers if answer.case == case] == [False, True]


def test_greedy_neighbours_of_constrained_turns_write_what_they_write_without_them(sampler):
    engine = sampler.engine
    prompts = [
        sampler.tokenizer.encode(sampler.tokenizer.render_chat([{"role": "user", "content": question}]))
        for question in ("Name three colours.", "Count from 1 to 5.")
    ]

    def submit(name):
        for number, prompt in enumerate(prompts):
            engine.submit(f"{name}{number}", prompt, temperature=0, max_tokens=8)

    submit("warm")  # the prompts' blocks are shared from then on, in both runs alike
    engine.run()
    submit("alone")
    engine.run()
    held = sampler.run([Case("hermes", "forecast", "named", seed, shows_tools=False) for seed in range(2)])
    submit("beside")
    answers = list(held)
    engine.run()

    assert not _wrong(answers)
    assert sum(answer.num_calls for answer in answers) == 2
    for number in range(len(prompts)):
        assert len(engine.tokens(f"alone{number}")) == 8
        assert engine.tokens(f"beside{number}") == engine.tokens(f"alone{number}")


@pytest.mark.parametrize(
    ("mode", "calls", "problem"),
    [
        ("required", [], "no call where one must be"),
        ("none", [("forecast", '{"city": "a", "days": 1}', "ok")], "a call where none may be"),
        ("named", [("set_alarm", '{"hour": 1, "minute": 1}', "ok")], "not the named tool"),
        ("required", [("forecast", '{"city": "a", "days": 15}', "ok")], "invalid arguments"),
        ("required", [("forecast", '{"city": "a"', "ok")], "arguments are no JSON"),
        ("required", [("forecast", '{"city": "a", "days": 1}', "repaired")], "outcome repaired"),
        ("required", [("pay", "{}", "ok")], "not a declared tool"),
    ],
)
def test_what_is_wrong_with_calls_is_found(mode, calls, problem):
    found = tuple(
        ToolCall(index=number, id=str(number), name=name, arguments=arguments, outcome=outcome, reason="")
        for number, (name, arguments, outcome) in enumerate(calls)
    )
    message = Message(reasoning="", content="", tool_calls=found, finish_reason="stop")
    assert check(Case("hermes", "forecast", mode, 0), message, "stop")[0] == problem
