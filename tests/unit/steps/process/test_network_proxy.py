import pytest

from remuda.steps.process.network_proxy import allows


@pytest.mark.parametrize(
    ("pattern", "host", "port", "fits"),
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
def test_host_fits_a_pattern(pattern: str, host: str, port: int, fits: bool) -> None:
    assert allows([[pattern]], host, port) is fits


def test_all_lists_must_have_the_host() -> None:
    assert allows([["a.example", "b.example"], ["b.example"]], "b.example", 443)
    assert not allows([["a.example", "b.example"], ["b.example"]], "a.example", 443)
    assert not allows([["a.example"], []], "a.example", 443)
