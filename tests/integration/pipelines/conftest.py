"""The repositories of examples/pipelines in a real cell, with a real manager and agent: what a test pushes and sees.

One lab serves all tests of a worker; each test has projects of its own. A `Clone` is a work tree as a developer has it,
`Outcome` is a pipeline that has come to rest.
"""

import gzip
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import gitlab
import pytest
from tests.support.git_client import Clone

from remuda.testing.client import connect, script_output
from remuda.testing.lab import ADMIN_TOKEN, Lab, LabError

EXAMPLES = Path(__file__).parents[3] / "examples/pipelines"
AT_REST = frozenset({"success", "failed", "canceled", "skipped", "manual"})
"""A pipeline that waits for a person does nothing by itself any more."""


@dataclass
class Outcome:
    """A pipeline, and its jobs by name: those that run scripts, and those that start other pipelines."""

    project: Any
    pipeline: Any
    jobs: dict[str, Any]
    bridges: dict[str, Any]

    @property
    def status(self) -> str:
        return str(self.pipeline.status)

    @property
    def states(self) -> dict[str, str]:
        """How every job stands."""
        return {name: job.status for name, job in (self.jobs | self.bridges).items()}

    def said(self, job: str) -> list[str]:
        """What a job's commands printed; the log's own lines with the commands are left out."""
        lines = script_output(bytes(self.jobs[job].trace())).decode().splitlines()
        return [line for line in lines if not line.startswith("\x1b[32;1m$ ")]

    def trace(self, job: str) -> str:
        return bytes(self.jobs[job].trace()).decode()

    def files(self, job: str) -> dict[str, str]:
        """The files of a job's artifacts; archives among them have no text."""
        with ZipFile(BytesIO(self.jobs[job].artifacts())) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
            return {name: archive.read(name).decode(errors="replace") for name in names}

    def kinds(self, job: str) -> set[str]:
        """What a job has uploaded: the archive, reports, the trace."""
        return {artifact["file_type"] for artifact in self.jobs[job].attributes["artifacts"]}

    def report(self, job: str, kind: str) -> str:
        """A report that a job has uploaded."""
        path = f"/projects/{self.project.id}/jobs/{self.jobs[job].id}/artifacts"
        content = self.project.manager.gitlab.http_get(path, query_data={"file_type": kind}, raw=True).content
        return gzip.decompress(content).decode()

    def downstream(self, bridge: str) -> tuple[int, int]:
        """Project and number of the pipeline that a trigger job started."""
        started = self.bridges[bridge].downstream_pipeline
        return started["project_id"], started["id"]


class Cell:
    """The lab's cell as an ordinary client sees it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.api: gitlab.Gitlab = connect(lab)

    def address(self, path: str) -> str:
        return f"http://oauth2:{ADMIN_TOKEN}@127.0.0.1:{self.lab.port}/{path}.git"

    def outcome(
        self, project: Any, pipeline_id: int, *, rest: frozenset[str] = AT_REST, seconds: float = 60
    ) -> Outcome:
        """The pipeline once it is at rest."""
        deadline = time.monotonic() + seconds
        while (pipeline := project.pipelines.get(pipeline_id)).status not in rest:
            if time.monotonic() > deadline:
                jobs = [(job.name, job.status) for job in pipeline.jobs.list(get_all=True)]
                raise LabError(f"the pipeline is still {pipeline.status}: {jobs}\n{self.lab.cell.tail()}")
            time.sleep(0.05)
        return self.seen(project, pipeline)

    def seen(self, project: Any, pipeline: Any) -> Outcome:
        """The pipeline as it is now."""
        return Outcome(
            project=project,
            pipeline=pipeline,
            jobs={job.name: project.jobs.get(job.id) for job in pipeline.jobs.list(get_all=True)},
            bridges={bridge.name: bridge for bridge in pipeline.bridges.list(get_all=True)},
        )

    def downstream(self, outcome: Outcome, bridge: str) -> Outcome:
        """The pipeline that a trigger job started."""
        project_id, pipeline_id = outcome.downstream(bridge)
        return self.outcome(self.api.projects.get(project_id), pipeline_id)

    def until(self, true: Callable[[], object], what: str, seconds: float = 30) -> None:
        self.lab.wait_until(true, what, seconds)


class ExampleClone(Clone):
    """A work tree with an origin in the cell."""

    def __init__(self, cell: Cell, folder: Path, path: str) -> None:
        super().__init__(folder)
        self.cell = cell
        self.path = path

    @property
    def project(self) -> Any:
        return self.cell.api.projects.get(self.path)

    def push(self, *refs: str, quietly: bool = False) -> None:
        """Push; `quietly` without starting anything."""
        options = ("--push-option=ci.skip",) if quietly else ()
        self.git("push", "--quiet", *options, "origin", *(refs or ("main",)))

    def pipelines(self, **filters: Any) -> list[Any]:
        return list(self.project.pipelines.list(get_all=True, **filters))

    def pushed(self, *refs: str, **options: Any) -> Outcome:
        """Push, and wait until the one pipeline that this started is at rest."""
        before = {pipeline.id for pipeline in self.known()}
        self.push(*refs)
        [new] = [pipeline for pipeline in self.pipelines() if pipeline.id not in before]
        return self.cell.outcome(self.project, new.id, **options)

    def known(self) -> list[Any]:
        """The pipelines there are; none before the project is there."""
        try:
            return self.pipelines()
        except gitlab.GitlabGetError:
            return []

    def started(self, *, ref: str = "main", variables: Mapping[str, str] | None = None, **options: Any) -> Outcome:
        """A pipeline that a person starts."""
        given = [{"key": key, "value": value} for key, value in (variables or {}).items()]
        pipeline = self.project.pipelines.create({"ref": ref, "variables": given})
        return self.cell.outcome(self.project, pipeline.id, **options)


@pytest.fixture(scope="session")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    with Lab(tmp_path_factory.mktemp("lab"), concurrent=4) as lab:
        yield Cell(lab)


@pytest.fixture
def clone(cell: Cell, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., ExampleClone]:
    """Make a committed copy of an example; its project is there after the first push."""

    def make(example: str, path: str | None = None) -> ExampleClone:
        test = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
        name = path or f"{test[:60].strip('-')}/{example}"
        made = ExampleClone(cell, tmp_path / name, name)
        shutil.copytree(EXAMPLES / example, made.folder, dirs_exist_ok=True)
        made.git("init", "--quiet", "--initial-branch=main")
        made.git("remote", "add", "origin", cell.address(name))
        made.commit("First commit")
        return made

    return make
