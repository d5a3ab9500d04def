from pathlib import Path

import pytest

from gateway.errors import InvalidRequest
from gateway.pieces import TextPiece
from gateway.protocols.completions import decode_completion
from gateway.protocols.openai_chat import decode_chat
from gateway.scripted import Match, ScriptedBackend, ScriptError, ScriptLine, load_script, split_tokens
from tests.testkit.gateway_kit import chat_body, scripted, weather_tool


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script.jsonl"
    path.write_text(text)
    return path


async def answer(backend: ScriptedBackend, **fields) -> list[TextPiece]:
    (prepared,) = await backend.prepare(decode_chat(chat_body(**fields)), "turn_1")
    return [piece async for piece in backend.generate(prepared)]


def test_a_line_has_defaults_for_everything_but_its_text(tmp_path):
    assert load_script(script(tmp_path, '{"text": "Hi"}\n\n')) == (ScriptLine("Hi"),)


def test_every_field_of_a_line_is_read(tmp_path):
    line = (
        '{"text": "Hi", "dialect": "qwen3", "match": {"last_role": "user", "contains": "x"}, "chunk": 3, '
        '"delay_ms": 20, "finish": "length", "repeat": true}'
    )
    assert load_script(script(tmp_path, line)) == (
        ScriptLine("Hi", "qwen3", Match("user", "x"), 3, 0.02, "length", True),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no lines"),
        ('{"text": "a"}\n{"text": 3}', "line 2: text must be a string"),
        ("{}", "line 1: text is required"),
        ("nope", "line 1"),
        ("[]", "line 1"),
        ('{"text": "a", "dialect": "martian"}', "dialect must be one of"),
        ('{"text": "a", "chunk": "word"}', "chunk must be one of"),
        ('{"text": "a", "chunk": 0}', "chunk"),
        ('{"text": "a", "chunk": true}', "chunk"),
        ('{"text": "a", "delay_ms": -1}', "delay_ms"),
        ('{"text": "a", "finish": "tool_calls"}', "finish must be one of"),
        ('{"text": "a", "match": "user"}', "match must be an object"),
        ('{"text": "a", "match": {"last_role": 1}}', "match.last_role"),
    ],
)
def test_a_bad_script_names_line_and_field(tmp_path, text, words):
    with pytest.raises(ScriptError) as caught:
        load_script(script(tmp_path, text))
    assert words in str(caught.value)


def test_a_script_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ScriptError, match=r"missing\.jsonl"):
        load_script(tmp_path / "missing.jsonl")


async def test_lines_are_used_in_order_and_once():
    backend = scripted("one", "two")
    assert [piece.text for piece in await answer(backend)] == ["one"]
    assert [piece.text for piece in await answer(backend)] == ["two"]
    with pytest.raises(InvalidRequest, match="2 are used up") as caught:
        await answer(backend)
    assert caught.value.code == "script_no_match"


async def test_a_repeated_line_is_never_used_up():
    backend = scripted(ScriptLine("again", repeat=True))
    for _ in range(3):
        assert [piece.text for piece in await answer(backend)] == ["again"]


async def test_the_first_line_whose_match_fits_answers():
    backend = scripted(
        ScriptLine("tool", match=Match(last_role="tool")),
        ScriptLine("both", match=Match(last_role="user", contains="rain")),
        ScriptLine("text", match=Match(contains="sun")),
        ScriptLine("any"),
    )
    conversation = [
        {"role": "user", "content": "sun?"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "rain?"},
    ]
    for expected in ("both", "text", "any"):
        assert [piece.text for piece in await answer(backend, messages=conversation)] == [expected]
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    conversation += [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "wet"},
    ]
    assert [piece.text for piece in await answer(backend, messages=conversation)] == ["tool"]


@pytest.mark.parametrize(
    ("chunk", "pieces"),
    [("token", ["It", " is", " 18", "°", "."]), ("char", list("It is 18°.")), (4, ["It i", "s 18", "°."])],
)
async def test_text_is_cut_as_the_line_says(chunk, pieces):
    found = await answer(scripted(ScriptLine("It is 18°.", chunk=chunk)))
    assert [piece.text for piece in found] == pieces
    assert [piece.finish_reason for piece in found] == [None] * (len(pieces) - 1) + ["stop"]


@pytest.mark.parametrize("chunk", ["token", "char", 5])
async def test_max_tokens_cuts_the_text_and_says_so(chunk):
    found = await answer(scripted(ScriptLine("one two three four", chunk=chunk)), max_tokens=2)
    assert sum(piece.num_tokens for piece in found) <= 2
    assert "one two three four".startswith("".join(piece.text for piece in found))
    assert found[-1].finish_reason == "length"


async def test_exactly_max_tokens_is_no_cut():
    found = await answer(scripted("one two"), max_tokens=2)
    assert ("".join(piece.text for piece in found), found[-1].finish_reason) == ("one two", "stop")


async def test_an_empty_text_still_ends():
    assert [piece.finish_reason for piece in await answer(scripted(""))] == ["stop"]


async def test_every_choice_gets_the_text():
    found = await answer(scripted("a b"), n=3)
    for choice in range(3):
        assert "".join(piece.text for piece in found if piece.choice == choice) == "a b"


async def test_tools_reach_the_parser_unless_the_client_wants_no_calls():
    backend = scripted(ScriptLine("x", repeat=True))
    (prepared,) = await backend.prepare(decode_chat(chat_body(tools=[weather_tool()])), "t")
    assert len(prepared.tools) == 1
    (prepared,) = await backend.prepare(decode_chat(chat_body(tools=[weather_tool()], tool_choice="none")), "t")
    assert prepared.tools == ()


async def test_completions_take_a_line_per_prompt_and_are_not_parsed():
    backend = scripted("one", ScriptLine("two", match=Match(contains="B")), "three")
    prepared = await backend.prepare(decode_completion({"prompt": ["a", "B"]}), "t")
    assert [prompt.dialect for prompt in prepared] == [None, None]
    texts = ["".join([piece.text async for piece in backend.generate(prompt)]) for prompt in prepared]
    assert texts == ["one", "two"]


async def test_token_ids_stand_for_the_words_that_tokenize_gave_them_to():
    backend = scripted("x")
    ids = await backend.tokenize(decode_completion({"prompt": "to be or not to be"}))
    assert len(ids) == 6
    assert backend.detokenize(ids) == "to be or not to be"
    assert backend.detokenize([10**6]) == ""


async def test_closing_ends_the_pieces_and_the_running_count():
    backend = scripted(ScriptLine("one two three"))
    (prepared,) = await backend.prepare(decode_chat(chat_body()), "t")
    pieces = backend.generate(prepared)
    assert backend.stats.num_running == 1
    await anext(pieces)
    pieces.close()
    pieces.close()
    assert backend.stats.num_running == 0
    assert [piece async for piece in pieces] == []


@pytest.mark.parametrize("text", ["", "a", " a b\n\n c", "a  b\t\tc\u3000d", "x=<y>\n\n{}", "🙂🙃 ok", "\r\n \n"])
def test_split_tokens_joined_are_the_text(text):
    assert "".join(split_tokens(text)) == text


async def test_a_choice_that_was_ended_is_written_no_further():
    backend = scripted("one two three")
    (prepared,) = await backend.prepare(decode_chat(chat_body(n=2)), "turn_1")
    pieces = backend.generate(prepared)
    choices = []
    async for piece in pieces:
        choices.append(piece.choice)
        pieces.end_choice(1)
    assert choices == [0, 0, 0]
