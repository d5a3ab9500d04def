"""Strict tools and typed answers through the SDKs, of a real model so hot that it writes nonsense: all of it fits.

The programs validate what they get with the types that they asked for, and end with an error where it does not fit.
"""

import pytest

from tests.testkit.served_model import served

pytestmark = [pytest.mark.clients, pytest.mark.model]

TEMPERATURE = "1.5"


@pytest.fixture(scope="module")
def server():
    with served() as server:
        yield server


@pytest.fixture
def run(py, server):
    def run(script):
        steps = py.run(script, server.url, server.model, TEMPERATURE).events
        return {step["step"]: step for step in steps}

    return run


def names(step):
    return [name for name, _ in step["calls"]]


def test_openais_sdk_gets_the_calls_it_demands_and_parses_what_it_asks_for(run):
    steps = run("structured_openai.py")
    for api, finish in (("chat", "tool_calls"), ("responses", "completed")):
        assert names(steps[f"{api} required"])
        assert names(steps[f"{api} named"]) == ["set_alarm"]
        assert set(names(steps[f"{api} allowed"])) == {"get_weather"}
        for choice in ("required", "named", "allowed"):
            step = steps[f"{api} {choice}"]
            assert (step["text"], step["finish"]) == ("", finish)
        assert not names(steps[f"{api} none"])
        assert steps[f"{api} none"]["text"]
        assert steps[f"{api} parsed"]["book"]["authors"]
        assert steps[f"{api} streamed"]["book"]["kind"] in ("novel", "poems")
    parsed = steps["chat parsed call"]
    assert {"get_weather": "GetWeather", "set_alarm": "SetAlarm"}[parsed["name"]] == parsed["type"]
    assert names(steps["chat streamed call"])
    assert "look-around" in steps["refused"]["message"]
    assert steps["refused"]["param"] == "response_format.json_schema.schema.properties.a"
    assert "end" in steps


def test_anthropics_sdk_gets_the_calls_it_demands_and_parses_what_it_asks_for(run):
    steps = run("structured_anthropic.py")
    assert names(steps["any"])
    assert names(steps["tool"]) == ["set_alarm"]
    assert len(names(steps["alone"])) == 1
    assert names(steps["streamed"])
    for choice in ("any", "tool", "alone", "streamed"):
        assert (steps[choice]["text"], steps[choice]["stop"]) == ("", "tool_use")
    assert not names(steps["none"])
    assert steps["none"]["text"]
    assert 0 <= steps["format"]["person"]["age"] <= 120
    assert steps["parsed"]["stop"] == "end_turn"
    assert set(steps["parsed"]["mood"]) == {"score", "words", "again"}
    assert "end" in steps


def test_typed_outputs_of_pydantic_agents_fit_at_once(run):
    steps = run("structured_pydantic.py")
    for api in ("chat", "responses"):
        for mode in ("tool", "native", "tool streamed", "native streamed"):
            assert 1 <= steps[f"{api} {mode}"]["trip"]["days"] <= 14


def test_typed_outputs_and_demanded_calls_of_openai_agents_fit_at_once(run):
    steps = run("structured_agents.py")
    for api in ("chat", "responses"):
        assert steps[f"{api} typed"]["trip"]["by"] in ("train", "boat")
        assert steps[f"{api} tool"]["output"] == "booked"
    assert len(steps["end"]["cities"]) >= 2
    assert {city for city, _ in steps["end"]["cities"]} <= {"Oslo", "Rome"}
