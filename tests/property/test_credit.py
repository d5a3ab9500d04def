"""Whatever a reader grants and whenever it takes: it gets no more than its credit, in order, and all of it at last."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import EngineDown
from gateway.outbox import Outbox
from gateway.types import TurnDone, TurnEvent, TurnFailed, TurnItem, TurnStarted, Usage
from stream_parser.events import (
    ContentDelta,
    Finish,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)

DONE = TurnDone(Usage(1, 1))
TEXTS = st.text(max_size=12)


@st.composite
def turns(draw: st.DrawFn) -> list[TurnItem]:
    """The items of a turn by the parser's rules: text, reasoning, and calls that may be open side by side."""
    items: list[TurnItem] = [TurnStarted()]
    open_calls: dict[int, str] = {}
    num_calls = 0
    for kind in draw(st.lists(st.sampled_from(["content", "reasoning", "start", "delta", "end"]), max_size=30)):
        if kind == "content":
            items.append(TurnEvent(0, ContentDelta(draw(TEXTS))))
        elif kind == "reasoning":
            items.append(TurnEvent(0, ReasoningDelta(draw(TEXTS))))
        elif kind == "start":
            items.append(TurnEvent(0, ToolCallStart(num_calls, f"c{num_calls}", "f")))
            open_calls[num_calls] = ""
            num_calls += 1
        elif open_calls:
            index = draw(st.sampled_from(sorted(open_calls)))
            if kind == "delta":
                text = draw(TEXTS)
                open_calls[index] += text
                items.append(TurnEvent(0, ToolCallDelta(index, text)))
            else:
                items.append(TurnEvent(0, ToolCallEnd(index, open_calls.pop(index), "ok", "")))
    for index, arguments in open_calls.items():
        items.append(TurnEvent(0, ToolCallEnd(index, arguments, "truncated", "length")))
    return [*items, TurnEvent(0, Finish("length")), DONE]


def delta_text(item: TurnItem) -> str:
    event = item.event if isinstance(item, TurnEvent) else None
    if isinstance(event, (ContentDelta, ReasoningDelta)):
        return event.text
    return event.arguments if isinstance(event, ToolCallDelta) else ""


def merged(items: list[TurnItem]) -> list[object]:
    """Deltas of one kind that follow each other joined, empty ones left out."""
    result: list[object] = []
    last: tuple[object, ...] | None = None
    for item in items:
        event = item.event if isinstance(item, TurnEvent) else None
        if isinstance(event, (ContentDelta, ReasoningDelta, ToolCallDelta)):
            key = (type(event), event.index if isinstance(event, ToolCallDelta) else None)
            text = delta_text(item)
            if not text:
                continue
            if last is not None and last[0] == key:
                last = (key, f"{last[1]}{text}")
                result[-1] = last
            else:
                last = (key, text)
                result.append(last)
        else:
            last = None
            result.append(item)
    return result


STEPS = st.lists(st.one_of(st.just("put"), st.just("take"), st.integers(1, 15)), max_size=60)


def run(
    items: list[TurnItem], credit: int, steps: list[str | int]
) -> tuple[Outbox, list[TurnItem], int, list[TurnItem]]:
    """Follows the steps. Returns the outbox, what was taken, the credit given in all, and what is still to be put."""
    box = Outbox(10_000, lambda: None, credit)
    waiting, taken = list(items), []
    for step in steps:
        if step == "put":
            if waiting:
                box.put(waiting.pop(0))
        elif step == "take":
            taken += box.take()
            assert sum(len(delta_text(item)) for item in taken) <= credit
        else:
            credit += int(step)
            box.grant(int(step))
    return box, taken, credit, waiting


@given(turns(), st.integers(0, 20), STEPS)
@settings(max_examples=100, deadline=None)
def test_all_of_a_turn_comes_in_the_end(items, credit, steps):
    box, taken, _, waiting = run(items, credit, steps)
    for item in waiting:
        box.put(item)
    box.grant(100_000)
    taken += box.take()
    assert box.is_empty
    assert merged(taken) == merged(items)


@given(turns(), st.integers(0, 20), STEPS)
@settings(max_examples=100, deadline=None)
def test_a_turn_cut_short_ends_by_the_rules_whatever_was_out(items, credit, steps):
    box, taken, credit, waiting = run(items, credit, steps)
    was_over = DONE in taken
    box.cut_short()
    for item in waiting:
        box.put(item)
    taken += box.take()
    assert sum(len(delta_text(item)) for item in taken) <= credit
    assert taken.count(DONE) == 1
    assert taken[-1] == DONE
    events = [item.event for item in taken if isinstance(item, TurnEvent)]
    assert events[-1] == Finish("length" if was_over or Finish("length") in events else "cancelled")
    started = [event.index for event in events if isinstance(event, ToolCallStart)]
    ended = [event for event in events if isinstance(event, ToolCallEnd)]
    assert sorted(event.index for event in ended) == sorted(started)
    for end in ended:
        written = [event.arguments for event in events if isinstance(event, ToolCallDelta) and event.index == end.index]
        assert end.arguments == "".join(written)


@given(turns(), st.integers(0, 20), STEPS)
@settings(max_examples=60, deadline=None)
def test_a_failure_is_the_last_item_and_waits_for_nothing(items, credit, steps):
    box, taken, credit, _ = run(items[:-2], credit, steps)
    failed = TurnFailed(EngineDown("gone"))
    box.put(failed)
    taken += box.take()
    assert taken[-1] == failed
    assert sum(len(delta_text(item)) for item in taken) <= credit
