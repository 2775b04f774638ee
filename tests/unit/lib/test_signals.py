import asyncio
import signal
from collections.abc import Iterator

import pytest

from remuda.lib.signals import STOPPING, handle_signals


@pytest.fixture
def without_hangup() -> Iterator[None]:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


async def test_hangup_that_would_stop_a_command_stays_off_where_it_is_switched_off(without_hangup: None) -> None:
    with handle_signals(dict.fromkeys(STOPPING, lambda: None)):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


async def test_hangup_that_means_something_else_is_heard_all_the_same(without_hangup: None) -> None:
    heard = asyncio.Event()
    with handle_signals({signal.SIGTERM: lambda: None, signal.SIGHUP: heard.set}, hangup_stops=False):
        signal.raise_signal(signal.SIGHUP)
        await heard.wait()
