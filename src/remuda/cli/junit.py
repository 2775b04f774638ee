"""JUnit reports of jobs, summed up: how many tests there were, and which failed where. Pure: bytes in, values out.

Decided here: what counts as a test case and as a failure, and how much of a message is kept. A report comes as the
runner uploads it: gzip, one member per file. Reports are written by whatever a job runs, so nothing in them is
trusted: entity declarations are refused, and sizes are bounded before and after unpacking. `remuda run` is the caller.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from xml.parsers import expat

LIMIT_BYTES = 32 * 1024 * 1024
"""Of all files of one report, unpacked."""
KEPT_FAILURES = 200
"""Per job; the totals count all."""
KEPT_LINES = 8
KEPT_CHARACTERS = 1000
_NAME_CHARACTERS = 300
_GZIP = zlib.MAX_WBITS | 16
_BAD_KINDS = {"failure": "failed", "error": "error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TestFailure:
    """A test case that did not pass."""

    __test__ = False  # pytest: this is no test class

    suite: str
    name: str
    kind: str
    """failed, or error where it did not come to a verdict"""
    message: str = ""
    """The first lines of what the report says."""
    file: str = ""
    line: int | None = None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file and self.line is not None else self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class TestReport:
    """All test cases of a job."""

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
    """The report of a job; `data` as it was uploaded."""
    report = TestReport(job=job)
    try:
        for text in _members(data):
            report = _Reading(report).read(text)
    except _UnreadableError as error:
        report = replace(report, problem=str(error))
    return report


class _UnreadableError(Exception):
    """What is wrong with a report."""


def _members(data: bytes) -> Iterator[bytes]:
    """The files of an upload. One that is not packed is taken as it is."""
    left = LIMIT_BYTES
    if not data.startswith(b"\x1f\x8b"):
        if len(data) > left:
            raise _UnreadableError(f"it is larger than {LIMIT_BYTES >> 20} MiB")
        yield data
        return
    while data:
        unpacking = zlib.decompressobj(_GZIP)
        try:
            text = unpacking.decompress(data, left + 1)
        except zlib.error as error:
            raise _UnreadableError(f"it is damaged: {error}") from None
        left -= len(text)
        if left < 0:
            raise _UnreadableError(f"it is larger than {LIMIT_BYTES >> 20} MiB")
        if not unpacking.eof:
            raise _UnreadableError("it is cut off")
        yield text
        # What follows may be padding, which no member begins with.
        data = unpacking.unused_data.lstrip(b"\0")


class _Reading:
    """One file on top of what is known."""

    def __init__(self, report: TestReport) -> None:
        self._tests, self._skipped = report.tests, report.skipped
        self._counts = {"failed": report.failed, "error": report.errors}
        self._job = report.job
        self._failures = list(report.failures)
        self._suites: list[str] = []
        # The case that is being read: its attributes, its verdict, and the text of that.
        self._case: dict[str, str] | None = None
        self._verdict = ""
        self._said = ""
        self._text: list[str] | None = None
        self._length = 0

    def read(self, text: bytes) -> TestReport:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = _refuse
        parser.ExternalEntityRefHandler = _refuse
        if text.strip():
            try:
                parser.Parse(text, True)
            except expat.ExpatError as error:
                raise _UnreadableError(f"it is no XML: {error}") from None
            except (ValueError, LookupError) as error:
                raise _UnreadableError(f"its encoding is not known: {error}") from None
        return TestReport(
            job=self._job,
            tests=self._tests,
            failed=self._counts["failed"],
            errors=self._counts["error"],
            skipped=self._skipped,
            failures=tuple(self._failures),
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "testsuite":
            self._suites.append(attributes.get("name", ""))
        elif tag == "testcase":
            self._tests += 1
            self._case, self._verdict, self._said = attributes, "", ""
        elif self._case is not None and not self._verdict and (tag == "skipped" or tag in _BAD_KINDS):
            self._verdict = _BAD_KINDS.get(tag, tag)
            self._said = attributes.get("message") or attributes.get("type") or ""
            self._text, self._length = [], 0

    def _characters(self, text: str) -> None:
        if self._text is not None and self._length < KEPT_CHARACTERS:
            self._text.append(text)
            self._length += len(text)

    def _end(self, tag: str) -> None:
        if tag == "testsuite":
            del self._suites[-1:]
        elif tag == "testcase":
            self._finish_case()
        elif self._text is not None and (tag == "skipped" or tag in _BAD_KINDS):
            text = "".join(self._text).strip()
            # A message that the text begins with, or holds, would be said twice.
            self._said = text if self._said.strip() in text else f"{self._said}\n{text}"
            self._text = None

    def _finish_case(self) -> None:
        case, self._case = self._case or {}, None
        if self._verdict == "skipped":
            self._skipped += 1
        elif self._verdict:
            self._counts[self._verdict] += 1
            if len(self._failures) < KEPT_FAILURES:
                self._failures.append(self._failure(case))

    def _failure(self, case: dict[str, str]) -> TestFailure:
        line = case.get("line", "")
        suite = case.get("classname") or next((name for name in reversed(self._suites) if name), "")
        return TestFailure(
            suite=_one_line(suite),
            name=_one_line(case.get("name", "")),
            kind=self._verdict,
            message=_first_lines(self._said),
            file=_one_line(case.get("file", "")),
            line=int(line) if line.isascii() and line.isdigit() and len(line) < 10 else None,
        )


def _refuse(*_details: object) -> int:
    raise _UnreadableError("it declares entities, which a report has no use for")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_NAME_CHARACTERS]


def _first_lines(text: str) -> str:
    lines = text.strip()[:KEPT_CHARACTERS].splitlines()
    more = len(lines) > KEPT_LINES or len(text.strip()) > KEPT_CHARACTERS
    return "\n".join([*lines[:KEPT_LINES], *(["..."] if more else [])])
