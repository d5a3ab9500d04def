"""Clients are installed once, on first use, into .clients/; see tests/testkit/client_programs.py."""

import pytest

from tests.testkit.client_programs import NodeClients, PythonClients, end_programs_of, node_clients, python_clients

# Installing takes minutes, and counts as the first test's time.
INSTALL_TIMEOUT_S = 1200


def pytest_collection_modifyitems(items):
    installed = set()
    for item in items:
        new = {"py", "js"} & set(getattr(item, "fixturenames", ())) - installed
        if new:
            item.add_marker(pytest.mark.timeout(INSTALL_TIMEOUT_S))
            installed |= new


@pytest.fixture(scope="session")
def py() -> PythonClients:
    return python_clients()


@pytest.fixture(scope="session")
def js() -> NodeClients:
    return node_clients()


@pytest.fixture
def home(tmp_path):
    """An agent's home folder, empty: no settings of the machine's user reach it."""
    home = tmp_path / "home"
    home.mkdir()
    yield home
    end_programs_of(home)


@pytest.fixture
def work(tmp_path):
    """The folder that an agent works in."""
    work = tmp_path / "work"
    work.mkdir()
    return work
