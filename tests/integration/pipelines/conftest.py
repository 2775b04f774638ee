"""Pushes the repositories of examples/pipelines to a real cell with a real manager and agent, and waits for results.

One lab serves all tests of a worker; each test has its own projects.
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
"""Statuses of a pipeline that does not change by itself any more; `manual` waits for a user."""


@dataclass
class Outcome:
    """A pipeline with its jobs and its trigger jobs (`bridges`) by name."""

    project: Any
    pipeline: Any
    jobs: dict[str, Any]
    bridges: dict[str, Any]

    @property
    def status(self) -> str:
        return str(self.pipeline.status)

    @property
    def statuses(self) -> dict[str, str]:
        """The status of every job and trigger job by name."""
        return {name: job.status for name, job in (self.jobs | self.bridges).items()}

    def output(self, job: str) -> list[str]:
        """Return the lines that a job's script printed, without the lines that show the commands."""
        lines = script_output(bytes(self.jobs[job].trace())).decode().splitlines()
        return [line for line in lines if not line.startswith("\x1b[32;1m$ ")]

    def trace(self, job: str) -> str:
        return bytes(self.jobs[job].trace()).decode()

    def files(self, job: str) -> dict[str, str]:
        """Return the texts of the files in a job's artifacts by path; binary content is replaced."""
        with ZipFile(BytesIO(self.jobs[job].artifacts())) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
            return {name: archive.read(name).decode(errors="replace") for name in names}

    def artifact_types(self, job: str) -> set[str]:
        """Return the types of a job's artifacts: the archive, reports, the trace."""
        return {artifact["file_type"] for artifact in self.jobs[job].attributes["artifacts"]}

    def report(self, job: str, kind: str) -> str:
        """Return the text of a job's report."""
        path = f"/projects/{self.project.id}/jobs/{self.jobs[job].id}/artifacts"
        content = self.project.manager.gitlab.http_get(path, query_data={"file_type": kind}, raw=True).content
        return gzip.decompress(content).decode()

    def downstream(self, bridge: str) -> tuple[int, int]:
        """Return the project id and the id of the pipeline that a trigger job started."""
        pipeline = self.bridges[bridge].downstream_pipeline
        return pipeline["project_id"], pipeline["id"]


class Cell:
    """API client of the lab's cell."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.api: gitlab.Gitlab = connect(lab)

    def address(self, path: str) -> str:
        return f"http://oauth2:{ADMIN_TOKEN}@127.0.0.1:{self.lab.port}/{path}.git"

    def wait_for_pipeline(
        self, project: Any, pipeline_id: int, *, rest: frozenset[str] = AT_REST, seconds: float = 60
    ) -> Outcome:
        """Wait until the pipeline has one of the statuses `rest`, and return it."""
        deadline = time.monotonic() + seconds
        while (pipeline := project.pipelines.get(pipeline_id)).status not in rest:
            if time.monotonic() > deadline:
                jobs = [(job.name, job.status) for job in pipeline.jobs.list(get_all=True)]
                raise LabError(f"the pipeline is still {pipeline.status}: {jobs}\n{self.lab.cell.tail()}")
            time.sleep(0.05)
        return self.load_outcome(project, pipeline)

    def load_outcome(self, project: Any, pipeline: Any) -> Outcome:
        """Load the jobs of a pipeline as they are now."""
        return Outcome(
            project=project,
            pipeline=pipeline,
            jobs={job.name: project.jobs.get(job.id) for job in pipeline.jobs.list(get_all=True)},
            bridges={bridge.name: bridge for bridge in pipeline.bridges.list(get_all=True)},
        )

    def wait_for_downstream(self, outcome: Outcome, bridge: str) -> Outcome:
        """Wait for the pipeline that a trigger job started, and return it."""
        project_id, pipeline_id = outcome.downstream(bridge)
        return self.wait_for_pipeline(self.api.projects.get(project_id), pipeline_id)

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
        """Push these refs, by default main. `quietly`: do not start a pipeline."""
        options = ("--push-option=ci.skip",) if quietly else ()
        self.git("push", "--quiet", *options, "origin", *(refs or ("main",)))

    def pipelines(self, **filters: Any) -> list[Any]:
        return list(self.project.pipelines.list(get_all=True, **filters))

    def push_and_wait(self, *refs: str, **options: Any) -> Outcome:
        """Push, and wait for the end of the one pipeline that this push starts."""
        before = {pipeline.id for pipeline in self.existing_pipelines()}
        self.push(*refs)
        [new] = [pipeline for pipeline in self.pipelines() if pipeline.id not in before]
        return self.cell.wait_for_pipeline(self.project, new.id, **options)

    def existing_pipelines(self) -> list[Any]:
        """Return the project's pipelines; empty before the first push, because the project does not exist yet."""
        try:
            return self.pipelines()
        except gitlab.GitlabGetError:
            return []

    def start_and_wait(
        self, *, ref: str = "main", variables: Mapping[str, str] | None = None, **options: Any
    ) -> Outcome:
        """Start a pipeline over the API, and wait for its end."""
        pipeline_variables = [{"key": key, "value": value} for key, value in (variables or {}).items()]
        pipeline = self.project.pipelines.create({"ref": ref, "variables": pipeline_variables})
        return self.cell.wait_for_pipeline(self.project, pipeline.id, **options)


@pytest.fixture(scope="session")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    with Lab(tmp_path_factory.mktemp("lab"), concurrent=4) as lab:
        yield Cell(lab)


@pytest.fixture
def clone(cell: Cell, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., ExampleClone]:
    """A function that makes a clone with a copy of an example. The first push creates its project."""

    def make(example: str, path: str | None = None) -> ExampleClone:
        test = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
        name = path or f"{test[:60].strip('-')}/{example}"
        clone = ExampleClone(cell, tmp_path / name, name)
        shutil.copytree(EXAMPLES / example, clone.folder, dirs_exist_ok=True)
        clone.git("init", "--quiet", "--initial-branch=main")
        clone.git("remote", "add", "origin", cell.address(name))
        clone.commit("First commit")
        return clone

    return make
