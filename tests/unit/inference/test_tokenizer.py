"""Text survives the way there and back, in pieces of any size, for every kind of vocabulary."""

import json
import random
import threading

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from inference.errors import InvalidTurn, ModelLoadError
from inference.tokenizer import ByteDetokenizer, CheckpointTokenizer, SyntheticTokenizer, WindowDetokenizer

TEXTS = [
    "Hello, wörld!",
    "日本語 and emoji 😀👩‍👩‍👧 in one line",
    "  leading and trailing  \n\n\ttabs\r\n",
    "<|im_start|>user\nhi<|im_end|>",
    "",
]


def _byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    tokenizer.add_tokens([AddedToken("<tool_call>")])
    return tokenizer


def _sentencepiece_like():
    vocab = {"<unk>": 0} | {f"<0x{byte:02X}>": 1 + byte for byte in range(256)}
    for piece in ["▁", "▁Hello", ",", "▁w", "ö", "r", "l", "d", "!", "▁and", "▁in", "▁one", "▁line", "e", "H", "o"]:
        vocab.setdefault(piece, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab, [], byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


@pytest.fixture
def folder(tmp_path):
    _byte_level().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>", "chat_template": "{{ bos_token }}"}
        )
    )
    return tmp_path


@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_text_survives_in_pieces_of_any_size(folder, text):
    tokenizer = CheckpointTokenizer.from_folder(folder)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    for size in (1, 2, 3):
        detokenizer = tokenizer.detokenizer()
        pieces = [detokenizer.feed(ids[i : i + size]) for i in range(0, len(ids), size)]
        assert "".join(pieces) + detokenizer.flush() == text
        assert not any("\ufffd" in piece for piece in pieces), "no piece ends inside a character"


def test_random_ids_decode_as_the_library_decodes_them(folder):
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer = CheckpointTokenizer.from_folder(folder)
    rng = random.Random(5)
    for _ in range(200):
        ids = [rng.randrange(backend.get_vocab_size()) for _ in range(12)]
        assert tokenizer.decode(ids) == backend.decode(ids, skip_special_tokens=False)


def test_a_cut_character_comes_out_as_a_replacement_at_the_end():
    detokenizer = ByteDetokenizer({1: "é".encode()[:1], 2: b"x"})
    assert detokenizer.feed([1]) == ""
    assert detokenizer.feed([2]) == "\ufffdx"
    assert detokenizer.feed([1]) == ""
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.feed([99]) == "", "an id beyond the vocabulary has no text"


@pytest.mark.parametrize("text", ["Hello, wörld!", "Hello 😀 and 日 in one line", "é"])
def test_sentencepiece_text_survives_token_by_token(text):
    backend = _sentencepiece_like()
    ids = backend.encode(text).ids
    detokenizer = WindowDetokenizer(backend)
    pieces = [detokenizer.feed([token_id]) for token_id in ids]
    assert "".join(pieces) + detokenizer.flush() == backend.decode(ids)
    assert not any("\ufffd" in piece for piece in pieces)


def test_sentencepiece_bytes_that_never_become_a_character_are_let_go():
    detokenizer = WindowDetokenizer(_sentencepiece_like())
    emoji_start = 1 + 0xF0
    assert detokenizer.feed([emoji_start]) == ""
    assert "\ufffd" in detokenizer.feed([emoji_start] * 4) + detokenizer.flush()


def test_vocabulary_special_tokens_and_template_come_from_the_folder(folder):
    tokenizer = CheckpointTokenizer.from_folder(folder)
    assert set(tokenizer.special_tokens) == {"<|im_start|>", "<|im_end|>"}
    assert tokenizer.vocab["<tool_call>"] not in tokenizer.special_tokens.values()
    assert tokenizer.render_chat([]) == "<|im_start|>"
    assert tokenizer.encode("<|im_end|>") == [tokenizer.special_tokens["<|im_end|>"]]


def test_a_template_file_wins_and_a_list_of_templates_gives_its_default(folder):
    config = folder / "tokenizer_config.json"
    config.write_text(
        json.dumps(
            {
                "chat_template": [
                    {"name": "rag", "template": "rag"},
                    {"name": "default", "template": "the default"},
                ]
            }
        )
    )
    assert CheckpointTokenizer.from_folder(folder).render_chat([]) == "the default"
    (folder / "chat_template.jinja").write_text("from the file")
    assert CheckpointTokenizer.from_folder(folder).render_chat([]) == "from the file"


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match=r"no tokenizer\.json"):
        CheckpointTokenizer.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b""), ("tokenizer.json", b"{}"), ("tokenizer.json", b"version https://git-lfs"),
        ("tokenizer.json", b"\xff"), ("tokenizer_config.json", b"{"), ("tokenizer_config.json", b"[]"),
        ("tokenizer_config.json", b"\xff"), ("tokenizer_config.json", b'{"chat_template": 7}'),
        ("chat_template.jinja", b"\xff"), ("chat_template.jinja", b"{{ x "),
        ("chat_template.jinja", b"{% if %}"), ("chat_template.jinja", b"{{ 1 | no_such_filter }}"),
        ("chat_template.jinja", b"(" * 10 + b"{{ " + b"(" * 5000),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named_and_not_a_traceback(name, content, tmp_path):
    _byte_level().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelLoadError, match=rf"{name}|chat template is none"):
        CheckpointTokenizer.from_folder(tmp_path)


