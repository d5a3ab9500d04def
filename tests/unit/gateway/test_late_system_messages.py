"""System messages amid a conversation, and chat templates that refuse them."""

from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.model_backend import without_late_systems
from gateway.protocols.anthropic_decode import decode_messages_request
from inference.chat_template import ChatTemplate
from tests.testkit.gateway_kit import ByteTokenizer, FakeEngine, model_backend

PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
STRICT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
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


async def test_they_become_the_users_words_in_place_where_it_refuses_them():
    wanted = "[system]Work.[user]Hi\nThe date changed.[assistant]Hello.[user]Again.\nBye"
    assert await prompt_of(STRICT, MESSAGES, system="Work.") == wanted


async def test_the_next_turns_prompt_begins_with_this_turns():
    first = await prompt_of(STRICT, MESSAGES[:2])
    assert (await prompt_of(STRICT, MESSAGES)).startswith(first)


async def test_a_template_that_refuses_for_another_reason_is_heard():
    for messages in (MESSAGES, MESSAGES[:1]):
        with pytest.raises(InvalidRequest, match="I do not like this"):
            await prompt_of(FUSSY, messages)


def test_the_given_messages_are_left_as_they_are():
    before = [dict(message) for message in MESSAGES]
    assert without_late_systems(MESSAGES) != MESSAGES
    assert before == MESSAGES
