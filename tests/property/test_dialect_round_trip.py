"""What the renderer writes from a declaration, the parser reads back, for every dialect and at any cut."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_parser.dialect import Dialect, LaxArguments, Messages, PythonCalls, TaggedArguments
from stream_parser.dialects import DETECTION_ORDER
from stream_parser.grammar import compile_dialect
from stream_parser.patterns import plain
from stream_parser.renderer import WrittenCall, render
from stream_parser.tag_plan import plan_tags
from tests.testkit.parser_streams import comparable, parse_message, random_pieces, tool

ANY: dict[str, object] = {}
TOOLS = [
    tool(
        "write_note",
        title={"type": "string"},
        body={"type": "string"},
        count={"type": "integer"},
        ratio={"type": "number"},
        urgent={"type": "boolean"},
        owner={"anyOf": [{"type": "string"}, {"type": "null"}]},
        tags={"type": "array", "items": {"type": "string"}},
        meta={
            "type": "object",
            "properties": {"depth": {"type": "integer"}, "label": {"type": "string"}, "on": {"type": "boolean"}},
        },
    ),
    tool("ping"),
    tool("files.read-all", path={"type": "string"}),
]
CALLING = [d for d in DETECTION_ORDER if d.calls or d.messages]

MARKERS = sorted(
    {
        plain(marker)
        for dialect in DETECTION_ORDER
        for marker in (
            *(
                m
                for span in (*dialect.reasoning, *dialect.sections, *dialect.answer)
                for m in (*span.opens, *span.closes)
            ),
            *(m for call in dialect.calls for m in (*call.opens, *call.closes, *call.tails)),
        )
    }
)
words = st.sampled_from(
    [
        "tide",
        "a < b",
        '"quoted"',
        "it's",
        "{x}",
        "[1, 2]",
        "\\",
        "\\n",
        "C:\\dir",
        "é",
        "🙂",
        "東京",
        "&&",
        ";",
        "}",
        "]",
        "`",
        "```",
        "<p>",
        "</p>",
        "0x1f",
        "null",
        "true",
        "'",
        "\t",
        "key: value",
        "a=1, b=2",
        "f(x)",
    ]
)
texts = st.lists(words | st.sampled_from(MARKERS) | st.text(max_size=6), max_size=6).map(" ".join)
line_texts = st.lists(texts, max_size=3).map("\n".join)


def tidy(text: str) -> str:
    return text.encode("utf-8", "ignore").decode()


values = st.fixed_dictionaries(
    {},
    optional={
        "title": texts.map(tidy),
        "body": line_texts.map(tidy),
        "count": st.integers(-(10**18), 10**18),
        "ratio": st.floats(allow_nan=False, allow_infinity=False, width=32),
        "urgent": st.booleans(),
        "owner": st.sampled_from(["ann", "bob and co", "x y"]),
        "tags": st.lists(st.sampled_from(["a", "b c", 'say "hi"', "it's", "é"]), max_size=3),
        "meta": st.fixed_dictionaries(
            {"depth": st.integers(0, 99)},
            optional={"label": st.sampled_from(["up", "a:b", "x, y"]), "on": st.booleans()},
        ),
    },
)
calls = st.lists(
    st.one_of(
        values.map(lambda arguments: WrittenCall("write_note", arguments)),
        st.just(WrittenCall("ping", {})),
        texts.map(lambda path: WrittenCall("files.read-all", {"path": tidy(path)})),
    ),
    max_size=3,
)
prose = st.lists(
    st.sampled_from(
        [
            "Look",
            "at this:",
            "a < b",
            "x[0]",
            "{y}",
            "it's",
            "fine.",
            "🙂",
            "`code`",
            "5 > 4",
            "f(x)",
            "\n",
            "A: B",
            '"q"',
        ]
    )
    | st.sampled_from(MARKERS),
    min_size=1,
    max_size=6,
).map(" ".join)


def is_expressible(dialect: Dialect, written: WrittenCall) -> bool:
    """The dialect has no escapes where values are bare text: some texts cannot be told from markup."""
    call = dialect.calls[0] if dialect.calls else None
    body = dialect.messages.body if dialect.messages and dialect.messages.body else call.body if call else None
    strings = [value for value in written.arguments.values() if isinstance(value, str)]
    if isinstance(body, LaxArguments):
        return not any(body.delimiter in text for text in strings)
    if body.__class__.__name__ == "ElementTree":
        return not any(body.prefix in text or body.prefix[:1] in text for text in strings)  # type: ignore[union-attr]
    if isinstance(body, TaggedArguments):
        return all(_ends_where_it_ends(dialect, body, text) for text in strings)
    return True


def _ends_where_it_ends(dialect: Dialect, body: TaggedArguments, text: str) -> bool:
    grammar = compile_dialect(dialect)
    compiled = grammar.message_call or next(e.call for e in grammar.content_edge.entries if e.call)
    if dialect.calls_in == ("calls",):
        compiled = next(e.call for e in grammar.content.entries if e.call)
    assert compiled is not None
    plan = plan_tags(body, compiled)
    edge = "\n" if body.trim == "newline" else ""
    if body.trim == "strip" and text != text.strip():
        return False
    if body.cdata and text.lstrip().startswith("<!"):
        return False
    closer = plain(body.closes[0])
    ends = dialect.messages.ends if dialect.messages else ()
    after = plain((*compiled.call.tails, *compiled.call.closes, *ends)[0])
    found = plan.end.search(text + edge + closer + after)
    return found is not None and found.start() == len(text)


def says_nothing_structural(dialect: Dialect, text: str, in_reasoning: bool) -> bool:
    """Prose that quotes this dialect's own special tokens or closers is not prose to it."""
    spans = (*dialect.reasoning, *dialect.answer)
    own = {*dialect.special, *dialect.drop}
    own |= {m for s in spans for m in (*s.closes, *s.bare_opens)}
    own |= {m for s in spans if s.ends_reasoning for m in s.opens}
    if dialect.messages:
        own |= {*dialect.messages.ends, *dialect.messages.starts}
    if dialect.calls and dialect.calls[0].body.__class__ is PythonCalls:
        own |= {"["}
    return not any(plain(marker) in text for marker in own) and not text.lstrip().startswith(tuple(EDGE_MARKERS))


