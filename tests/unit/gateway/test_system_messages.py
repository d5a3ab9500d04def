"""System messages amid a conversation, and chat templates that refuse them or leave them out."""

from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.protocols.anthropic_decode import decode_messages_request
from gateway.system_messages import SystemMessages, lowered
from inference.chat_template import ChatTemplate
from tests.testkit.gateway_kit import ByteTokenizer, FakeEngine, model_backend

PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
STRICT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
)
FORGETFUL = (
    "{% for m in messages %}{% if m.role != 'system' or loop.first %}"
    "[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
)
ONLY_WITHOUT_TOOLS = (
    "{% for m in messages if not (tools and m.role == 'system') %}[{{ m.role }}]{{ m.content }}{% endfor %}"
)
FUSSY = "{{ raise_exception('I do not like this.') }}"
MESSAGES = [
    {"role": "user", "content": "Hi"},
    {"role": "system", "content": "The date changed."},
    {"role": "assistant", "content": "Hello."},
    {"role": "system", "content": "Again."},
    {"role": "user", "content": "Bye"},
]


class TemplatedTokenizer(ByteTokenizer):
    def __init__(self, source: str) -> None:
        super().__init__()
        self._template = ChatTemplate(source, {})

    def render_chat(self, messages: Any, tools: Any = None, **variables: Any) -> str:
        return self._template.render(messages, tools, **{"add_generation_prompt": True, **variables})


async def prompt_of(template: str, messages: list[dict[str, Any]], **fields: Any) -> str:
    turn = decode_messages_request({"max_tokens": 1, "messages": messages, **fields})
    [prepared] = await model_backend(FakeEngine(), TemplatedTokenizer(template)).prepare(turn, "t")
    return prepared.prompt_text


async def test_they_stay_in_place_where_the_template_takes_them():
    wanted = "[system]Work.[user]Hi[system]The date changed.[assistant]Hello.[system]Again.[user]Bye"
    assert await prompt_of(PLAIN, MESSAGES, system="Work.") == wanted


@pytest.mark.parametrize("template", [STRICT, FORGETFUL])
async def test_they_become_the_users_words_in_place_where_it_refuses_or_forgets_them(template):
    wanted = "[system]Work.[user]Hi\nThe date changed.[assistant]Hello.[user]Again.\nBye"
    assert await prompt_of(template, MESSAGES, system="Work.") == wanted


async def test_a_template_without_system_messages_gets_all_of_them_as_the_users_words():
    wanted = "[user]Work.\nHi\nThe date changed.[assistant]Hello.[user]Again.\nBye"
    assert await prompt_of(NO_SYSTEM, MESSAGES, system="Work.") == wanted
    assert await prompt_of(NO_SYSTEM, MESSAGES[:1], system="Work.") == "[user]Work.\nHi"


async def test_what_a_template_does_with_tools_is_found_out_apart():
    assert "[system]Again." in await prompt_of(ONLY_WITHOUT_TOOLS, MESSAGES)
    with_tools = await prompt_of(ONLY_WITHOUT_TOOLS, MESSAGES, tools=[{"name": "f", "input_schema": {}}])
    assert "[user]Again.\nBye" in with_tools


@pytest.mark.parametrize("template", [PLAIN, STRICT, FORGETFUL, NO_SYSTEM])
async def test_the_next_turns_prompt_begins_with_this_turns(template):
    first = await prompt_of(template, MESSAGES[:2])
    assert (await prompt_of(template, MESSAGES)).startswith(first)


async def test_a_template_that_refuses_for_another_reason_is_heard():
    for messages in (MESSAGES, MESSAGES[:1]):
        with pytest.raises(InvalidRequest, match="I do not like this"):
            await prompt_of(FUSSY, messages)


def test_a_template_is_tried_out_once():
    rendered = []

    def render(messages, tools, **_):
        rendered.append(messages)
        return "".join(message["content"] for message in messages)

    systems = SystemMessages(render)
    for _ in range(3):
        assert systems.render(MESSAGES, None, {}) == "HiThe date changed.Hello.Again.Bye"
    assert len(rendered) == 4
    systems.render(MESSAGES[:1], None, {})
    assert len(rendered) == 5


def test_the_given_messages_are_left_as_they_are():
    before = [dict(message) for message in MESSAGES]
    assert lowered(MESSAGES, keeps_first=True) != MESSAGES
    assert before == MESSAGES
