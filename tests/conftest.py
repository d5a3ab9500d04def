"""What every test relies on, whoever started pytest."""

import signal


def pytest_configure() -> None:
    # A shell starts background jobs with SIGINT ignored, and so would be whatever the tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
