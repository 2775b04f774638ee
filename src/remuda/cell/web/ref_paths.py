"""Splits an address such as `/-/tree/feature/login/docs/index.md` into a ref and a path. Refs contain slashes, so only
the repository knows where the ref ends; this module says in which order to ask. It is its own module to be tested
without a repository."""

import re
from urllib.parse import unquote

MAX_PARTS = 8
"""A ref has at most this many parts, if its slashes are not encoded in the address."""
_ABBREVIATED = re.compile(r"[0-9a-f]{4,39}")


def list_splits(raw: str) -> list[tuple[str, str]]:
    """Return pairs of ref and path that the percent-encoded `raw` may mean, the most likely first.

    The pages themselves encode the slashes of a ref, so the first segment is tried first. A branch `a` excludes a
    branch `a/b`, so the order matters only where the first segments look like the beginning of a commit's id."""
    parts = raw.strip("/").split("/")
    splits = [
        (unquote("/".join(parts[:count])), unquote("/".join(parts[count:])))
        for count in range(1, min(len(parts), MAX_PARTS) + 1)
    ]
    return sorted(splits, key=lambda split: _ABBREVIATED.fullmatch(split[0]) is not None and len(splits) > 1)


def split_range(raw: str) -> tuple[str, str] | None:
    """Return the two sides of `before...after`; None if it has not this form. Names of refs contain no `..`."""
    before, dots, after = raw.partition("...")
    return (unquote(before), unquote(after)) if before and dots and after else None
