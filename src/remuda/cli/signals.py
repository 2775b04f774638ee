"""Signals as events of the running loop, for as long as a command runs.

A SIGHUP that the caller has switched off (`nohup`) stays off where it would stop the command. SIGINT does not: shells
switch it off for whatever a script starts in the background, and such a script still means it when it sends one.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a polite kill, a terminal that is gone: all mean the same to a command in the foreground."""


@contextmanager
def handled(handlers: Mapping[signal.Signals, Callable[[], object]], *, hangup_stops: bool = True) -> Iterator[None]:
    """Call these in the running loop when the signals come."""
    loop = asyncio.get_running_loop()
    is_off = hangup_stops and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    wanted = [n for n in handlers if n is not signal.SIGHUP or not is_off]
    for number in wanted:
        loop.add_signal_handler(number, handlers[number])
    try:
        yield
    finally:
        for number in wanted:
            loop.remove_signal_handler(number)