def test_odd_entries_among_named_templates_are_passed_over(tmp_path):
    _byte_level().save(str(tmp_path / "tokenizer.json"))
    named = [7, {"name": "bare"}, {"name": "default", "template": "{{ messages }}"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert CheckpointTokenizer.from_folder(tmp_path).chat_template == "{{ messages }}"


def test_the_synthetic_tokenizer_gives_every_id_a_text_of_its_own():
    tokenizer = SyntheticTokenizer(1000)
    assert tokenizer.decode(tokenizer.encode("héllo")) == "héllo"
    assert tokenizer.decode([300, 65, 999]) == " t300A t999"
    assert tokenizer.encode(tokenizer.render_chat([{"role": "user", "content": "x"}]))


def test_a_templates_refusal_is_the_requests_fault(folder):
    (folder / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InvalidTurn, match="roles must alternate"):
        CheckpointTokenizer.from_folder(folder).render_chat([{"role": "user", "content": "x"}])


def _with_post_processor(tokenizer):
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A <|im_end|>", special_tokens=[(name, tokenizer.token_to_id(name)) for name in ENDS]
    )
    return tokenizer


ENDS = ("<|im_start|>", "<|im_end|>")
HARD = [*TEXTS, "<tool_call>" * 20, "<|im_end|><|im_start|> <tool_call>x", "x" * 5000, "\n" * 3000, "é\u0301\u0000"]


@pytest.mark.parametrize("add_special_tokens", [False, True])
@pytest.mark.parametrize("make", [_byte_level, lambda: _with_post_processor(_byte_level()), _sentencepiece_like])
def test_ids_are_those_of_the_library_s_own_encode(make, add_special_tokens):
    backend = make()
    tokenizer = CheckpointTokenizer(backend, {}, None)
    for text in HARD:
        ids = tokenizer.encode(text, add_special_tokens=add_special_tokens)
        assert ids == backend.encode(text, add_special_tokens=add_special_tokens).ids


def test_other_threads_run_while_a_long_text_is_tokenised():
    """Audit of 2026-11-30: one long prompt froze every stream, since the library held the interpreter meanwhile."""
    tokenizer = CheckpointTokenizer(_byte_level(), {}, None)
    num_turns = 0
    is_over = threading.Event()

    def count():
        nonlocal num_turns
        while not is_over.is_set():
            num_turns += 1
            is_over.wait(0.0001)

    counter = threading.Thread(target=count)
    counter.start()
    before = num_turns
    tokenizer.encode("Hello, wörld! " * 20_000)
    after = num_turns
    is_over.set()
    counter.join()
    assert after - before > 20


@pytest.mark.parametrize("make", [_byte_level, _sentencepiece_like])
def test_no_token_stands_for_more_characters_than_the_tokenizer_says(make):
    tokenizer = CheckpointTokenizer(make(), {}, None)
    for text in HARD:
        assert len(text) <= len(tokenizer.encode(text)) * tokenizer.max_chars_per_token


def test_composed_characters_count_for_what_they_were_composed_of():
    backend = _byte_level()
    backend.normalizer = normalizers.Sequence([normalizers.NFC()])
    tokenizer = CheckpointTokenizer(backend, {}, None)
    plain = CheckpointTokenizer(_byte_level(), {}, None)
    assert tokenizer.max_chars_per_token == 4 * plain.max_chars_per_token


def _lowercase(backend):
    backend.normalizer = normalizers.Lowercase()


def _shrinking(backend):
    backend.normalizer = normalizers.Replace("  ", " ")


def _splitting_blanks_off(backend):
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()


def _removing(backend):
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(use_regex=False)]
    )


def _greedy_token(backend):
    backend.add_special_tokens([AddedToken("<|x|>", lstrip=True, special=True)])


def _without_bytes(backend):
    backend.decoder = decoders.BPEDecoder()


@pytest.mark.parametrize(
    "change", [_lowercase, _shrinking, _splitting_blanks_off, _removing, _greedy_token, _without_bytes]
)
def test_where_a_token_may_swallow_any_text_no_bound_is_claimed(change):
    backend = _byte_level()
    change(backend)
    assert CheckpointTokenizer(backend, {}, None).max_chars_per_token is None
