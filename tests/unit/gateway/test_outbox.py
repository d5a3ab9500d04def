import asyncio

import pytest

from gateway.errors import EngineDown
from gateway.outbox import Outbox
from gateway.types import TokenLogprob, TurnDone, TurnEvent, TurnFailed, TurnStarted, TurnText, Usage
from stream_parser.events import ContentDelta, Finish, ReasoningDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

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


# Credit


def calls_box(credit_chars: int) -> Outbox:
    """A first call whose start and some arguments may go, and a second of which nothing is out yet."""
    box = Outbox(10_000, lambda: None, credit_chars)
    for event in (
        ToolCallStart(0, "c0", "f"),
        ToolCallDelta(0, '{"a":'),
        ToolCallDelta(0, "1}"),
        ToolCallEnd(0, '{"a":1}', "ok", ""),
        ToolCallStart(1, "c1", "g"),
        ToolCallDelta(1, "{}"),
    ):
        box.put(TurnEvent(0, event))
    return box


def events_of(items: list) -> list:
    return [item.event for item in items if isinstance(item, TurnEvent)]


def test_credit_is_spent_on_delta_text_alone_and_order_is_kept():
    box = Outbox(10_000, lambda: None, 4)
    items = [
        TurnStarted(),
        TurnEvent(0, ReasoningDelta("ab")),
        TurnEvent(0, ToolCallStart(0, "c", "f")),
        content("cdef"),
    ]
    for item in items:
        box.put(item)
    assert box.take() == [*items[:3], content("cd")]
    assert not box.is_empty
    assert box.take() == []
    box.grant(1)
    assert box.take() == [content("e")]
    box.grant(5)
    assert box.take() == [content("f")]
    assert box.is_empty


@pytest.mark.parametrize("credit", [1, 2, 3, 5, 100])
def test_any_credit_gives_the_same_text_in_the_end(credit):
    box = Outbox(10_000, lambda: None, 0)
    items = [content(text) for text in ("one", "", "two", "日本🙂", "three")]
    items += [TurnEvent(0, ToolCallStart(0, "c", "f")), TurnEvent(0, ToolCallDelta(0, '{"a": "b"}')), DONE]
    for item in items:
        box.put(item)
    taken = box.take()
    while not box.is_empty:
        box.grant(credit)
        part = box.take()
        assert (
            sum(len(item.event.text) for item in part if isinstance(getattr(item, "event", None), ContentDelta))
            <= credit
        )
        taken += part
    assert merged(taken) == merged(items)


def test_the_reader_is_told_when_credit_lets_something_go():
    calls: list[int] = []
    box = Outbox(100, lambda: calls.append(1), 0)
    box.grant(1)
    assert calls == []
    box.put(content("ab"))
    box.take()
    box.put(content("cd"))
    assert len(calls) == 1
    box.grant(1)
    assert len(calls) == 2


def test_a_failure_overtakes_what_waits_for_credit():
    box = Outbox(10_000, lambda: None, 1)
    box.put(content("abc"))
    failed = TurnFailed(EngineDown("gone"))
    box.put(failed)
    assert box.take() == [content("a"), failed]
    assert box.is_closed


def test_a_turn_whose_end_was_never_taken_can_still_be_failed():
    box = Outbox(10_000, lambda: None, 1)
    box.put(content("abc"))
    box.put(DONE)
    assert box.take() == [content("a")]
    error = EngineDown("gone")
    box.fail_unread(error)
    assert box.take() == [TurnFailed(error)]


@pytest.mark.parametrize("num_out", [0, 3, 7])
def test_cutting_short_closes_the_call_that_is_out_and_forgets_the_other(num_out):
    box = calls_box(num_out)
    taken = box.take()
    box.cut_short()
    box.put(TurnEvent(0, ToolCallDelta(1, "x")))
    box.put(TurnEvent(0, ToolCallEnd(1, "{}x", "truncated", "cancelled")))
    box.put(TurnEvent(0, Finish("cancelled")))
    box.put(DONE)
    taken += box.take()
    events = events_of(taken)
    written = "".join(event.arguments for event in events if isinstance(event, ToolCallDelta) and event.index == 0)
    (end,) = [event for event in events if isinstance(event, ToolCallEnd) and event.index == 0]
    assert written == end.arguments == '{"a":1}'[:num_out]
    assert end.outcome == ("ok" if num_out == 7 else "truncated")
    assert {event.index for event in events if isinstance(event, ToolCallEnd)} <= {
        event.index for event in events if isinstance(event, ToolCallStart)
    }
    assert taken[-2:] == [TurnEvent(0, Finish("cancelled")), DONE]


def test_cutting_short_after_the_end_makes_it_a_cancelled_one():
    box = Outbox(10_000, lambda: None, 0)
    for item in (content("abc"), TurnEvent(0, Finish("stop")), DONE):
        box.put(item)
    box.cut_short()
    box.cut_short()
    assert box.take() == [TurnEvent(0, Finish("cancelled")), DONE]


def test_an_outbox_without_credit_is_neither_cut_nor_granted():
    box = outbox()
    box.put(content("abc"))
    box.cut_short()
    box.grant(5)
    assert box.take() == [content("abc")]


async def test_a_starved_outbox_that_is_full_stays_so_until_enough_is_taken():
    box = Outbox(1000, lambda: None, 0)
    box.put(content("x" * 3000))
    assert box.take() == []
    assert box.is_full
    box.grant(500)
    box.take()
    with pytest.raises(TimeoutError):
        await box.wait_for_room(0.01)
    box.grant(2000)
    box.take()
    await box.wait_for_room(1)


def test_many_small_grants_of_a_long_text_are_linear():
    box = Outbox(10**9, lambda: None, 0)
    box.put(content("x" * 300_000))
    num_chars = 0
    for _ in range(300_000):
        box.grant(1)
        num_chars += sum(len(item.event.text) for item in box.take())
    assert num_chars == 300_000


async def test_time_does_not_run_while_the_reader_is_away_and_begins_anew_with_it():
    box = outbox(max_pending_chars=10)
    box.put(content("x" * 20))
    waiting = asyncio.create_task(box.wait_for_room(0.02))
    await asyncio.sleep(0)
    box.reader_left()
    await asyncio.sleep(0.05)
    assert not waiting.done()
    came_s = asyncio.get_running_loop().time()
    box.reader_came()
    with pytest.raises(TimeoutError):
        await waiting
    assert asyncio.get_running_loop().time() - came_s > 0.015


async def test_a_writer_that_finds_no_reader_waits_for_one():
    box = outbox(max_pending_chars=10)
    box.reader_left()
    box.put(content("x" * 20))
    waiting = asyncio.create_task(box.wait_for_room(0.01))
    await asyncio.sleep(0.03)
    assert not waiting.done()
    box.reader_came()
    box.take()
    await waiting
