"""How many files and sockets this process may have open: a service raises the soft limit to the hard one.

Programs that it starts get the limit back that it was started with (`as_inherited`): some walk over all descriptors up
to the limit, and a job should see what a shell would show. Called by the services and by whoever starts an agent.
"""

import resource
from contextlib import suppress

_INHERITED = resource.getrlimit(resource.RLIMIT_NOFILE)
_MOST = 1 << 20
"""Where the hard limit is "unlimited"; more than any machine serves."""


def raise_limit() -> int:
    """Allow as many descriptors as the system lets us have; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return min(soft, _MOST) if soft != resource.RLIM_INFINITY else _MOST
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


def as_inherited(pid: int) -> None:
    """Give a process that we started the limit that we were started with."""
    with suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _INHERITED)
