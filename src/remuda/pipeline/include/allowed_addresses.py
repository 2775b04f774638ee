"""The allow list of web addresses from which files may be included.

An address matches an entry if scheme, host and port are equal and its path begins with the entry's path, folder by
folder. An ambiguous address, or one with `..` in its path, matches nothing."""

from urllib.parse import unquote, urlsplit

import msgspec

_PORTS = {"http": 80, "https": 443}


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed web address or entry of the allow list; `entry.covers(address)` is true if the entry allows it."""

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
    """Parse a web address or an entry of the allow list; None if it is invalid, ambiguous, or has `..` in its path."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        return None
    # Some servers decode the path before they resolve `..`, take a backslash for a slash, or cut at a semicolon.
    path = unquote(parts.path).replace("\\", "/")
    folders = tuple(name for name in path.split("/") if name)
    if "%" in path or any(name.partition(";")[0] == ".." for name in folders):
        return None
    return Prefix(scheme=parts.scheme, host=parts.hostname, port=port or _PORTS[parts.scheme], folders=folders)
