import pytest

from remuda.cell.web.browsers import describe_browser

_MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/"


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
        (f"{_MAC}605.1.15 (KHTML, like Gecko) Version/18.0 Safari/605.1.15", "Safari on macOS"),
        (f"{_MAC}537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36", "Chrome on macOS"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) CriOS/140.0 Safari/604.1", "Chrome on iPhone"),
        ("curl/8.1", "curl"),
        ("<script>alert(1)</script>" + "x" * 300, "<script>alert(1)</script>" + "x" * 35),
        ("", "unknown browser"),
    ],
)
def test_a_browser_is_named(user_agent: str, name: str) -> None:
    assert describe_browser(user_agent) == name
