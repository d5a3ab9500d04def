"""Text to token ids and back. Built on the `tokenizers` library alone, so that a process needs no torch to use it."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import tokenizers

from inference.chat_template import DEFAULT_TEMPLATE, ChatTemplate, ChatTemplateError, Message
from inference.errors import ModelLoadError
from inference.token_lengths import max_chars_per_token


class IncrementalDetokenizer(Protocol):
    """Turns one choice's token ids into text as they come.

    The texts joined are the whole output; none ends inside a UTF-8 character. Bytes that never become a character come
    out as U+FFFD. O(new tokens) a call.
    """

    def feed(self, token_ids: Sequence[int]) -> str: ...

    def flush(self) -> str:
        """What is still held back when no more tokens come."""


class Tokenizer(Protocol):
    """What the gateway needs of a model's tokenizer. Thread-safe.

    max_chars_per_token: of the text that one token stands for; None where that is not certain.
    """

    chat_template: str | None
    response_template: Mapping[str, Any] | None  # how a checkpoint says its answers are written, if it does
    vocab: Mapping[str, int]
    special_tokens: Mapping[str, int]
    max_chars_per_token: int | None

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...

    def render_chat(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None, *,
        add_generation_prompt: bool = True, **template_variables: Any,
    ) -> str: ...

    def detokenizer(self) -> IncrementalDetokenizer: ...


class CheckpointTokenizer:
    """The tokenizer.json and chat template of a checkpoint's folder."""

    def __init__(self, backend: tokenizers.Tokenizer, config: Mapping[str, Any], chat_template: str | None) -> None:
        self._backend = backend
        self.chat_template = chat_template
        template = config.get("response_template")
        self.response_template: Mapping[str, Any] | None = template if isinstance(template, dict) else None
        self._template = ChatTemplate(chat_template or DEFAULT_TEMPLATE, _named_tokens(config))
        self.vocab: Mapping[str, int] = backend.get_vocab(with_added_tokens=True)
        added = backend.get_added_tokens_decoder()
        self.special_tokens: Mapping[str, int] = {
            token.content: token_id for token_id, token in added.items() if token.special
        }
        literals = {token_id: token.content.encode() for token_id, token in added.items()}
        described = json.loads(backend.to_str())
        self.max_chars_per_token = max_chars_per_token(described)
        self._token_bytes = _byte_level_table(self.vocab, literals) if _is_byte_level(described) else None

    @classmethod
    def from_folder(cls, folder: Path) -> CheckpointTokenizer:
        """Raises ModelLoadError, which names the file, when there is no tokenizer.json or what is there cannot be
        read."""
        path = folder / "tokenizer.json"
        if not path.exists():
            raise ModelLoadError(f"{folder}: no tokenizer.json. Save the model with its (fast) tokenizer beside it.")
        config = _read_config(folder / "tokenizer_config.json")
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more special
            raise ModelLoadError(f"{path}: cannot be read as a tokenizer: {error}. Fetch it again.") from error
        try:
            return cls(backend, config, _read_template(folder, config))
        except ChatTemplateError as error:
            raise ModelLoadError(f"{folder}: its chat template is none: {error}. Mend it, or take it away.") from error

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        # The same ids as encode()'s, without their offsets; and only the batch call lets other threads run meanwhile.
        [encoding] = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        detokenizer = self.detokenizer()
        return detokenizer.feed(token_ids) + detokenizer.flush()

    def render_chat(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None, *,
        add_generation_prompt: bool = True, **template_variables: Any,
    ) -> str:
        return self._template.render(
            messages, tools, add_generation_prompt=add_generation_prompt, **template_variables
        )

    def detokenizer(self) -> IncrementalDetokenizer:
        if self._token_bytes is not None:
            return ByteDetokenizer(self._token_bytes)
        return WindowDetokenizer(self._backend)


