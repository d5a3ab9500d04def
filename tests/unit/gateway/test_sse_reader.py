import pytest

from gateway.sse_reader import EventTooLong, SseReader

STREAM = (
    b"\xef\xbb\xbf: comment\n\ndata: one\n\nevent: x\nid: 7\ndata: two\ndata:three\r\n\r\n"
    b'data\rdata:  four \r\r{"bare": 1}\ndatax: no\n\n' + "data: Grüße 😀\u2028\n\ndata: last".encode()
)
EVENTS = ["one", "two\nthree", "\n four ", '{"bare": 1}', "Grüße 😀\u2028", "last"]


def read(pieces):
    reader = SseReader()
    return [event for piece in pieces for event in reader.feed(piece)] + reader.finish()


def test_a_stream_gives_the_same_events_at_whatever_bytes_it_is_cut():
    assert read([STREAM]) == EVENTS
    assert read([STREAM[i : i + 1] for i in range(len(STREAM))]) == EVENTS
    for cut in range(len(STREAM)):
        assert read([STREAM[:cut], b"", STREAM[cut:]]) == EVENTS


def test_bytes_that_are_no_text_do_no_harm():
    assert read([b"data: \xff\xfe\n\n"]) == ["��"]


def test_an_event_without_an_end_has_a_bound(monkeypatch):
    monkeypatch.setattr("gateway.sse_reader._MAX_EVENT_CHARS", 100)
    for piece in (b"x" * 60, b"data: " + b"y" * 60 + b"\n"):
        reader = SseReader()
        reader.feed(piece)
        with pytest.raises(EventTooLong):
            reader.feed(piece)


def test_events_are_out_when_their_empty_line_is():
    reader = SseReader()
    assert reader.feed(b"data: a\n") == []
    assert reader.feed(b"\n") == ["a"]
