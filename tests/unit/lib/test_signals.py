import asyncio
import signal
from collections.abc import Iterator

import pytest

from remuda.lib.signals import STOPPING, handle_signals


@pytest.fixture
def ignored_hangup() -> Iterator[None]:
    """Ignore SIGHUP, as nohup does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


async def test_an_ignored_hangup_stays_ignored_if_it_would_stop_the_command(ignored_hangup: None) -> None:
    with handle_signals(dict.fromkeys(STOPPING, lambda: None)):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


async def test_an_ignored_hangup_is_handled_if_it_does_not_stop_the_command(ignored_hangup: None) -> None:
    handled = asyncio.Event()
    with handle_signals({signal.SIGTERM: lambda: None, signal.SIGHUP: handled.set}, hangup_stops=False):
        signal.raise_signal(signal.SIGHUP)
        await handled.wait()
