"""Web addresses on an allow list: whether one begins with another, however it is written.

Decided here: scheme, host and port must be the same, and the path must begin with the entry's, folder by folder; an
address that can be read in two ways, or whose path goes up again, is none. The cell and `remuda pipeline` ask this
before they fetch what a file includes, and again for every redirect. Pure.
"""

from urllib.parse import unquote, urlsplit

import msgspec

_PORTS = {"http": 80, "https": 443}


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """An address, or the beginning of some, taken apart so that two can be compared."""

    scheme: str
    host: str
    port: int
    folders: tuple[str, ...]

    @property
    def address(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}/{'/'.join(self.folders)}"

    def covers(self, other: "Prefix") -> bool:
        same = (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port)
        return same and other.folders[: len(self.folders)] == self.folders


def read_prefix(text: str) -> Prefix | None:
    """An address taken apart; None for one that is none, or whose path goes up again."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        return None
    # A server may undo the escapes before it looks for `..`; some take a backslash for a slash, or cut at a semicolon.
    path = unquote(parts.path).replace("\\", "/")
    folders = tuple(name for name in path.split("/") if name)
    if "%" in path or any(name.partition(";")[0] == ".." for name in folders):
        return None
    return Prefix(scheme=parts.scheme, host=parts.hostname, port=port or _PORTS[parts.scheme], folders=folders)
