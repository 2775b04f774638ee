"""Combines the JUnit reports of a pipeline's jobs into its test report.

As in GitLab, only the newest attempt of each job is used. The results of a job are a suite; the parts of a parallel job
are one suite together. If a report cannot be read, its suite shows the error, and the other suites are complete. If
there are very many test cases, not all are listed, but all are counted."""

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from remuda.cell.blobs.port import Blobs
from remuda.cell.blobs.upload_parsers import Parsers
from remuda.cell.errors import NotFoundError
from remuda.cell.store.ports import Store
from remuda.cell.values import Artifact, Job
from remuda.model.job import PipelineId
from remuda.wire.junit import JunitLimits, JunitReader, TestCase, UnreadableError

LISTED_CASES = 20_000
LISTED_BYTES = 16 * 1024 * 1024
"""For one pipeline: how many cases are listed, and how much memory their texts may take."""
COST_BYTES = 128 * 1024 * 1024
"""The most memory that reading the reports of a pipeline takes: the listed cases, their JSON, and one tag with all its
attributes."""
_PART = re.compile(r"\s+[0-9]+/[0-9]+\s*$")
JUNIT = "junit"


class Report(msgspec.Struct, frozen=True):
    """A JUnit report artifact and the job that uploaded it."""

    job: Job
    artifact: Artifact


class Suite(msgspec.Struct):
    """The test results of one job, or of all parts of a parallel job."""

    name: str
    job_ids: list[int] = msgspec.field(default_factory=list)
    cases: list[TestCase] = msgspec.field(default_factory=list)
    statuses: Counter[str] = msgspec.field(default_factory=Counter)
    seconds: float = 0.0
    error: str | None = None
    """Why a report, or a part of it, could not be read."""

    def count(self, case: TestCase) -> None:
        self.statuses[case.status] += 1
        self.seconds += case.seconds


class _Room(msgspec.Struct):
    """How many more test cases, and bytes of their text, a test report may list while it is built."""

    cases: int = LISTED_CASES
    bytes: int = LISTED_BYTES

    def cut(self, case: TestCase) -> TestCase | None:
        """Reserve room for a case and return it, without its output if only that does not fit; None if it does not."""
        self.cases -= 1
        self.bytes -= sum(_width(text) for text in (case.name, case.classname, case.file or ""))
        if self.cases < 0 or self.bytes < 0:
            return None
        output = _width(case.output or "")
        if output > self.bytes:
            return msgspec.structs.replace(case, output=None)
        self.bytes -= output
        return case


def _width(text: str) -> int:
    """Estimate the memory of a text in bytes: Python stores each character of a non-ASCII text in up to four bytes."""
    return len(text) if text.isascii() else 4 * len(text)


async def find_reports(store: Store, pipeline_id: PipelineId) -> list[Report]:
    """Return the JUnit reports of a pipeline, in the order of its jobs."""
    family = await store.pipelines.load_family(pipeline_id)
    jobs = {job.id: job for job in family.jobs} if family else {}
    artifacts = await store.jobs.list_artifacts_of(jobs)
    return [Report(jobs[artifact.job_id], artifact) for artifact in artifacts if artifact.type == JUNIT]


async def read_suites(
    blobs: Blobs,
    parsers: Parsers,
    reports: Sequence[Report],
    *,
    limits: JunitLimits,
    total_bytes: int,
    with_cases: bool,
) -> list[Suite]:
    """Read the JUnit reports, until `total_bytes` (decompressed) are read. The suites of reports that are not read any
    more get an error. `with_cases`: list the test cases, not only their number. Returns the suites in the order of the
    jobs. The caller must have reserved `COST_BYTES` of memory (`Parsers.reserve`)."""
    suites: dict[str, Suite] = {}
    room = _Room() if with_cases else None
    bytes_left = total_bytes
    for report in reports:
        name = _PART.sub("", report.job.name)
        suite = suites.setdefault(name, Suite(name))
        suite.job_ids.append(report.job.id)
        if bytes_left <= 0:
            suite.error = f"the reports of the pipeline are larger than {total_bytes} bytes together; not all are read"
            continue
        bytes_left -= await _read(blobs, parsers, report.artifact, suite, room, limits)
    return list(suites.values())


async def _read(
    blobs: Blobs, parsers: Parsers, report: Artifact, suite: Suite, room: _Room | None, limits: JunitLimits
) -> int:
    """Count a report's test cases in `suite`; list them if `room` allows (None: no). Returns its decompressed size."""

    def take(case: TestCase) -> None:
        suite.count(case)
        if room is None:
            return
        listed = room.cut(case)
        if listed is not None:
            suite.cases.append(listed)
        else:
            suite.error = (
                f"of a pipeline with more than {LISTED_CASES} test cases, or {LISTED_BYTES} bytes of their names, "
                "not all are listed"
            )

    reader = JunitReader(take, limits=limits, is_packed=report.format == "gzip")
    try:
        async for piece in blobs.read(report.blob):
            await parsers.run(reader.feed, piece)
        await parsers.run(reader.close)
    except UnreadableError as error:
        suite.error = f"JUnit XML parsing failed: {error}"
    except NotFoundError:
        suite.error = "the report is gone"
    return reader.read_bytes
