import pytest

from gateway.errors import InvalidRequest
from gateway.protocols.completions import decode_completion
from gateway.types import Choice, JsonObject, Regex


def test_defaults_are_the_apis():
    turn = decode_completion({"prompt": "Once"})
    assert turn.prompts == ("Once",)
    assert turn.params.max_tokens == 16
    assert (turn.n, turn.echo, turn.stream, turn.params.logprobs) == (1, False, False, None)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", ("a",)),
        ("", ("",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
        (["a", [1]], ("a", (1,))),
    ],
)
def test_prompts_are_texts_or_token_ids_one_or_many(prompt, expected):
    assert decode_completion({"prompt": prompt}).prompts == expected


def test_benchmark_fields_reach_the_engine():
    turn = decode_completion({"prompt": [1], "max_tokens": 8, "min_tokens": 8, "ignore_eos": True, "logprobs": 0})
    assert (turn.params.max_tokens, turn.params.min_tokens, turn.params.ignore_eos) == (8, 8, True)
    assert turn.params.logprobs == 0


@pytest.mark.parametrize(
    ("fields", "output", "field"),
    [
        ({"response_format": {"type": "json_object"}}, JsonObject(), "response_format"),
        ({"guided_choice": ["a"]}, Choice(("a",)), "guided_choice"),
        ({"response_format": {"type": "text"}, "structured_outputs": {"regex": "a"}}, Regex("a"),
         "structured_outputs.regex"),
    ],
)  # fmt: skip
def test_a_form_may_be_asked_for_as_on_chat(fields, output, field):
    turn = decode_completion({"prompt": "Once", **fields})
    assert (turn.output, turn.output_field) == (output, field)
    assert len(turn.warnings) == 1


def test_max_tokens_zero_is_allowed_here():
    assert decode_completion({"prompt": "a", "max_tokens": 0, "echo": True}).params.max_tokens == 0


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "prompt", "required"),
        ({"prompt": 5}, "prompt", "an integer"),
        ({"prompt": {}}, "prompt", "an object"),
        ({"prompt": []}, "prompt", "empty"),
        ({"prompt": [1, "a"]}, "prompt[1]", "an integer"),
        ({"prompt": [1, True]}, "prompt[1]", "an integer"),
        ({"prompt": [1, 2.5]}, "prompt[1]", "an integer"),
        ({"prompt": [-1]}, "prompt[0]", "between"),
        ({"prompt": [2**40]}, "prompt[0]", "between"),
        ({"prompt": ["a", 1]}, "prompt[1]", "a string or an array"),
        ({"prompt": [[1], ["a"]]}, "prompt[1][0]", "an integer"),
        ({"prompt": ["a"] * 129}, "prompt", "128"),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens", "at least 0"),
        ({"prompt": "a", "logprobs": True}, "logprobs", "a boolean"),
        ({"prompt": "a", "logprobs": 21}, "logprobs", "20"),
        ({"prompt": "a", "logprobs": 1, "echo": True}, "logprobs", "echo"),
        ({"prompt": "a", "best_of": 2}, "best_of", "n (1)"),
        ({"prompt": "a", "suffix": "b"}, "suffix", "infill"),
        ({"prompt": "a", "echo": "no"}, "echo", "a boolean"),
    ],
)
def test_a_refusal_names_the_field_and_what_is_wrong(body, param, words):
    with pytest.raises(InvalidRequest) as caught:
        decode_completion(body)
    assert caught.value.param == param
    assert words in caught.value.message
