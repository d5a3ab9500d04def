"""Reasoning that clients send back: whatever its name, it stands where the chat template has a place for it."""

import time

import httpx
import pytest

from gateway.app import GatewayApp
from gateway.past_reasoning import PastReasoning
from inference.chat_template import ChatTemplate
from inference.errors import InvalidTurn
from tests.testkit.gateway_kit import ByteTokenizer, FakeEngine, chat_body, gateway_config, model_backend, token_chunks

CALLS = "{% for call in m.tool_calls or [] %}<call>{{ call.function.name }}</call>{% endfor %}"
TOOLS = "{% if tools %}[{{ tools | length }} tools]{% endif %}"


def template(answer: str) -> str:
    """`answer` writes an assistant's message `m`."""
    return (
        f"{TOOLS}{{% for m in messages %}}[{{{{ m.role }}}}]{{% if m.role == 'assistant' %}}{answer}{CALLS}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}[assistant]"
    )


def named(name: str) -> str:
    return template(f"{{% if m.{name} %}}<think>{{{{ m.{name} }}}}</think>{{% endif %}}{{{{ m.content }}}}")


PARTS = template(
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'thinking' %}<think>{{ part.thinking }}</think>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}"
)
# Shows thoughts before a call only, and refuses them beside text.
EITHER = template(
    "{% if m.tool_calls %}{% if m.content and m.thinking %}{{ raise_exception('only one of both') }}{% endif %}"
    "{% if m.thinking %}<think>{{ m.thinking }}</think>{% endif %}{% endif %}{{ m.content }}"
)
READERS = [named("reasoning_content"), named("reasoning"), named("thinking"), PARTS]
NO_PLACE = [template("{{ m.content }}"), template("{{ m.content | tojson }}"), template("{{ m.content | string }}")]
CALL = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def render(source: str, *messages: dict) -> str:
    compiled = ChatTemplate(source, {})

    def render_chat(messages, tools=None, **variables):
        return compiled.render(messages, tools, add_generation_prompt=True, **variables)

    return PastReasoning(render_chat).render([{"role": "user", "content": "Q"}, *messages], [TOOL])


@pytest.mark.parametrize("source", READERS)
@pytest.mark.parametrize("calls", [{}, {"tool_calls": [CALL]}], ids=["answer", "call"])
@pytest.mark.parametrize(
    "said",
    [
        {"reasoning_content": "Hm.", "content": "Yes."},
        {"content": "<think>Hm.</think>Yes."},
        {"content": "\n<think>\nHm.\n</think>\n\nYes."},
    ],
    ids=["field", "inline", "inline with breaks"],
)
def test_thoughts_stand_where_the_template_has_a_place_for_them(source, calls, said):
    shown = render(source, {"role": "assistant", **said, **calls})
    assert "[assistant]<think>Hm.</think>Yes." in shown
    assert shown.count("Hm.") == shown.count("Yes.") == 1


@pytest.mark.parametrize("source", READERS)
def test_thoughts_without_an_answer_leave_no_empty_text(source):
    shown = render(source, {"role": "assistant", "reasoning_content": "Hm.", "content": "", "tool_calls": [CALL]})
    assert "[assistant]<think>Hm.</think><call>look</call>" in shown


@pytest.mark.parametrize("source", NO_PLACE)
def test_a_template_without_a_place_for_thoughts_gets_the_messages_as_they_are(source):
    assert "Hm." not in render(source, {"role": "assistant", "reasoning_content": "Hm.", "content": "Yes."})
    assert "<think>Hm.</think>Yes." in render(source, {"role": "assistant", "content": "<think>Hm.</think>Yes."})


@pytest.mark.parametrize("content", ["a <think>b</think>", "<think>cut", "<think></think>Yes.", "</think>Yes."])
@pytest.mark.parametrize("source", READERS)
def test_what_is_no_block_of_thoughts_before_an_answer_stays_text(source, content):
    assert f"[assistant]{content}" in render(source, {"role": "assistant", "content": content})
    assert "[user]<think>a</think>b" in render(source, {"role": "user", "content": "<think>a</think>b"})


@pytest.mark.parametrize("content", ["<think>" + "\n" * 500_000, " " * 500_000, "<think>" * 90_000 + "</think>"])
def test_much_of_what_might_be_thoughts_costs_no_more_than_other_text(content):
    started_s = time.process_time()
    render(READERS[0], {"role": "assistant", "content": content})
    assert time.process_time() - started_s < 1


