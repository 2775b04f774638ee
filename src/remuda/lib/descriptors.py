"""Raises the limit of open files (soft limit) of a service to the hard limit.

The service gives the old limit back to programs that it starts (`restore_limit`), because some iterate over all
descriptors up to the limit."""

import resource
from contextlib import suppress

_INHERITED = resource.getrlimit(resource.RLIMIT_NOFILE)
_MOST = 1 << 20
"""Used where the hard limit is unlimited."""


def raise_limit() -> int:
    """Raise this process's soft limit of open files to the hard one if permitted. Returns the limit in effect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MOST if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= target:
        return min(soft, _MOST) if soft != resource.RLIM_INFINITY else _MOST
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):
        return soft
    return target


def restore_limit(pid: int) -> None:
    """Set a child process's limit of open files back to that at the start of this process. Errors are ignored."""
    with suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _INHERITED)
