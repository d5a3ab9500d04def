import pytest

from gateway.admission import Admission
from gateway.errors import ShuttingDown, TooManyTurns


def test_turns_are_admitted_up_to_the_limit_which_the_refusal_names():
    admission = Admission(2)
    admission.admit()
    admission.admit()
    with pytest.raises(TooManyTurns, match=r"takes 2 \(--max-turns\)") as caught:
        admission.admit()
    assert caught.value.retry_after_s == 1.0
    assert "Try again in 1s" in caught.value.message
    admission.release()
    admission.admit()
    assert admission.num_live == 2


def test_a_draining_server_admits_nothing_and_says_when_to_come_back():
    admission = Admission(2)
    admission.is_draining = True
    with pytest.raises(ShuttingDown) as caught:
        admission.admit()
    assert caught.value.headers()["retry-after"] == "1"
    assert admission.num_live == 0


def test_releasing_more_than_was_admitted_is_our_bug():
    with pytest.raises(AssertionError):
        Admission(1).release()
