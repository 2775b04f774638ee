"""What holds for all tests: signals do what they do at a terminal, and a skip that nobody expects fails in CI."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.support.servers.postgres_server import PostgresServer

from remuda.lib.event_loop import correct_timeouts

EXPECTED_SKIPS = Path(__file__).parent / "expected_skips.txt"

# Whoever starts the tests with nohup or in the background of a script hands down signals that are ignored, and our
# processes rightly leave an ignored hang-up ignored. Tests that send one mean the ordinary case.
for number, usual in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


# Event loops of tests are made by pytest-asyncio.
correct_timeouts()

# How long one example takes says something about the machine's load, not about the code.
settings.register_profile(
    "remuda", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("remuda")

# Agents of tests make no control groups in the one that the tests themselves run in.
os.environ.setdefault("REMUDA_CGROUP", "/remuda-tests")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of this process that share one; it need not survive a loss of power."""
    if not PostgresServer.is_there():
        pytest.skip("PostgreSQL is not installed: make packages")
    with PostgresServer(fsync="off", full_page_writes="off", max_wal_size="200MB") as server:
        yield server


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of an empty database."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can enter; those of pytest are closed to them."""
    with tempfile.TemporaryDirectory(prefix="remuda-test-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Compare skips with the list; with xdist only the controller sees all reports."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("CI"):
        return
    lines = EXPECTED_SKIPS.read_text().splitlines()
    expected = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
    surprising = sorted({report.nodeid for report in reporter.stats.get("skipped", [])} - expected)
    if surprising:
        reporter.write_line("skipped without being listed in tests/expected_skips.txt:", red=True)
        for nodeid in surprising:
            reporter.write_line(f"  {nodeid}", red=True)
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
