"""Summarizes the JUnit reports of jobs for `remuda run`: how many tests there were, and which failed. Pure.
`remuda.wire.junit` parses the XML; this module limits how many failures are kept, and how much of each."""

from collections import Counter

import msgspec

from remuda.wire.junit import JunitLimits, JunitReader, TestCase, UnreadableError

LIMIT_BYTES = 32 * 1024 * 1024
"""Size limit for all files of one report together, unpacked."""
KEPT_FAILURES = 200
"""Per job; the totals count all."""
KEPT_LINES = 8
KEPT_CHARACTERS = 1000
_NAME_CHARACTERS = 300
_GZIP = b"\x1f\x8b"


class TestFailure(msgspec.Struct, frozen=True, kw_only=True):
    __test__ = False  # pytest: this is no test class

    suite: str
    name: str
    kind: str
    """`failed`, or `error` if the test ended without a verdict."""
    message: str = ""
    """The first lines of its output."""
    file: str = ""
    line: int | None = None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file and self.line is not None else self.file


class TestReport(msgspec.Struct, frozen=True, kw_only=True):
    __test__ = False

    job: str
    tests: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    failures: tuple[TestFailure, ...] = ()
    problem: str = ""
    """Why the report, or a part of it, cannot be read."""

    @property
    def passed(self) -> int:
        return self.tests - self.failed - self.errors - self.skipped


def read(job: str, data: bytes) -> TestReport:
    """Parse a JUnit report, gzipped or not. `job`: the job's name. If the report is damaged, the result has the test
    cases before the damage, and the reason in `problem`."""
    counts: Counter[str] = Counter()
    failures: list[TestFailure] = []

    def take(case: TestCase) -> None:
        counts[case.status] += 1
        if case.status in ("failed", "error") and len(failures) < KEPT_FAILURES:
            failures.append(_failure(case))

    problem = ""
    reader = JunitReader(take, limits=JunitLimits(bytes=LIMIT_BYTES), is_packed=data.startswith(_GZIP))
    try:
        reader.feed(data)
        reader.close()
    except UnreadableError as error:
        problem = str(error)
    return TestReport(
        job=job,
        tests=counts.total(),
        failed=counts["failed"],
        errors=counts["error"],
        skipped=counts["skipped"],
        failures=tuple(failures),
        problem=problem,
    )


def _failure(case: TestCase) -> TestFailure:
    return TestFailure(
        suite=_one_line(case.classname or case.suite),
        name=_one_line(case.name),
        kind=case.status,
        message=_first_lines(case.output or ""),
        file=_one_line(case.file or ""),
        line=case.line,
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_NAME_CHARACTERS]


def _first_lines(text: str) -> str:
    lines = text.strip()[:KEPT_CHARACTERS].splitlines()
    more = len(lines) > KEPT_LINES or len(text.strip()) > KEPT_CHARACTERS
    return "\n".join([*lines[:KEPT_LINES], *(["..."] if more else [])])