class ByteDetokenizer:
    """For vocabularies whose tokens are byte strings: exact, one table look-up a token."""

    def __init__(self, token_bytes: Mapping[int, bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token_ids: Sequence[int]) -> str:
        table = self._token_bytes
        return self._decoder.decode(b"".join([table.get(token_id, b"") for token_id in token_ids]))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class WindowDetokenizer:
    """For vocabularies whose pieces decode by context (SentencePiece): decodes a short window, emits what it adds."""

    _LONGEST_CHARACTER = 4  # byte tokens of one UTF-8 character; a longer wait means that it never becomes one

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._context: list[int] = []  # emitted already; kept since a piece's leading space depends on what precedes
        self._pending: list[int] = []

    def feed(self, token_ids: Sequence[int]) -> str:
        return "".join([self._step(token_id) for token_id in token_ids])

    def flush(self) -> str:
        return self._emit() if self._pending else ""

    def _step(self, token_id: int) -> str:
        self._pending.append(token_id)
        if len(self._pending) < self._LONGEST_CHARACTER and self._added().endswith("\ufffd"):
            return ""
        return self._emit()

    def _added(self) -> str:
        before = self._backend.decode(self._context, skip_special_tokens=False)
        after: str = self._backend.decode(self._context + self._pending, skip_special_tokens=False)
        return after[len(before) :]

    def _emit(self) -> str:
        text = self._added()
        self._context, self._pending = (self._context + self._pending)[-self._LONGEST_CHARACTER :], []
        return text


class SyntheticTokenizer:
    """For random weights, which come without a vocabulary: every id has a text of its own, every text has ids.

    Ids below 256 are UTF-8 bytes; any other id N reads " tN".
    """

    def __init__(self, vocab_size: int) -> None:
        self.chat_template: str | None = None
        self.response_template: Mapping[str, Any] | None = None
        self.vocab: Mapping[str, int] = {}
        self.special_tokens: Mapping[str, int] = {}
        self.max_chars_per_token: int | None = 1
        self._vocab_size = vocab_size
        self._template = ChatTemplate(DEFAULT_TEMPLATE, {})

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return [byte % self._vocab_size for byte in text.encode()]

    def decode(self, token_ids: Sequence[int]) -> str:
        detokenizer = self.detokenizer()
        return detokenizer.feed(token_ids) + detokenizer.flush()

    def render_chat(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None, *,
        add_generation_prompt: bool = True, **template_variables: Any,
    ) -> str:
        return self._template.render(
            messages, tools, add_generation_prompt=add_generation_prompt, **template_variables
        )

    def detokenizer(self) -> IncrementalDetokenizer:
        return ByteDetokenizer(_SyntheticTable())


class _SyntheticTable(Mapping[int, bytes]):
    def __getitem__(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b" t%d" % token_id

    def __len__(self) -> int:
        raise NotImplementedError("the table is as long as the vocabulary, which it does not know")

    def __iter__(self) -> Any:
        raise NotImplementedError("the table is as long as the vocabulary, which it does not know")

    def get(self, token_id: int, default: Any = None) -> bytes:
        return self[token_id]


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(path.read_text()) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path}: cannot be read as JSON: {error}. Fetch it again.") from error
    if not isinstance(config, dict):
        raise ModelLoadError(f"{path}: it must be a JSON object. Fetch it again.")
    return config


def _read_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, else tokenizer_config.json's, whose list form names several; the default one is taken."""
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text()
        except (OSError, ValueError) as error:
            raise ModelLoadError(f"{path}: cannot be read as text: {error}. Fetch it again.") from error
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default") or next(iter(named.values()), None)
    if not (template is None or isinstance(template, str)):
        raise ModelLoadError(f"{folder / 'tokenizer_config.json'}: chat_template must be text or a list of such.")
    return template


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """bos_token and its like, which tokenizer_config.json writes as a string or as an added-token object."""
    tokens = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"):
        value = config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            tokens[name] = value
    return tokens


def _is_byte_level(described: Mapping[str, Any]) -> bool:
    decoder = described.get("decoder") or {}
    kinds = [part["type"] for part in decoder.get("decoders", [decoder]) if "type" in part]
    return kinds == ["ByteLevel"]


def _byte_level_table(vocab: Mapping[str, int], literals: Mapping[int, bytes]) -> dict[int, bytes]:
    """Token id to bytes for a byte-level vocabulary, in which a printable character stands for each byte (GPT-2)."""
    byte_of = {character: byte for byte, character in _byte_alphabet().items()}
    table = {}
    for token, token_id in vocab.items():
        if token_id not in literals:
            table[token_id] = bytes([byte_of[character] for character in token if character in byte_of])
    return table | dict(literals)


def _byte_alphabet() -> dict[int, str]:
    """GPT-2's bytes_to_unicode: printable Latin-1 stands for itself, the other bytes follow from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
