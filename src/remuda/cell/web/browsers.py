"""Names a browser by its User-Agent: "Firefox on Linux". In its own module, because it knows only texts of browsers."""

_BROWSERS = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
"""Texts in a User-Agent with their browsers. The first that fits counts: all others claim to be Chrome or Safari."""
_SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def describe_browser(user_agent: str) -> str:
    """Name browser and system of a User-Agent; an unknown one is shown as it is, in short."""
    browser = next((name for text, name in _BROWSERS if text in user_agent), "")
    system = next((name for text, name in _SYSTEMS if text in user_agent), "")
    known = " on ".join(filter(None, (browser, system)))
    return known if browser else user_agent[:60] or "unknown browser"
