import pytest

from gateway.errors import GatewayError, InvalidRequest, TooManyTurns
from gateway.model_backend import ModelBackend
from gateway.pieces import TextPiece
from gateway.protocols.completions import decode_completion
from gateway.protocols.openai_chat import decode_chat
from inference.errors import ContextLengthExceeded, InvalidTurn, QueueFull
from inference.grammar.source import GrammarSource
from inference.types import SamplingParams, TokenChunk, TokenLogprobs
from tests.testkit.gateway_kit import ByteTokenizer, FakeEngine, chat_body, model_backend, token_chunks, weather_tool


async def pieces_of(backend: ModelBackend, turn) -> list[TextPiece]:
    (prepared,) = await backend.prepare(turn, "turn_1")
    return [piece async for piece in backend.generate(prepared)]


async def test_a_chat_goes_through_the_template_and_its_tokens_to_the_engine():
    engine, tokenizer = FakeEngine(lambda request: token_chunks(request, "ok")), ByteTokenizer()
    body = chat_body(
        "Hi", temperature=0.5, n=1, seed=3, cache_salt="s", chat_template_kwargs={"enable_thinking": False}
    )
    found = await pieces_of(model_backend(engine, tokenizer), decode_chat(body))
    assert "".join(piece.text for piece in found) == "ok"
    (request,) = engine.requests
    assert bytes(request.prompt_token_ids) == b"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert request.params == SamplingParams(temperature=0.5, seed=3)
    assert request.cache_salt == "s"
    assert tokenizer.rendered[0][2] == {"enable_thinking": False}


@pytest.mark.parametrize("size", [10, 50_000])
async def test_short_prompts_are_tokenised_at_once_and_long_ones_in_a_thread_alike(size):
    (prepared,) = await model_backend(FakeEngine()).prepare(decode_chat(chat_body("x" * size)), "t")
    assert prepared.num_prompt_tokens == size + 50
    assert prepared.prompt_tail.endswith("<|im_start|>assistant\n")
    assert len(prepared.prompt_tail) <= 4096


async def test_messages_reach_the_template_as_templates_expect_them():
    tokenizer = ByteTokenizer()
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
    ]
    turn = decode_chat(chat_body(messages=messages, tools=[weather_tool()]))
    await model_backend(FakeEngine(), tokenizer).prepare(turn, "t")
    rendered, tools, _ = tokenizer.rendered[-1]
    assert rendered == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi", "name": "ann"},
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "content": "4", "tool_call_id": "c1", "name": "weather"},
    ]
    assert tools == (weather_tool(),)


async def test_tool_choice_none_leaves_the_tools_out_of_prompt_and_parser():
    tokenizer = ByteTokenizer()
    turn = decode_chat(chat_body(tools=[weather_tool()], tool_choice="none"))
    (prepared,) = await model_backend(FakeEngine(), tokenizer).prepare(turn, "t")
    assert (tokenizer.rendered[0][1], prepared.tools) == (None, ())


class Held:
    """Stands for `TurnGrammars`: each turn has a grammar."""

    def is_needed(self, turn) -> bool:
        return True

    def of(self, turn, info, prompt_tail):
        return GrammarSource("start: /x/")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("required", True), ({"type": "function", "function": {"name": "weather"}}, True), ("auto", False)],
)
async def test_a_turn_that_must_call_is_known_to_write_nothing_else(choice, expected):
    turn = decode_chat(chat_body(tools=[weather_tool()], tool_choice=choice))
    held = ModelBackend(ByteTokenizer(), FakeEngine(), "hermes", grammars=Held())
    free = model_backend(FakeEngine())
    assert [(await backend.prepare(turn, "t"))[0].calls_only for backend in (held, free)] == [expected, False]


async def test_a_template_that_refuses_is_the_clients_error():
    class Refusing(ByteTokenizer):
        def render_chat(self, *args, **kwargs):
            raise InvalidTurn("messages", "roles must alternate")

    with pytest.raises(InvalidRequest, match="alternate"):
        await model_backend(FakeEngine(), Refusing()).prepare(decode_chat(chat_body()), "t")


