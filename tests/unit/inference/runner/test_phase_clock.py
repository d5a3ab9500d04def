from inference.runner.phase_clock import PhaseClock


def test_phases_follow_each_other_and_add_up_to_the_whole():
    times = iter((12.5, 13.0, 16.25))
    clock = PhaseClock(10.0, now=lambda: next(times))
    for phase in ("python", "torch", "weights"):
        clock.lap(phase)
    assert clock.summary() == "6.25 s: python 2.50, torch 0.50, weights 3.25"


def test_a_clock_without_a_start_begins_at_once():
    times = iter((3.0, 4.0))
    clock = PhaseClock(now=lambda: next(times))
    clock.lap("weights")
    assert clock.summary() == "1.00 s: weights 1.00"
