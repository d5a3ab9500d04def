import pytest
from headrace import HeadraceError
from headrace.config import client_config


def config(url=None, api_key=None, **environ):
    return client_config(url, api_key, connect_timeout_s=1, idle_timeout_s=1, environ=environ)


@pytest.mark.parametrize(
    ("url", "http_url", "ws_url"),
    [
        ("http://localhost:8000", "http://localhost:8000", "ws://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000", "ws://localhost:8000"),
        ("http://localhost:8000/v1", "http://localhost:8000", "ws://localhost:8000"),
        ("http://localhost:8000/v1/", "http://localhost:8000", "ws://localhost:8000"),
        ("https://host/prefix/v1", "https://host/prefix", "wss://host/prefix"),
        ("wss://host", "https://host", "wss://host"),
        ("ws://[::1]:80", "http://[::1]:80", "ws://[::1]:80"),
        ("localhost:8000", "http://localhost:8000", "ws://localhost:8000"),
        (None, "http://127.0.0.1:8000", "ws://127.0.0.1:8000"),
    ],
)
def test_a_servers_url_is_understood_however_it_is_written(url, http_url, ws_url):
    assert (config(url).http_url, config(url).ws_url) == (http_url, ws_url)


@pytest.mark.parametrize("url", ["ftp://host", "http://", "/v1", "file:///tmp"])
def test_what_is_no_servers_url_is_refused(url):
    with pytest.raises(HeadraceError, match="URL"):
        config(url)


def test_arguments_come_before_the_environment():
    environ = {"HEADRACE_URL": "http://env", "HEADRACE_API_KEY": "env"}
    assert config(**environ).http_url == "http://env"
    assert config(**environ).headers == {"Authorization": "Bearer env"}
    assert config("http://arg", "arg", **environ).http_url == "http://arg"
    assert config("http://arg", "arg", **environ).headers == {"Authorization": "Bearer arg"}
    assert config().headers == {}


@pytest.mark.parametrize(
    ("host", "use_proxy"),
    [("127.0.0.1", False), ("127.1.2.3", False), ("[::1]", False), ("localhost", False), ("example.org", True)],
)
def test_no_proxy_stands_between_a_program_and_its_own_machine(host, use_proxy):
    assert config(f"http://{host}:80").use_proxy is use_proxy
