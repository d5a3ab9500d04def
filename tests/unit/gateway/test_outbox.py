import asyncio

import pytest

from gateway.errors import EngineDown
from gateway.outbox import Outbox
from gateway.types import TokenLogprob, TurnDone, TurnEvent, TurnFailed, TurnStarted, TurnText, Usage
from stream_parser.events import ContentDelta, Finish, ReasoningDelta, ToolCallDelta, ToolCallStart

DONE = TurnDone(Usage(1, 1))


def content(text: str, choice: int = 0) -> TurnEvent:
    return TurnEvent(choice, ContentDelta(text))


def outbox(max_pending_chars: int = 10_000) -> Outbox:
    return Outbox(max_pending_chars, lambda: None)


def test_a_reader_that_keeps_up_gets_each_item_by_itself():
    box = outbox()
    items = [TurnStarted(), content("a"), content("b"), DONE]
    for item in items:
        box.put(item)
        assert box.take() == [item]
    assert box.is_closed


def test_the_reader_is_told_once_per_batch():
    calls: list[int] = []
    box = Outbox(100, lambda: calls.append(1))
    box.put(content("a"))
    box.put(content("b"))
    assert len(calls) == 1
    box.take()
    box.put(content("c"))
    assert len(calls) == 2


def test_deltas_that_wait_long_merge_and_no_text_is_lost_or_moved():
    box = outbox()
    items = [TurnEvent(0, ReasoningDelta("r")) for _ in range(90)]
    items += [content(str(i % 10), choice=i // 20 % 2) for i in range(80)]
    items += [TurnEvent(0, ToolCallStart(0, "c0", "f")), *(TurnEvent(0, ToolCallDelta(0, "x")) for _ in range(30))]
    items += [TurnEvent(0, ToolCallStart(1, "c1", "f")), *(TurnEvent(0, ToolCallDelta(1, "y")) for _ in range(30))]
    items += [TurnEvent(0, Finish("stop")), DONE]
    for item in items:
        box.put(item)
    taken = box.take()
    assert len(taken) < 80
    assert merged(taken) == merged(items)
    assert taken[-2:] == items[-2:]


def merged(items: list) -> list:
    """Items with adjacent deltas of one kind joined: what a client sees however they were cut."""
    result: list = []
    for item in items:
        if isinstance(item, TurnEvent) and isinstance(item.event, (ContentDelta, ReasoningDelta, ToolCallDelta)):
            event = item.event
            is_call = isinstance(event, ToolCallDelta)
            key = (item.choice, type(event), event.index if is_call else None)
            text = event.arguments if is_call else event.text
            if result and result[-1][0] == key:
                result[-1] = (key, result[-1][1] + text)
            else:
                result.append((key, text))
        else:
            result.append((None, item))
    return result


def test_unparsed_text_merges_too_but_never_past_a_finish():
    box = outbox()
    for _ in range(100):
        box.put(TurnText(0, "a"))
    box.put(TurnText(0, "z", "stop"))
    taken = box.take()
    assert "".join(item.text for item in taken) == "a" * 100 + "z"
    assert taken[-1] == TurnText(0, "z", "stop")
    assert all(item.finish_reason is None for item in taken[:-1])
    assert len(taken) < 70


def test_merged_deltas_keep_every_logprob():
    box = outbox()
    entries = [TokenLogprob(str(i), -1.0) for i in range(100)]
    for entry in entries:
        box.put(TurnEvent(0, ContentDelta("a"), (entry,)))
    assert [entry for item in box.take() for entry in item.logprobs] == entries


def test_merging_a_long_text_is_linear():
    box = outbox(10**9)
    for _ in range(200_000):
        box.put(content("abcde"))
    assert sum(len(item.event.text) for item in box.take()) == 1_000_000


async def test_a_full_outbox_holds_the_turn_up_until_its_reader_takes():
    box = outbox(max_pending_chars=1000)
    box.put(content("x" * 2000))
    assert box.is_full
    waiting = asyncio.create_task(box.wait_for_room(5))
    await asyncio.sleep(0)
    assert not waiting.done()
    box.take()
    await waiting
    assert not box.is_full


async def test_waiting_for_room_ends_after_its_timeout():
    box = outbox(max_pending_chars=10)
    box.put(content("x" * 11))
    with pytest.raises(TimeoutError):
        await box.wait_for_room(0.01)


def test_items_without_text_fill_the_outbox_as_well():
    box = outbox(max_pending_chars=1000)
    for i in range(100):
        box.put(TurnEvent(i % 2, ToolCallStart(i, "c", "f")))
    assert box.is_full


@pytest.mark.parametrize("last", [DONE, TurnFailed(EngineDown("gone"))])
def test_nothing_comes_after_the_last_item(last):
    box = outbox()
    box.put(last)
    with pytest.raises(AssertionError):
        box.put(content("late"))
