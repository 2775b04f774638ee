"""Installs signal handlers in the event loop for as long as a command runs.

Under `nohup` SIGHUP stays ignored if its handler would stop the command. SIGINT is always handled, although shells
ignore it for background programs of a script: a script that sends SIGINT wants it to work."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a kill, a closed terminal: each stops a command in the foreground."""


def stop_signals() -> list[signal.Signals]:
    return [each for each in STOPPING if each is not signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN]


@contextmanager
def handle_signals(
    handlers: Mapping[signal.Signals, Callable[[], object]], *, hangup_stops: bool = True
) -> Iterator[None]:
    """Install signal handlers during the block. `hangup_stops`: install none for SIGHUP under `nohup`."""
    import asyncio  # takes 50 ms, which a command that only needs `STOPPING` should not wait for

    loop = asyncio.get_running_loop()
    ignored = set(STOPPING).difference(stop_signals()) if hangup_stops else ()
    numbers = [number for number in handlers if number not in ignored]
    for number in numbers:
        loop.add_signal_handler(number, handlers[number])
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