def test_a_template_that_refuses_thoughts_beside_text_gets_the_text():
    said = {"role": "assistant", "reasoning_content": "Hm.", "tool_calls": [CALL]}
    assert "<think>Hm.</think><call>" in render(EITHER, {**said, "content": ""})
    assert "[assistant]Yes.<call>" in render(EITHER, {**said, "content": "Yes."})


def test_a_template_that_refuses_the_messages_anyway_says_why():
    with pytest.raises(InvalidTurn, match="never"):
        render("{{ raise_exception('never') }}", {"role": "assistant", "reasoning_content": "Hm.", "content": "Yes."})


class TemplateTokenizer(ByteTokenizer):
    def __init__(self, source: str) -> None:
        super().__init__()
        self._template = ChatTemplate(source, {})

    def render_chat(self, messages, tools=None, *, add_generation_prompt=True, **variables):
        return self._template.render(messages, tools, add_generation_prompt=add_generation_prompt, **variables)


TEXT = {"type": "text", "text": "Yes."}
CHAT = [
    {"reasoning_content": "Hm.", "content": "Yes."},
    {"reasoning": "Hm.", "content": "Yes."},
    {"reasoning_text": "Hm.", "content": "Yes."},
    {"reasoning_content": "Hm.", "reasoning": "Hm.", "content": "Yes."},
    {"reasoning_details": [{"type": "reasoning.text", "text": "Hm."}], "content": "Yes."},
    {"reasoning_details": [{"type": "reasoning.summary", "summary": "Hm."}], "content": "Yes."},
    {"content": "<think>Hm.</think>Yes."},
    {"content": [{"type": "thinking", "thinking": [TEXT | {"text": "Hm."}]}, TEXT]},
    {"content": [{"type": "reasoning", "text": "Hm."}, TEXT]},
]
MESSAGES = [
    [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, {"type": "text", "text": "Yes."}],
    "<think>Hm.</think>Yes.",
]
ANSWER = {"role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
RESPONSES = [
    [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}, ANSWER],
    [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}, ANSWER],
    [{"role": "assistant", "content": "<think>Hm.</think>Yes."}],
]
Q, MORE = {"role": "user", "content": "Q"}, {"role": "user", "content": "More?"}
BODIES = [
    *(("/v1/chat/completions", {"messages": [Q, {"role": "assistant", **said}, MORE]}) for said in CHAT),
    *(
        ("/v1/messages", {"max_tokens": 9, "messages": [Q, {"role": "assistant", "content": said}, MORE]})
        for said in MESSAGES
    ),
    *(("/v1/responses", {"input": [Q, *said, MORE]}) for said in RESPONSES),
]


@pytest.mark.parametrize("source", READERS, ids=["reasoning_content", "reasoning", "thinking", "parts"])
async def test_every_protocols_spelling_of_past_thoughts_gives_the_same_prompt(source):
    engine = FakeEngine(lambda request: token_chunks(request, "ok"))
    app = GatewayApp(model_backend(engine, TemplateTokenizer(source)), gateway_config())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://gateway") as http:
        for path, body in BODIES:
            response = await http.post(path, json=body)
            assert response.status_code == 200, (path, response.text)
    prompts = [bytes(request.prompt_token_ids).decode() for request in engine.requests]
    assert prompts == ["[user]Q[assistant]<think>Hm.</think>Yes.[user]More?[assistant]"] * len(BODIES)


async def test_reasoning_that_was_sent_out_comes_back_into_the_prompt():
    """A turn of a model that thinks, and the next one of a client that repeats what it got."""
    engine = FakeEngine(lambda request: token_chunks(request, "<think>Hm.</think>Yes."))
    backend = model_backend(engine, TemplateTokenizer(named("reasoning_content")))
    app = GatewayApp(backend, gateway_config(reasoning_field="reasoning"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://gateway") as http:
        first = (await http.post("/v1/chat/completions", json=chat_body("Q"))).json()["choices"][0]["message"]
        assert first["reasoning"] == "Hm."
        await http.post("/v1/chat/completions", json={"messages": [Q, first, MORE]})
    prompt = bytes(engine.requests[-1].prompt_token_ids).decode()
    assert prompt == "[user]Q[assistant]<think>Hm.</think>Yes.[user]More?[assistant]"
