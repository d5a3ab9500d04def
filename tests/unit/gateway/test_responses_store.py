"""What is kept of responses, and for how long; the log of a background response."""

import asyncio
import json

import pytest

from gateway.errors import InvalidRequest, NotFound
from gateway.protocols.frames import Frame
from gateway.responses_background import EventLog
from gateway.responses_store import Context, Finished, ResponseStore, StoredResponse


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


class Running:
    status = "in_progress"
    num_bytes = 10

    def body(self):
        return b"{}"


def item(item_id, text="x"):
    return {"type": "message", "id": item_id, "content": text}


def entry(number, owner="", status="completed", source=None):
    return StoredResponse(f"resp_{number}", owner, [item(f"in_{number}")], source or Finished(status, b"{}"))


def put(store, number, parent=None, **more):
    stored = entry(number, **more)
    context = Context(parent, [*stored.input_items, item(f"out_{number}")])
    store.put(stored, context)
    return stored, context


def store_of(max_entries=100, max_bytes=10**6, max_age_s=60.0):
    clock = Clock()
    return ResponseStore(max_entries, max_bytes, max_age_s, clock), clock


def test_a_conversation_is_its_parents_items_and_its_own():
    store, _ = store_of()
    _, first = put(store, 1)
    _, second = put(store, 2, parent=first)
    assert [found["id"] for found in store.parent("", "resp_2").chain()] == ["in_1", "out_1", "in_2", "out_2"]
    assert second.items_by_id() == {name: item(name) for name in ("in_1", "out_1", "in_2", "out_2")}
    assert second.num_chain_bytes == first.num_bytes + second.num_bytes


def test_items_are_found_by_id_until_their_response_goes():
    store, _ = store_of()
    stored, _ = put(store, 1)
    assert store.find_item("", "out_1") == item("out_1")
    store.delete(stored)
    assert store.find_item("", "out_1") is None
    with pytest.raises(NotFound):
        store.get("", "resp_1")


def test_an_item_that_a_later_response_has_as_well_stays():
    store, _ = store_of()
    first, _ = put(store, 1)
    later = StoredResponse("resp_2", "", [item("in_1", "again")], Finished("completed", b"{}"))
    store.put(later, None)
    store.delete(first)
    assert store.find_item("", "in_1") == item("in_1", "again")


def test_another_key_sees_nothing():
    store, _ = store_of()
    put(store, 1, owner="a")
    assert store.find_item("b", "out_1") is None
    with pytest.raises(NotFound):
        store.get("b", "resp_1")
    with pytest.raises(InvalidRequest) as refused:
        store.parent("b", "resp_1")
    assert refused.value.code == "previous_response_not_found"
    assert store.parent("a", "resp_1")


def test_a_response_that_cannot_be_a_parent_says_why():
    store, _ = store_of()
    store.put(entry(1, status="failed"), None)
    with pytest.raises(InvalidRequest, match="failed"):
        store.parent("", "resp_1")


def test_the_oldest_goes_first_when_there_are_too_many():
    store, _ = store_of(max_entries=2)
    for number in (1, 2, 3):
        put(store, number)
    assert len(store) == 2
    with pytest.raises(NotFound):
        store.get("", "resp_1")


def test_bytes_are_bounded_and_shared_ones_counted_once():
    store, _ = store_of()
    _, context = put(store, 1)
    alone = store.num_bytes
    for number in range(2, 6):
        _, context = put(store, number, parent=context)
    assert store.num_bytes == pytest.approx(5 * alone, rel=0.01)

    small, _ = store_of(max_bytes=int(3.5 * alone))
    context = None
    for number in range(1, 20):
        _, context = put(small, number, parent=context)
        # The latest holds what it continues: a conversation that is too long as a whole is not kept at all.
        assert small.num_bytes <= 3.5 * alone


def test_nothing_is_left_when_everything_is_deleted():
    store, _ = store_of()
    entries, context = [], None
    for number in range(5):
        stored, context = put(store, number, parent=context)
        entries.append(stored)
    for stored in entries[::2] + entries[1::2]:
        store.delete(stored)
    assert (len(store), store.num_bytes) == (0, 0)


def test_age_ends_a_response_but_not_a_running_one():
    store, clock = store_of(max_age_s=60)
    put(store, 1)
    running = entry(2, source=Running())
    store.put(running, None)
    clock.now_s += 59
    assert store.get("", "resp_1")
    clock.now_s += 2
    with pytest.raises(NotFound):
        store.get("", "resp_1")
    assert store.get("", "resp_2") is running


def test_a_running_response_is_not_dropped_for_room_and_its_growth_is_counted():
    store, _ = store_of(max_bytes=400)
    running = entry(1, source=Running())
    store.put(running, None)
    put(store, 2)
    before = store.num_bytes
    store.grow(running, 1000)
    assert store.num_bytes < before + 1000, "others made room"
    assert store.get("", "resp_1") is running
    store.settle(running, None)
    assert store.num_bytes == running.num_bytes < 400
    store.delete(running)
    store.grow(running, 50)
    store.settle(running, None)
    assert store.num_bytes == 0


def frames(*numbers):
    return [Frame(json.dumps({"sequence_number": number}).encode(), "x") for number in numbers]


def test_a_log_is_read_from_any_point():
    log = EventLog()
    log.append(frames(0, 1), is_last=False)
    log.append(frames(2), is_last=True)
    assert [number for number, _ in log.after(-1)] == [0, 1, 2]
    assert [number for number, _ in log.after(1)] == [2]
    assert log.after(2) == log.after(99) == []
    assert log.is_closed


def test_a_long_log_drops_its_oldest_events_and_says_so():
    log = EventLog(max_bytes=100)
    size = len(frames(0)[0].data)
    grown = sum(log.append(frames(number), is_last=False) for number in range(10))
    assert grown == log.num_bytes <= 100
    kept = 100 // size
    assert [number for number, _ in log.after(9 - kept)] == list(range(10 - kept, 10))
    with pytest.raises(InvalidRequest) as refused:
        log.after(0)
    assert refused.value.code == "events_expired"


async def test_a_reader_wakes_at_a_change():
    log = EventLog()
    waiting = asyncio.create_task(log.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    log.append(frames(0), is_last=False)
    await asyncio.wait_for(waiting, 5)
