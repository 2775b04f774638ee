"""Reads `cache` and `integrity` of an included file that has a web address. A separate module, because `includes` would
be too long with it."""

from __future__ import annotations

import base64
import hashlib
import re

from remuda.pipeline.errors import Report, quote
from remuda.pipeline.syntax.tree import Node, Scalar
from remuda.pipeline.syntax.typed_values import read_duration, read_text

_DEFAULT_CACHE_SECONDS = 3600
_MIN_CACHE_SECONDS = 60
_HASH = re.compile(r"sha256-[A-Za-z0-9+/]{43}=")


def read_cache(report: Report, node: Node, path: str) -> int:
    """Read `cache` of a remote file: how old its text may be, in seconds; `true` means an hour."""
    if isinstance(node, Scalar) and node.kind in ("true", "false"):
        return _DEFAULT_CACHE_SECONDS if node.kind == "true" else 0
    return max(read_duration(report, node, path) or 0, _MIN_CACHE_SECONDS)


def has_hash(report: Report, node: Node, path: str, text: str) -> bool:
    """True if the SHA-256 hash of a remote file is that of `integrity`; otherwise reports a mistake."""
    expected = read_text(report, node, path)
    if expected is None:
        return False
    if not _HASH.fullmatch(expected):
        report.add(node, path, f"{quote(expected)} is not a hash", "write it like sha256-<44 characters of base64>")
        return False
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    if expected != f"sha256-{digest}":
        message = f"the file has the hash sha256-{digest}, another than expected"
        report.add(node, path, message, "check what changed in it, then correct the hash")
        return False
    return True
