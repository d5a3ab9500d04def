import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.text_stop import StopFilter


def run(strings: tuple[str, ...], pieces: list[str], *, include: bool = False) -> tuple[str, str | None]:
    stop = StopFilter(strings, include=include)
    out = ""
    for piece in pieces:
        out += stop.feed(piece)
        if stop.found is not None:
            return out, stop.found
    return out + stop.flush(), None


def all_splits(text: str) -> list[list[str]]:
    return [[text], list(text), *([text[:i], text[i:]] for i in range(1, len(text)))]


@pytest.mark.parametrize("pieces", all_splits("Hello STOP world"), ids=repr)
def test_a_stop_string_is_found_however_the_text_is_split(pieces):
    assert run(("STOP",), pieces) == ("Hello ", "STOP")


@pytest.mark.parametrize("pieces", all_splits("Hello STOP world"), ids=repr)
def test_an_included_stop_string_is_the_last_of_the_text(pieces):
    assert run(("STOP",), pieces, include=True) == ("Hello STOP", "STOP")


@pytest.mark.parametrize("pieces", all_splits("xababc!"), ids=repr)
def test_a_false_start_that_overlaps_the_real_one_is_released(pieces):
    assert run(("abc",), pieces) == ("xab", "abc")


@pytest.mark.parametrize("pieces", all_splits("0abcd9"), ids=repr)
def test_the_stop_string_that_is_whole_first_wins_over_one_that_began_first(pieces):
    assert run(("abcd", "bc"), pieces) == ("0a", "bc")


@pytest.mark.parametrize("pieces", all_splits("0xbc9"), ids=repr)
def test_of_two_that_end_together_the_longer_wins(pieces):
    assert run(("bc", "xbc"), pieces) == ("0", "xbc")


def test_text_that_might_become_a_stop_string_waits_and_no_longer_than_that():
    stop = StopFilter(("\n\n",))
    assert stop.feed("one\n") == "one"
    assert stop.feed("two") == "\ntwo"
    assert stop.feed("\n") == ""
    assert stop.flush() == "\n"
    assert stop.flush() == ""


def test_without_stop_strings_text_passes_at_once():
    stop = StopFilter(())
    assert stop.feed("anything") == "anything"
    assert stop.flush() == ""


def reference(strings: tuple[str, ...], text: str) -> tuple[str, str | None]:
    """Character by character: the first end of any stop string, the longest of those that end there."""
    for end in range(1, len(text) + 1):
        ending = [s for s in strings if text[:end].endswith(s)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(
    strings=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    pieces=st.lists(st.text("abc", max_size=5), max_size=8),
)
def test_any_cut_of_any_text_gives_what_reading_by_character_gives(strings, pieces):
    assert run(tuple(strings), pieces) == reference(tuple(strings), "".join(pieces))
