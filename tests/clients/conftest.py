"""Clients are installed once, on first use, into .clients/; see tests/testkit/client_programs.py."""

import pytest

from tests.testkit.client_programs import NodeClients, PythonClients, node_clients, python_clients

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
