"""Raises the limit of open files (soft limit) of a service to the hard limit.

Programs that the service starts get the old limit back, because some iterate over all descriptors up to the limit.
"""

import resource
from contextlib import suppress

_INHERITED = resource.getrlimit(resource.RLIMIT_NOFILE)
_MOST = 1 << 20
"""Used where the hard limit is unlimited."""


def raise_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return min(soft, _MOST) if soft != resource.RLIM_INFINITY else _MOST
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


def restore_limit(pid: int) -> None:
    """Give a child process the limit of open files that this process was started with."""
    with suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _INHERITED)
