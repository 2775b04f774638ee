"""What holds for all tests: a skip that nobody expects is a failure where CI is set."""

import os
from pathlib import Path

import pytest

EXPECTED_SKIPS = Path(__file__).parent / "expected_skips.txt"


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
