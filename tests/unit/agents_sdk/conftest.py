from collections.abc import Iterator

import pytest

from tests.testkit.sdk_server import FakeServer


@pytest.fixture(scope="session")
def _running_server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture
def server(_running_server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    monkeypatch.delenv("HEADRACE_API_KEY", raising=False)
    monkeypatch.delenv("HEADRACE_URL", raising=False)
    _running_server.reset()
    return _running_server


@pytest.fixture(params=["websocket", "sse"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param
