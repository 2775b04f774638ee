"""The formats of log lines, and the log level."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from remuda.telemetry import logs


@pytest.fixture(autouse=True)
def fresh_logging() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_without_a_terminal_each_line_is_a_json_object() -> None:
    out = io.StringIO()
    logs.configure(stream=out)
    logs.logger("manager").info("job started", job=7)
    line = json.loads(out.getvalue())
    assert (line["part"], line["event"], line["job"], line["level"]) == ("manager", "job started", 7, "info")
    assert line["timestamp"].endswith("Z")


def test_the_text_format() -> None:
    out = io.StringIO()
    logs.configure(log_format="text", stream=out)
    logs.logger("cell").warning("disk is nearly full", free_bytes=12)
    assert "disk is nearly full" in out.getvalue()
    assert "free_bytes=12" in out.getvalue()


@pytest.mark.parametrize(("level", "is_shown"), [("error", False), ("warn", False), ("info", True), ("debug", True)])
def test_the_level_decides_what_is_shown(level: str, is_shown: bool) -> None:
    out = io.StringIO()
    logs.configure(level=level, stream=out)
    logs.logger("cell").info("hello")
    assert bool(out.getvalue()) is is_shown


def test_a_changed_level_applies_from_the_next_line_on() -> None:
    out = io.StringIO()
    logs.configure(stream=out)
    log = logs.logger("manager")
    log.info("one")
    logs.set_level("debug")
    log.debug("two")
    logs.set_level("error")
    log.info("three")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["one", "two"]