async def test_template_arguments_that_clash_with_ours_are_the_clients_error():
    turn = decode_chat(chat_body(chat_template_kwargs={"messages": []}))
    with pytest.raises(InvalidRequest) as caught:
        await model_backend(FakeEngine()).prepare(turn, "t")
    assert caught.value.param == "chat_template_kwargs"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("messages", "as messages"),
        ("tools", "as tools"),
        ("documents", "into a message"),
        ("add_generation_prompt", "Leave it out"),
        ("bos_token", "Leave it out"),
        ("self", "another name"),
        ("raise_exception", "Leave it out"),
    ],
)
async def test_a_template_argument_that_is_the_server_s_is_named_with_what_helps(name, remedy):
    turn = decode_chat(chat_body(chat_template_kwargs={"enable_thinking": True, name: []}))
    with pytest.raises(InvalidRequest) as caught:
        await model_backend(FakeEngine()).prepare(turn, "t")
    assert caught.value.param == "chat_template_kwargs"
    assert f"'{name}'" in caught.value.message
    assert remedy in caught.value.message
    assert "multiple values" not in caught.value.message


async def test_what_happens_anyway_may_be_asked_for():
    tokenizer = ByteTokenizer()
    turn = decode_chat(chat_body(chat_template_kwargs={"add_generation_prompt": True, "a": 1}))
    await model_backend(FakeEngine(), tokenizer).prepare(turn, "t")
    assert tokenizer.rendered[-1][2] == {"a": 1}


async def test_an_argument_that_the_template_cannot_take_is_blamed_and_not_the_messages():
    class Picky(ByteTokenizer):
        def render_chat(self, messages, tools=None, **variables):
            if variables:
                raise InvalidTurn("messages", "The model's chat template refuses these messages: no 'loud'")
            return super().render_chat(messages, tools)

    backend = model_backend(FakeEngine(), Picky())
    with pytest.raises(InvalidRequest, match=r"no 'loud'.*without voice") as caught:
        await backend.prepare(decode_chat(chat_body(chat_template_kwargs={"voice": "loud"})), "t")
    assert caught.value.param == "chat_template_kwargs"
    await backend.prepare(decode_chat(chat_body()), "t")


@pytest.mark.parametrize("num_tokens", [999, 1000])
async def test_a_text_that_cannot_fit_is_refused_without_being_tokenised(num_tokens):
    """The engine's context is 1000 tokens, of which the answer needs one; a token here has three bytes at most."""

    class Counting(ByteTokenizer):
        num_encoded = 0

        def encode(self, text, *, add_special_tokens=False):
            Counting.num_encoded += len(text)
            return super().encode(text)[::3]

    backend = ModelBackend(Counting(), FakeEngine(), "hermes", max_chars_per_token=3)
    text = "x" * (3 * num_tokens)
    turns = [decode_completion({"prompt": text}), decode_chat(chat_body(text))]
    if num_tokens < 1000:
        assert [prompt.num_prompt_tokens for prompt in await backend.prepare(turns[0], "t")] == [999]
        return
    for turn in turns:
        with pytest.raises(InvalidRequest, match="at least 10") as caught:
            await backend.prepare(turn, "t")
        assert caught.value.code == "context_length_exceeded"
        assert "1000" in caught.value.message
    assert Counting.num_encoded == 0
    assert len(await backend.tokenize(turns[1])) > 1000, "counting has no limit"


@pytest.mark.parametrize("error", [RecursionError("deep"), IndexError("no such item"), ZeroDivisionError()])
async def test_what_breaks_while_rendering_is_the_clients_doing(error):
    class Breaking(ByteTokenizer):
        def render_chat(self, *args, **kwargs):
            raise error

    with pytest.raises(InvalidRequest):
        await model_backend(FakeEngine(), Breaking()).prepare(decode_chat(chat_body()), "t")


async def test_each_prompt_of_a_completion_is_a_turn_of_its_own_in_the_engine():
    engine = FakeEngine(lambda request: token_chunks(request, "x"))
    backend = model_backend(engine)
    prepared = await backend.prepare(decode_completion({"prompt": ["ab", [1, 2, 3]], "echo": True}), "turn_1")
    assert [prompt.num_prompt_tokens for prompt in prepared] == [2, 3]
    assert [prompt.prompt_text for prompt in prepared] == ["ab", "\x01\x02\x03"]
    for prompt in prepared:
        backend.generate(prompt)
    assert [request.turn_id for request in engine.requests] == ["turn_1", "turn_1.1"]


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (ContextLengthExceeded(5, 4), InvalidRequest),
        (InvalidTurn("n", "too many"), InvalidRequest),
        (QueueFull(1, 1, 2.0), TooManyTurns),
    ],
)
async def test_refusals_of_the_engine_are_raised_before_the_first_piece(refusal, expected):
    engine = FakeEngine()
    engine.refusal = refusal
    backend = model_backend(engine)
    (prepared,) = await backend.prepare(decode_chat(chat_body()), "t")
    with pytest.raises(expected):
        backend.generate(prepared)


