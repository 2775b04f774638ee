"""Parsing of JUnit reports: usual, damaged and hostile ones."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.localrun import junit
from remuda.localrun.junit import TestFailure, read

PYTEST = b"""<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4" time="0.1">
<testcase classname="tests.test_a" name="test_good" time="0.001" />
<testcase classname="tests.test_a" name="test_bad" file="tests/test_a.py" line="3" time="0.001">
<failure message="assert 1 == 2">def test_bad():
&gt;       assert 1 == 2
E       assert 1 == 2</failure></testcase>
<testcase classname="tests.test_a" name="test_skipped"><skipped message="no">why</skipped></testcase>
<testcase classname="" name="tests.test_b"><error message="collection failure">ImportError</error>
<system-out>noise</system-out></testcase>
</testsuite></testsuites>"""


def test_cases_are_counted_and_failures_reported() -> None:
    report = read("unit", gzip.compress(PYTEST))
    assert (report.tests, report.passed, report.failed, report.errors, report.skipped) == (4, 1, 1, 1, 1)
    assert report.failures == (
        TestFailure(
            suite="tests.test_a",
            name="test_bad",
            kind="failed",
            message="def test_bad():\n>       assert 1 == 2\nE       assert 1 == 2",
            file="tests/test_a.py",
            line=3,
        ),
        TestFailure(suite="pytest", name="tests.test_b", kind="error", message="collection failure\nImportError"),
    )
    assert [failure.place for failure in report.failures] == ["tests/test_a.py:3", ""]
    assert not report.problem


def test_files_of_one_upload_are_added_up() -> None:
    data = gzip.compress(PYTEST) + gzip.compress(b"") + gzip.compress(b'<testsuite><testcase name="x"/></testsuite>')
    assert read("unit", data).tests == 5
    assert read("unit", PYTEST).tests == 4


def test_a_verdict_without_text_has_its_message() -> None:
    text = (
        b'<testsuite name="go"><testcase name="x"><failure message="Failed" type=""></failure></testcase></testsuite>'
    )
    (failure,) = read("unit", text).failures
    assert (failure.suite, failure.message) == ("go", "Failed")


def test_long_messages_and_many_failures_are_cut() -> None:
    case = "<testcase name='x'><failure>" + "line\n" * 50 + "</failure></testcase>"
    report = read("unit", f"<testsuite>{case * 300}</testsuite>".encode())
    assert report.failed == 300
    assert len(report.failures) == junit.KEPT_FAILURES
    assert report.failures[0].message == "line\n" * junit.KEPT_LINES + "..."


BOMB = b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><testsuite><testcase name="&b;"/></testsuite>'
OUTSIDE = (
    b'<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]><testsuite><testcase name="x">&a;</testcase></testsuite>'
)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (BOMB, "declares entities"),
        (OUTSIDE, "declares entities"),
        (b"<testsuite><testcase>", "not valid XML"),
        (b'<?xml version="1.0" encoding="klingon"?><a/>', "encoding"),
        (gzip.compress(PYTEST)[:-20], "cut off"),
        (b"\x1f\x8bnonsense", "damaged"),
        (zlib.compress(PYTEST), "not valid XML"),
    ],
)
def test_damaged_and_hostile_reports_are_refused(data: bytes, problem: str) -> None:
    assert problem in read("unit", data).problem


def test_cases_read_before_a_problem_count() -> None:
    report = read("unit", gzip.compress(PYTEST) + gzip.compress(BOMB))
    assert (report.tests, bool(report.problem)) == (4, True)


def test_a_report_that_is_too_large_when_unpacked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "LIMIT_BYTES", 10_000)
    assert "larger than" in read("unit", gzip.compress(b"<a>" + b" " * 20_000 + b"</a>")).problem


@given(data=st.binary(max_size=300))
def test_any_bytes_can_be_read(data: bytes) -> None:
    read("unit", data)
    read("unit", gzip.compress(b"<testsuite>" + data + b"</testsuite>"))
