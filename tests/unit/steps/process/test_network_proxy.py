import pytest

from remuda.steps.process.network_proxy import allows


@pytest.mark.parametrize(
    ("pattern", "host", "port", "expected"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "EXAMPLE.com.", 80, True),
        ("example.com", "www.example.com", 443, False),
        ("example.com", "badexample.com", 443, False),
        ("*.example.com", "www.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "badexample.com", 443, False),
        ("example.com:443", "example.com", 443, True),
        ("example.com:443", "example.com", 22, False),
        ("*", "anything.example", 1, True),
        ("*:443", "anything.example", 80, False),
        ("[::1]:80", "::1", 80, True),
        ("[::1]", "::1", 443, True),
        ("10.0.0.1", "10.0.0.1", 5000, True),
    ],
)
def test_hosts_and_ports_match_patterns(pattern: str, host: str, port: int, expected: bool) -> None:
    assert allows([[pattern]], host, port) is expected


def test_every_list_must_allow_the_host() -> None:
    assert allows([["a.example", "b.example"], ["b.example"]], "b.example", 443)
    assert not allows([["a.example", "b.example"], ["b.example"]], "a.example", 443)
    assert not allows([["a.example"], []], "a.example", 443)