EDGE_MARKERS = (
    [plain(m) for d in DETECTION_ORDER for s in (*d.reasoning, *d.answer) for m in (*s.opens, *s.closes)]
    + [plain(m) for d in DETECTION_ORDER for m in (*(c for s in d.sections for c in s.closes), *d.noise)]
    + [plain(m) for d in DETECTION_ORDER for c in d.calls for m in (*c.tails, *c.closes)]
    + ["{", "[", "```"]
)


def takes_content_before_calls(dialect: Dialect) -> bool:
    first = dialect.calls[0] if dialect.calls else None
    return dialect.messages is not None or bool(first and (first.opens or first.heads) and first.anchor == "anywhere")


def has_reasoning(dialect: Dialect) -> bool:
    if isinstance(dialect.messages, Messages):
        return any(route.to == "reasoning" for route in dialect.messages.routes)
    return bool(dialect.reasoning)


@pytest.mark.parametrize("dialect", CALLING, ids=lambda d: d.name)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_rendered_answers_are_read_back_at_any_cut(dialect: Dialect, data: st.DataObject) -> None:
    wanted = data.draw(calls.filter(lambda cs: all(is_expressible(dialect, c) for c in cs)))
    reasoning = content = ""
    if has_reasoning(dialect) and data.draw(st.booleans()):
        reasoning = data.draw(prose.filter(lambda t: says_nothing_structural(dialect, t, True))).strip()
    if (not wanted or takes_content_before_calls(dialect)) and data.draw(st.booleans()):
        content = data.draw(prose.filter(lambda t: says_nothing_structural(dialect, t, False))).strip()
    text = render(dialect, reasoning, content, wanted)
    seed = data.draw(st.integers(0, 10**6))

    opened = dialect.messages.starts[0] if dialect.messages else ""

    whole = parse_message(dialect, text, TOOLS, prompt_tail=opened)
    assert whole.reasoning == reasoning
    assert whole.content.strip() == content
    assert [call.name for call in whole.tool_calls] == [call.name for call in wanted]
    for call, written in zip(whole.tool_calls, wanted, strict=True):
        assert call.outcome == "ok", (call, text)
        assert json.loads(call.arguments) == dict(written.arguments)

    for pieces in (list(text), random_pieces(text, random.Random(seed))):
        assert comparable(parse_message(dialect, pieces, TOOLS, prompt_tail=opened)) == comparable(whole)
