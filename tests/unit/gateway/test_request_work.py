"""What a request costs grows with its size, not with its square: one within the body limit would hold up all others.

Work is counted in lines of Python that run, so that no clock and no load matter. What a line copies does not show in
that: there the size is one at which copying again and again takes many seconds of the processor.
"""

import sys
import time
from functools import partial

import pytest

from gateway.app import GatewayApp
from gateway.model_backend import template_messages
from gateway.protocols.anthropic_decode import decode_count_tokens, decode_messages_request
from gateway.protocols.completions import decode_completion
from gateway.protocols.json_body import check_depth
from gateway.protocols.native import TurnCreate, decode_turn
from gateway.protocols.openai_chat import decode_chat
from gateway.protocols.responses_compact import compacted
from gateway.protocols.responses_request import decode_request
from gateway.protocols.tokenizing import decode_tokenize
from gateway.responses_store import Context
from gateway.responses_turns import open_response
from gateway.system_messages import lowered
from tests.testkit.gateway_kit import gateway_config, scripted, weather_tool

SMALL, LARGE = 100, 400


def num_lines(run):
    counted = 0

    def count(frame, kind, _argument):
        nonlocal counted
        counted += kind == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        run()
    finally:
        sys.settrace(before)
    return counted


def use(i):
    return {"type": "tool_use", "id": f"call_{i}", "name": "weather", "input": {}}


def result(i):
    return {"type": "tool_result", "tool_use_id": f"call_{i}", "content": [{"type": "text", "text": "rain"}]}


def chat_call(i):
    return {"id": f"c{i}", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def users(n):
    return [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}] * n


def systems(n):
    return [{"role": "user", "content": "a"}, *[{"role": "system", "content": "b"}] * n]


def uses(n):
    return [{"role": "user", "content": "a"}, *({"role": "assistant", "content": [use(i)]} for i in range(n))]


def rounds(n):
    pairs = [({"role": "assistant", "content": [use(i)]}, {"role": "user", "content": [result(i)]}) for i in range(n)]
    return [{"role": "user", "content": "a"}, *(message for pair in pairs for message in pair)]


def chat(n):
    calls = {"role": "assistant", "content": None, "tool_calls": [chat_call(i) for i in range(n)]}
    results = [{"role": "tool", "tool_call_id": f"c{i}", "content": "rain"} for i in range(n)]
    return {"messages": [*users(n), calls, *results], "tools": [weather_tool(f"t{i}") for i in range(n)]}


def anthropic_tools(n):
    return {"tools": [{"name": f"t{i}", "input_schema": {}, "defer_loading": True} for i in range(n)]}


def openai_items(n):
    kinds = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"role": "assistant", "content": "text"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "output_text", "text": "rain"}]},
    ]
    return kinds * n


def responses(n, **fields):
    tools = [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": f"t{i}"} for i in range(n)]}]
    return {"input": openai_items(n), "tools": tools, **fields}


def open_on_a_chain(n, items):
    """A conversation of n responses looks up n of its items, the oldest of which takes the longest to find."""
    app = GatewayApp(scripted("ok"), gateway_config())
    context = None
    for i in range(n):
        context = Context(context, [{"type": "message", "role": "user", "id": f"m{i}", "content": "a"}])
    body = {"input": [*items(n), {"role": "user", "content": "go on"}], "previous_response_id": "resp_0"}
    return partial(open_response, app._service, "", decode_request(body), lambda _: context)


def references(n):
    return [{"type": "item_reference", "id": "m0"}] * n


def empty_reasoning(n):
    return [{"type": "reasoning", "id": "rs_unknown"}] * n


PATHS = {
    "chat": lambda n: partial(decode_chat, chat(n)),
    "chat template": lambda n: partial(template_messages, decode_chat(chat(n)).messages),
    "system messages": lambda n: partial(
        lowered, template_messages(decode_chat({"messages": systems(n)}).messages), keeps_first=False
    ),
    "native": lambda n: partial(decode_turn, TurnCreate("a", None, {"session": "s", **chat(n)})),
    "tokenize": lambda n: partial(decode_tokenize, chat(n)),
    "completions": lambda n: partial(decode_completion, {"prompt": [[1, 2]] * (n // 4)}),
    "depth": lambda n: partial(check_depth, {"a": [[{"b": [i]}] for i in range(n)]}),
    "messages of the user": lambda n: partial(decode_messages_request, {"max_tokens": 1, "messages": users(n)}),
    "messages with calls": lambda n: partial(decode_messages_request, {"max_tokens": 1, "messages": uses(n)}),
    "messages with results": lambda n: partial(decode_count_tokens, {"messages": rounds(n), **anthropic_tools(n)}),
    "messages with billing": lambda n: partial(
        decode_count_tokens, {"messages": users(1), "system": "x-anthropic-billing-header: a\n" * n}
    ),
    "responses": lambda n: partial(decode_request, responses(n, metadata={})),
    "compaction": lambda n: partial(compacted, openai_items(n)),
    "open response": lambda n: open_on_a_chain(n, openai_items),
    "references": lambda n: open_on_a_chain(n, references),
    "reasoning without text": lambda n: open_on_a_chain(n, empty_reasoning),
}


@pytest.mark.parametrize("path", PATHS)
def test_four_times_the_request_is_four_times_the_work(path):
    small, large = (num_lines(PATHS[path](n)) for n in (SMALL, LARGE))
    assert small > 0
    assert large < 4.5 * small


WORDS = "x" * 100
COPYING = {
    "neighbours of the user": lambda: decode_count_tokens({"messages": [{"role": "user", "content": WORDS}] * 20_000}),
    "neighbours with calls": lambda: decode_count_tokens({"messages": uses(40_000)}),
    "billing": lambda: decode_count_tokens(
        {"messages": users(1), "system": "x-anthropic-billing-header:\n" * 120_000 + WORDS}
    ),
    "system messages": lambda: lowered([{"role": "system", "content": WORDS}] * 50_000, keeps_first=False),
}


@pytest.mark.parametrize("path", COPYING)
def test_texts_that_are_joined_are_copied_once(path):
    begin_s = time.thread_time()
    COPYING[path]()
    # Takes a twentieth of that; copying what there is so far for each piece takes several seconds.
    assert time.thread_time() - begin_s < 2.0
