"""The test report of a pipeline: what its jobs' JUnit reports say together.

Decided here, as in GitLab: the newest try of each job counts; a suite is a job, and the parts of a parallel job are one
suite; a report that cannot be read is said in its suite and spoils nothing else. Reports are read anew whenever
somebody asks, piece by piece and in a thread; of a very large one not all cases are told, but all are counted.
`remuda.wire.junit` reads them, `remuda.cell.http.test_reports` is the caller.
"""

import asyncio
import re
from collections import Counter

import msgspec

from remuda.cell.errors import NotFoundError
from remuda.cell.ports import Blobs, Store
from remuda.cell.values import Artifact, Job
from remuda.model.job import PipelineId
from remuda.wire.junit import JunitReader, TestCase, UnreadableError

TOLD_CASES = 20_000
TOLD_CHARACTERS = 16 * 1024 * 1024
"""Of one pipeline: so many cases are told, and so much of what their reports say about them."""
_PART = re.compile(r"\s+[0-9]+/[0-9]+\s*$")
JUNIT = "junit"


class Suite(msgspec.Struct):
    """What one job, or all parts of one, tested."""

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
    """What may still be told."""

    cases: int
    characters: int = TOLD_CHARACTERS

    def cut(self, case: TestCase) -> TestCase:
        """The case, without its output when there is no more room for that."""
        self.cases -= 1
        self.characters -= len(case.output or "")
        return case if self.characters >= 0 else msgspec.structs.replace(case, output=None)


async def suites_of(
    store: Store, blobs: Blobs, pipeline_id: PipelineId, *, limit_bytes: int, with_cases: bool
) -> list[Suite]:
    """The suites of a pipeline, in the order of its jobs."""
    family = await store.family(pipeline_id)
    suites: dict[str, Suite] = {}
    room = _Room(TOLD_CASES) if with_cases else None
    for job in family.jobs if family else ():
        report = next((one for one in await store.artifacts(job.id) if one.type == JUNIT), None)
        if report is None:
            continue
        suite = suites.setdefault(_suite_name(job), Suite(_suite_name(job)))
        suite.job_ids.append(job.id)
        await _read(blobs, report, suite, room, limit_bytes=limit_bytes)
    return list(suites.values())


def _suite_name(job: Job) -> str:
    return _PART.sub("", job.name)


async def _read(blobs: Blobs, report: Artifact, suite: Suite, room: _Room | None, *, limit_bytes: int) -> None:
    def take(case: TestCase) -> None:
        suite.count(case)
        if room is not None and room.cases:
            suite.cases.append(room.cut(case))
        elif room is not None:
            suite.error = f"of a pipeline with more than {TOLD_CASES} test cases not all are listed"

    reader = JunitReader(take, limit_bytes=limit_bytes, is_packed=report.format == "gzip")
    try:
        async for piece in blobs.read(report.blob):
            await asyncio.to_thread(reader.feed, piece)
        await asyncio.to_thread(reader.close)
    except UnreadableError as error:
        suite.error = f"JUnit XML parsing failed: {error}"
    except NotFoundError:
        suite.error = "the report is gone"