async def test_the_stop_token_counts_and_is_not_text():
    engine = FakeEngine(lambda request: token_chunks(request, "Hi"))
    found = await pieces_of(model_backend(engine), decode_chat(chat_body()))
    assert [piece.text for piece in found] == ["H", "i", ""]
    assert [piece.num_tokens for piece in found] == [1, 1, 1]
    assert found[-1].finish_reason == "stop"


async def test_a_character_split_over_tokens_comes_when_it_is_whole_and_a_broken_one_at_the_end():
    ids = [*"é".encode(), 0xC3]
    engine = FakeEngine(
        lambda request: [
            *(TokenChunk(request.turn_id, 0, (i,)) for i in ids[:-1]),
            TokenChunk(request.turn_id, 0, (ids[-1],), (), "length"),
        ]
    )
    found = await pieces_of(model_backend(engine), decode_chat(chat_body()))
    assert [piece.text for piece in found] == ["", "é", "\ufffd"]


async def test_special_tokens_are_text_for_the_parser_and_left_out_of_completions():
    def reply(request):
        return [TokenChunk(request.turn_id, 0, (258, 65, 259), (), "length")]

    (chat,) = await pieces_of(model_backend(FakeEngine(reply)), decode_chat(chat_body()))
    assert (chat.text, chat.token_ids) == ("<think>A</think>", (258, 65, 259))
    (plain,) = await pieces_of(model_backend(FakeEngine(reply)), decode_completion({"prompt": "a"}))
    assert (plain.text, plain.num_tokens) == ("A", 3)
    body = {"prompt": "a", "skip_special_tokens": False}
    (raw,) = await pieces_of(model_backend(FakeEngine(reply)), decode_completion(body))
    assert raw.text == "<think>A</think>"


async def test_logprobs_name_tokens_and_how_much_text_each_gave():
    def entry(token_id: int) -> TokenLogprobs:
        return TokenLogprobs(token_id, -0.5, ((token_id, -0.5), (66, -2.0)))

    ids = (65, *"é".encode(), 257)
    engine = FakeEngine(
        lambda request: [TokenChunk(request.turn_id, 0, ids, tuple(map(entry, ids)), "stop", stop_token_id=257)]
    )
    turn = decode_chat(chat_body(logprobs=True, top_logprobs=2))
    (piece,) = await pieces_of(model_backend(engine), turn)
    assert piece.text == "Aé"
    assert [(found.token, found.num_chars) for found in piece.logprobs] == [("A", 1), ("\ufffd", 0), ("\ufffd", 1)]
    assert piece.logprobs[0].top == (("A", -0.5), ("B", -2.0))


@pytest.mark.parametrize(("reason", "expected"), [("error", InvalidRequest), ("cancelled", GatewayError)])
async def test_a_turn_the_engine_gave_up_is_an_error(reason, expected):
    engine = FakeEngine(lambda request: [TokenChunk(request.turn_id, 0, (), (), reason, error="no blocks")])
    with pytest.raises(expected):
        await pieces_of(model_backend(engine), decode_chat(chat_body()))


async def test_closing_the_pieces_cancels_the_turn():
    engine = FakeEngine()
    backend = model_backend(engine)
    (prepared,) = await backend.prepare(decode_chat(chat_body()), "t")
    pieces = backend.generate(prepared)
    (tokens,) = engine.live.values()
    pieces.close()
    pieces.close()
    assert tokens.is_cancelled
    assert engine.live == {}


async def test_the_engines_state_limits_and_stats_show_through():
    engine = FakeEngine()
    backend = model_backend(engine)
    assert (backend.is_ready, backend.max_model_len, backend.stats.num_blocks) == (True, 1000, 100)
    engine.state, engine.info = "starting", None
    assert (backend.is_ready, backend.max_model_len) == (False, None)


async def test_tokens_outside_the_vocabulary_are_refused():
    with pytest.raises(InvalidRequest, match="260 tokens"):
        model_backend(FakeEngine()).detokenize([5, 260])
    assert model_backend(FakeEngine()).detokenize([72, 105]) == "Hi"


async def test_tokenize_takes_texts_and_conversations():
    backend = model_backend(FakeEngine())
    assert await backend.tokenize(decode_completion({"prompt": "Hi"})) == [72, 105]
    assert len(await backend.tokenize(decode_chat(chat_body("Hi")))) == 52
