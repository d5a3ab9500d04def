"""Renders a checkpoint's Jinja chat template, as Transformers' `apply_chat_template` does, but without it.

Templates come with checkpoints and are not trusted: they run in Jinja's immutable sandbox. Source: Transformers' chat
templating guide (the names and filters that templates may rely on), 2026-11.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from inference.errors import InvalidTurn

Message = Mapping[str, Any]

# For checkpoints and synthetic tokenizers that bring no template of their own.
DEFAULT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class ChatTemplateError(Exception):
    """A template that does not compile: the checkpoint's fault."""


class ChatTemplate:
    """A compiled template. `tokens` are the special tokens that it may name, such as bos_token.

    Raises ChatTemplateError.
    """

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self.source = source
        self.renders_tools = "tools" in source
        self._tokens = dict(tokens)
        try:
            self._template = environment.from_string(source)
        except (TemplateError, RecursionError) as error:
            raise ChatTemplateError(str(error).rstrip(".")) from error

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, *, add_generation_prompt: bool,
        **variables: Any,
    ) -> str:
        """The prompt. Raises InvalidTurn with the template's own words when it refuses these messages."""
        prepared = [_with_parsed_arguments(message) for message in messages]
        if not self.renders_tools:
            prepared = _flatten_tools(prepared, tools or ())
        try:
            return self._template.render(
                messages=prepared, tools=list(tools) if tools else None, documents=None,
                add_generation_prompt=add_generation_prompt, **self._tokens, **variables,
            )
        except Exception as error:  # a template is a program: it divides, indexes and recurs as it likes
            raise InvalidTurn("messages", f"The model's chat template refuses these messages: {error}") from error


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks assistant text for training; here it is just its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which would change the prompt."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _with_parsed_arguments(message: Message) -> dict[str, Any]:
    """Templates expect a call's arguments as an object; on the wire they are its JSON text. None content becomes ""."""
    prepared = dict(message)
    if prepared.get("content") is None:
        prepared["content"] = ""
    if prepared.get("tool_calls"):
        prepared["tool_calls"] = [_parsed_call(call) for call in prepared["tool_calls"]]
    return prepared


def _parsed_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function", {}))
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments or "{}")
        except ValueError:
            parsed = arguments
        # A template that walks the arguments' items would fail on anything but an object.
        function["arguments"] = parsed if isinstance(parsed, dict) else arguments
    return {**call, "function": function}


def _flatten_tools(messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For templates that know no tools: describe them in the system message, and write calls and results as text.

    The wording and tags are the Hermes function-calling format (NousResearch, 2024), which such models saw most.
    """
    flat = [_flatten_message(message) for message in messages]
    if not tools:
        return flat
    instructions = (
        "You may call one or more functions to help the user. Their signatures are in <tools></tools>:\n<tools>\n"
        + "\n".join(_to_json(tool) for tool in tools)
        + "\n</tools>\nTo call one, answer with its name and arguments as a JSON object in these tags:\n"
        '<tool_call>\n{"name": "function-name", "arguments": {"argument": "value"}}\n</tool_call>'
    )
    if flat and flat[0].get("role") == "system":
        first = {**flat[0], "content": f"{flat[0]['content']}\n\n{instructions}"}
        return [first, *flat[1:]]
    return [{"role": "system", "content": instructions}, *flat]


def _flatten_message(message: dict[str, Any]) -> dict[str, Any]:
    if message.get("role") == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    if not message.get("tool_calls"):
        return message
    calls = "\n".join(
        "<tool_call>\n"
        + _to_json({"name": call["function"].get("name"), "arguments": call["function"].get("arguments")})
        + "\n</tool_call>"
        for call in message["tool_calls"]
    )
    text = message["content"]
    return {"role": "assistant", "content": f"{text}\n{calls}" if text else calls}
