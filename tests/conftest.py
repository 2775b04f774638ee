"""Settings and fixtures of all tests: default signal handlers, PostgreSQL, and in CI a failure for unexpected skips."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.support.servers.postgres_server import PostgresServer

from remuda.lib.event_loop import correct_asyncio

EXPECTED_SKIPS = Path(__file__).parent / "expected_skips.txt"

# Under nohup, or in the background of a script, the tests inherit ignored signals, and our processes rightly keep
# ignoring them. Tests that send such a signal expect the default behaviour.
for number, handler in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


# pytest-asyncio creates the event loops of tests; programs call this through remuda.lib.event_loop.run.
correct_asyncio()

# No deadline: the time of an example depends on the load of the machine.
settings.register_profile(
    "remuda", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("remuda")

# Agents of tests must not create control groups inside the control group of the tests.
os.environ.setdefault("REMUDA_CGROUP", "/remuda-tests")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server that the tests of this process share. It does not use fsync."""
    if not PostgresServer.is_installed():
        pytest.skip("PostgreSQL is not installed: make packages")
    with PostgresServer(fsync="off", full_page_writes="off", max_wal_size="200MB") as server:
        yield server


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """URL of an empty database."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A temporary folder that other users can enter, unlike the folders of pytest."""
    with tempfile.TemporaryDirectory(prefix="remuda-test-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI, fail if a test was skipped that expected_skips.txt does not list. With xdist, only the controller has all
    reports."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("CI"):
        return
    lines = EXPECTED_SKIPS.read_text().splitlines()
    expected = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
    unexpected = sorted({report.nodeid for report in reporter.stats.get("skipped", [])} - expected)
    if unexpected:
        reporter.write_line("skipped without being listed in tests/expected_skips.txt:", red=True)
        for nodeid in unexpected:
            reporter.write_line(f"  {nodeid}", red=True)
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
