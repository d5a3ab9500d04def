import pytest

from stream_parser.surrogates import SurrogateJoiner, mend


def joined(*pieces: str) -> str:
    joiner = SurrogateJoiner()
    return "".join(joiner.feed(piece) for piece in pieces) + joiner.flush()


def test_a_pair_split_over_two_pieces_is_joined():
    assert joined("go \ud83d", "\ude80 now") == "go 🚀 now"


def test_a_high_half_waits_for_the_next_piece_even_an_empty_one():
    joiner = SurrogateJoiner()
    assert joiner.feed("a\ud83d") == "a"
    assert joiner.feed("") == ""
    assert joiner.feed("\ude80") == "🚀"
    assert joiner.flush() == ""


@pytest.mark.parametrize("text", ["\ud83d", "x\ud83dy", "\ude80\ud83d"])
def test_lone_halves_are_replaced(text):
    assert "\ufffd" in joined(*text)
    joined(*text).encode()


def test_a_pair_inside_one_piece_is_joined_and_other_text_stays():
    assert mend("é\ud83d\ude80 \ud83d!") == "é🚀 \ufffd!"
    assert mend("plain") == "plain"
