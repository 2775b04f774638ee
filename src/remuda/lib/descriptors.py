"""Raises the limit of open files (soft limit) of a service to the hard limit.

The service gives the old limit back to programs that it starts (`restore_limit`), because some iterate over all
descriptors up to the limit.
"""

import resource
from contextlib import suppress

_INHERITED = resource.getrlimit(resource.RLIMIT_NOFILE)
_MOST = 1 << 20
"""Used where the hard limit is unlimited."""


def raise_limit() -> int:
    """Raise the soft limit of this process to the hard limit, if permitted; return the limit that holds then."""
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
    """Give a child process the limit of open files that this process was started with."""
    with suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _INHERITED)
