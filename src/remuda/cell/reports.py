"""The test report of a pipeline: what its jobs' JUnit reports say together.

Decided here, as in GitLab: the newest try of each job counts; a suite is a job, and the parts of a parallel job are one
suite; a report that cannot be read is said in its suite and spoils nothing else. Reports are read anew whenever
somebody asks, piece by piece and in a thread; of a very large one not all cases are told, but all are counted.
`core.junit` reads them, `remuda.cell.http.test_reports` is the caller.
"""

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field

from remuda.cell.core.junit import JunitReader, TestCase
from remuda.cell.errors import InvalidError, NotFoundError
from remuda.cell.ports import Blobs, Store
from remuda.cell.values import Artifact, Job
from remuda.model.job import PipelineId

TOLD_CASES = 20_000
"""Of one pipeline; what makes an answer of some ten mebibytes."""
_PART = re.compile(r"\s+[0-9]+/[0-9]+\s*$")
JUNIT = "junit"


@dataclass(slots=True)
class Suite:
    """What one job, or all parts of one, tested."""

    name: str
    job_ids: list[int] = field(default_factory=list)
    cases: list[TestCase] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    error: str | None = None
    """Why a report, or a part of it, could not be read."""

    def count(self, case: TestCase) -> None:
        self.statuses[case.status] += 1
        self.seconds += case.seconds


async def suites_of(
    store: Store, blobs: Blobs, pipeline_id: PipelineId, *, limit_bytes: int, with_cases: bool
) -> list[Suite]:
    """The suites of a pipeline, in the order of its jobs."""
    family = await store.family(pipeline_id)
    suites: dict[str, Suite] = {}
    told = 0
    for job in family.jobs if family else ():
        report = next((one for one in await store.artifacts(job.id) if one.type == JUNIT), None)
        if report is None:
            continue
        suite = suites.setdefault(_suite_name(job), Suite(_suite_name(job)))
        suite.job_ids.append(job.id)
        before = len(suite.cases)
        await _read(blobs, report, suite, limit_bytes=limit_bytes, may_tell=TOLD_CASES - told if with_cases else 0)
        told += len(suite.cases) - before
    return list(suites.values())


def _suite_name(job: Job) -> str:
    return _PART.sub("", job.name)


async def _read(blobs: Blobs, report: Artifact, suite: Suite, *, limit_bytes: int, may_tell: int) -> None:
    most = len(suite.cases) + may_tell

    def take(case: TestCase) -> None:
        suite.count(case)
        if len(suite.cases) < most:
            suite.cases.append(case)
        elif may_tell:
            suite.error = f"of a pipeline with more than {TOLD_CASES} test cases not all are listed"

    reader = JunitReader(take, limit_bytes=limit_bytes, is_packed=report.format == "gzip")
    try:
        async for piece in blobs.read(report.blob):
            await asyncio.to_thread(reader.feed, piece)
        await asyncio.to_thread(reader.close)
    except InvalidError as error:
        suite.error = f"JUnit XML parsing failed: {error}"
    except NotFoundError:
        suite.error = "the report is gone"
