import io
import zipfile
from collections.abc import AsyncIterator

import pytest

from remuda.cell.errors import StoreError
from remuda.cell.values import Artifact, Family, Job, Pipeline
from remuda.lib.clock import settle
from remuda.model.job import JobState, PipelineId
from remuda.pipeline import Trigger
from remuda.testing.builders import a_pipeline, a_project, a_spec, new_jobs
from remuda.testing.memory_cell import MemoryCell

CHILD = "child-job: {script: make}"
DEPEND = "go: {trigger: {include: child.yml, strategy: depend}}\nafter: {stage: deploy, script: x}"


@pytest.fixture
async def cell() -> MemoryCell:
    cell = await MemoryCell.open()
    cell.files[cell.project.path] = {"child.yml": CHILD}
    return cell


async def job_of(cell: MemoryCell, family: Family, name: str = "go") -> Job:
    """The newest try of a job."""
    now = await cell.store.family(family.pipeline.id)
    assert now is not None
    return next(job for job in now.jobs if job.name == name)


async def child_of(cell: MemoryCell, family: Family, name: str = "go") -> Family:
    """The pipeline that a trigger job started."""
    pipeline = await cell.store.downstream((await job_of(cell, family, name)).id)
    assert pipeline is not None
    found = await cell.store.family(pipeline.id)
    assert found is not None
    return found


async def run_one(cell: MemoryCell, state: str = "success") -> str:
    """Run the next job that waits for a runner; its name."""
    job, token = await cell.start()
    await cell.put(token, state, reason=None if state == "success" else "script_failure")
    await settle()
    return job.name


async def failure(cell: MemoryCell, text: str) -> tuple[str | None, str]:
    """Why the trigger job of a file fails."""
    family = await cell.push_file(text)
    async with cell.watching():
        await settle()
    job = await job_of(cell, family)
    assert job.state is JobState.FAILED
    return job.failure_reason, job.failure_message or ""


class TestAChild:
    async def test_is_started_at_once_and_never_by_a_runner(self, cell: MemoryCell) -> None:
        async with cell.watching():
            family = await cell.push_file("go: {trigger: {include: child.yml}}")
            assert cell.dispatch.waiting() == 0
            await settle()
            assert await cell.statuses(family) == {"go": "success", "pipeline": "success"}
            child = await child_of(cell, family)
            assert await run_one(cell) == "child-job"
        job = await job_of(cell, family)
        assert (job.downstream_id, job.started_at, job.trace_checksum) == (child.pipeline.id, cell.clock.now(), None)
        pipeline = child.pipeline
        assert (pipeline.source, pipeline.is_child, pipeline.depth) == ("parent_pipeline", True, 1)
        assert (pipeline.ref, pipeline.sha) == (family.pipeline.ref, family.pipeline.sha)

    async def test_gets_the_files_variables_expanded(self, cell: MemoryCell) -> None:
        text = """
            variables: {ENV: prod, NAME: "$CI_PROJECT_NAME-$ENV", RAW: {value: "$ENV", expand: false}}
            go: {variables: {OWN: "$NAME"}, trigger: {include: child.yml}}
        """
        async with cell.watching():
            family = await cell.push_file(text, {"GIVEN": "x", "ENV": "test"})
            await settle()
        child = await child_of(cell, family)
        assert child.pipeline.variables == {"ENV": "prod", "NAME": "shop-test", "RAW": "$ENV", "OWN": "shop-test"}

    @pytest.mark.parametrize(
        ("forward", "expected"),
        [
            ("{yaml_variables: false}", {}),
            ("{pipeline_variables: true}", {"A": "given", "B": "2", "C": "left", "GIVEN": "x"}),
            ("{yaml_variables: false, pipeline_variables: true}", {"A": "given", "C": "left", "GIVEN": "x"}),
        ],
    )
    async def test_gets_what_is_forwarded(self, cell: MemoryCell, forward: str, expected: dict[str, str]) -> None:
        text = f"""
            variables: {{A: "1", B: "2"}}
            make: {{stage: build, script: x, artifacts: {{reports: {{dotenv: out.env}}}}}}
            go: {{trigger: {{include: child.yml, forward: {forward}}}}}
        """
        async with cell.watching():
            family = await cell.push_file(text, {"GIVEN": "x", "A": "given"})
            maker = await job_of(cell, family, "make")
            await cell.store.put_artifact(an_artifact(maker, type="dotenv", variables={"C": "left"}))
            await run_one(cell)
        assert (await child_of(cell, family)).pipeline.variables == expected

    async def test_may_have_several_files_and_inputs(self, cell: MemoryCell) -> None:
        cell.files[cell.project.path] |= {
            "a.yml": "spec: {inputs: {name: {}}}\n---\n'a $[[ inputs.name ]]': {script: x}",
            "b-1.yml": "b: {script: x}",
        }
        cell.files["acme/lib"] = {"c.yml": "c: {script: x}"}
        text = """
            go:
              variables: {N: "1"}
              trigger:
                include:
                  - {local: a.yml, inputs: {name: big}}
                  - b-$N.yml
                  - {project: acme/lib, file: c.yml, ref: main}
            one: {trigger: {include: [{local: a.yml, inputs: {name: small}}]}}
        """
        async with cell.watching():
            family = await cell.push_file(text)
            await settle()
        assert sorted(job.name for job in (await child_of(cell, family)).jobs) == ["a big", "b", "c"]
        assert [job.name for job in (await child_of(cell, family, "one")).jobs] == ["a small"]

    @pytest.mark.parametrize(("ref", "tag"), [("refs/tags/v1", True), ("refs/merge-requests/7/head", False)])
    async def test_is_of_the_same_ref(self, cell: MemoryCell, ref: str, tag: bool) -> None:
        async with cell.watching():
            family = await cell.push_file("go: {trigger: {include: child.yml}}", ref=ref)
            await settle()
        pipeline = (await child_of(cell, family)).pipeline
        assert (pipeline.ref, pipeline.tag, pipeline.merge_request_iid) == (
            family.pipeline.ref,
            tag,
            family.pipeline.merge_request_iid,
        )

    async def test_that_has_mistakes_fails_its_job_with_all_of_them(self, cell: MemoryCell) -> None:
        cell.files[cell.project.path]["child.yml"] = "a: {skript: x}\nb: {needs: [c], script: x}"
        reason, message = await failure(cell, "go: {trigger: {include: child.yml}}")
        assert reason == "downstream_pipeline_creation_failed"
        assert "child.yml:1:5" in message
        assert "child.yml:2" in message

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("go: {trigger: {include: missing.yml}}", "Missing CI config file"),
            ("go: {variables: {F: ../x}, trigger: {include: $F}}", "Missing CI config file"),
            ("go: {trigger: {include: [{artifact: a.yml, job: make}]}}", 'no job "make"'),
            ("go: {trigger: {include: [{artifact: a.yml, job: go}]}}", 'job "go" left no artifacts'),
            ("go: {variables: {V: $W$W, W: $X$X, X: '" + "x" * 30_000 + "'}, trigger: {include: $V}}", "longer than"),
        ],
    )
    async def test_that_is_not_there(self, cell: MemoryCell, text: str, expected: str) -> None:
        reason, message = await failure(cell, text)
        assert reason == "downstream_pipeline_creation_failed"
        assert expected in message


async def leave(cell: MemoryCell, job: Job, files: dict[str, bytes]) -> None:
    """Store an archive of a job."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)

    async def pieces() -> AsyncIterator[bytes]:
        yield packed.getvalue()

    await cell.blobs.put(f"job-{job.id}", pieces(), limit_bytes=10_000_000)
    await cell.store.put_artifact(an_artifact(job, blob=f"job-{job.id}"))


def an_artifact(job: Job, **given: object) -> Artifact:
    values: dict[str, object] = {
        "job_id": job.id,
        "type": "archive",
        "format": "zip",
        "filename": "artifacts.zip",
        "size": 1,
        "sha256": "",
        "blob": "",
        "created_at": 0.0,
    }
    return Artifact(**(values | given))  # type: ignore[arg-type]


class TestAGeneratedChild:
    text = """
        make: {stage: build, script: x, artifacts: {paths: [out]}}
        go: {trigger: {include: [{artifact: out/child.yml, job: make}], strategy: depend}}
    """

    async def started(self, cell: MemoryCell, files: dict[str, bytes]) -> Family:
        """The pipeline after the job that generates the child's file."""
        family = await cell.push_file(self.text)
        maker, token = await cell.start()
        await leave(cell, maker, files)
        await cell.put(token, "success")
        await cell.bridges.look((await job_of(cell, family)).id)
        return family

    async def test_comes_out_of_the_archive(self, cell: MemoryCell) -> None:
        family = await self.started(cell, {"out/child.yml": b"generated: {script: x}", "out/big": bytes(3_000_000)})
        assert [job.name for job in (await child_of(cell, family)).jobs] == ["generated"]
        assert (await cell.statuses(family))["go"] == "running"

    @pytest.mark.parametrize(
        ("files", "expected"),
        [
            ({"out/other.yml": b""}, 'out/child.yml is not among the artifacts of job "make"'),
            ({"out/child.yml": b"\xff"}, "is not UTF-8 (byte 0)"),
            ({"out/child.yml": b"#" * (1024 * 1024 + 1)}, "larger than 1048576 bytes"),
        ],
    )
    async def test_that_cannot_be_had(self, cell: MemoryCell, files: dict[str, bytes], expected: str) -> None:
        job = await job_of(cell, await self.started(cell, files))
        assert (job.state, job.failure_reason) == (JobState.FAILED, "downstream_pipeline_creation_failed")
        assert expected in (job.failure_message or "")

    async def test_must_be_the_only_file(self, cell: MemoryCell) -> None:
        self.text = self.text.replace("job: make}", "job: make}, child.yml")
        job = await job_of(cell, await self.started(cell, {"out/child.yml": b"a: {script: x}"}))
        assert "the only one" in (job.failure_message or "")


class TestAnotherProject:
    @pytest.fixture
    async def cell(self, cell: MemoryCell) -> MemoryCell:
        await cell.store.add_project(a_project(path="acme/Other"))
        cell.files["acme/Other"] = {".gitlab-ci.yml": "other-job: {script: x}"}
        return cell

    async def test_runs_its_own_file(self, cell: MemoryCell) -> None:
        async with cell.watching():
            family = await cell.push_file("go: {variables: {P: other}, trigger: {project: acme/$P, branch: main}}")
            await settle()
        started = await child_of(cell, family)
        project = await cell.store.project(started.pipeline.project_id)
        assert project is not None
        assert (project.path, started.pipeline.source, started.pipeline.is_child) == ("acme/Other", "pipeline", False)
        assert [job.name for job in started.jobs] == ["other-job"]
        assert (await cell.statuses(family))["go"] == "success"

    @pytest.mark.parametrize(
        ("trigger", "reason", "message"),
        [
            ("acme/nowhere", "downstream_bridge_project_not_found", 'no project "acme/nowhere"'),
            ("acme/shop", "invalid_bridge_trigger", "include"),
            ("{project: acme/other, branch: x}", "downstream_pipeline_creation_failed", 'no branch or tag "x"'),
        ],
    )
    async def test_that_is_not_there(self, cell: MemoryCell, trigger: str, reason: str, message: str) -> None:
        found = await failure(cell, f"go: {{trigger: {trigger}}}")
        assert found[0] == reason
        assert message in found[1]

    async def test_goes_on_when_its_trigger_job_is_canceled(self, cell: MemoryCell) -> None:
        async with cell.watching():
            family = await cell.push_file("go: {trigger: {project: acme/other, strategy: depend}}")
            await settle()
            await cell.dispatch.cancel_pipeline(family.pipeline.id)
            await settle()
            assert await cell.statuses(family) == {"go": "canceled", "pipeline": "canceled"}
            assert await run_one(cell) == "other-job"
            assert await cell.statuses(family) == {"go": "canceled", "pipeline": "canceled"}


class TestStrategies:
    @pytest.mark.parametrize(
        ("end", "status", "after"), [("success", "success", "pending"), ("failed", "failed", "skipped")]
    )
    async def test_one_that_depends_ends_as_its_pipeline_does(
        self, cell: MemoryCell, end: str, status: str, after: str
    ) -> None:
        async with cell.watching():
            family = await cell.push_file(DEPEND)
            await settle()
            assert await cell.statuses(family) == {"go": "running", "after": "created", "pipeline": "running"}
            await cell.clock.advance(7200)
            assert (await cell.statuses(family))["go"] == "running"
            await run_one(cell, end)
            job = await job_of(cell, family)
            assert (job.state.value, job.finished_at) == (status, cell.clock.now())
            assert (await cell.statuses(family))["after"] == after

    async def test_one_that_is_allowed_to_fail_lets_the_others_go_on(self, cell: MemoryCell) -> None:
        async with cell.watching():
            family = await cell.push_file(DEPEND.replace("go: {", "go: {allow_failure: true, "))
            await settle()
            await run_one(cell, "failed")
            assert (await cell.statuses(family))["after"] == "pending"

    @pytest.mark.parametrize(("strategy", "status"), [("depend", "failed"), ("mirror", "success")])
    async def test_a_pipeline_in_which_nothing_runs(self, cell: MemoryCell, strategy: str, status: str) -> None:
        cell.files[cell.project.path]["child.yml"] = "a: {script: x, when: manual, allow_failure: true}"
        async with cell.watching():
            family = await cell.push_file(f"go: {{trigger: {{include: child.yml, strategy: {strategy}}}}}")
            await settle()
        assert (await cell.statuses(family))["go"] == status

    async def test_a_pipeline_that_waits_for_a_person_is_waited_for(self, cell: MemoryCell) -> None:
        cell.files[cell.project.path]["child.yml"] = "a: {script: x, when: manual, allow_failure: false}"
        async with cell.watching():
            family = await cell.push_file(DEPEND)
            await settle()
            child = await child_of(cell, family)
            assert child.pipeline.status == "manual"
            assert (await cell.statuses(family))["go"] == "running"
            await cell.dispatch.play_job(child.jobs[0].id)
            await run_one(cell)
            assert (await cell.statuses(family))["go"] == "success"

    async def test_it_follows_through_several_pipelines(self, cell: MemoryCell) -> None:
        cell.files[cell.project.path] |= {
            "child.yml": "go: {trigger: {include: grandchild.yml, strategy: depend}}",
            "grandchild.yml": CHILD,
        }
        async with cell.watching():
            family = await cell.push_file(DEPEND)
            await settle()
            await run_one(cell, "failed")
            assert await cell.statuses(family) == {"go": "failed", "after": "skipped", "pipeline": "failed"}

    @pytest.mark.parametrize("end", ["success", "failed"])
    async def test_it_goes_on_when_its_pipeline_is_retried(self, cell: MemoryCell, end: str) -> None:
        async with cell.watching():
            family = await cell.push_file(DEPEND)
            await settle()
            await run_one(cell, "failed")
            child = await child_of(cell, family)
            await cell.dispatch.retry_pipeline(child.pipeline.id)
            await settle()
            assert await cell.statuses(family) == {"go": "running", "after": "created", "pipeline": "running"}
            job = await job_of(cell, family)
            assert (job.finished_at, job.failure_message, job.downstream_id) == (None, None, child.pipeline.id)
            await run_one(cell, end)
            assert (await cell.statuses(family))["go"] == end

    async def test_a_further_try_starts_a_further_pipeline(self, cell: MemoryCell) -> None:
        async with cell.watching():
            family = await cell.push_file(DEPEND)
            await settle()
            await run_one(cell, "failed")
            first = await child_of(cell, family)
            await cell.dispatch.retry_job((await job_of(cell, family)).id)
            await settle()
            second = await child_of(cell, family)
            assert second.pipeline.id != first.pipeline.id
            await cell.dispatch.retry_pipeline(first.pipeline.id)
            await settle()
            assert (await cell.statuses(family))["go"] == "running"
            assert await run_one(cell) == "child-job"
            assert (await cell.statuses(family))["go"] == "success"


class TestCancel:
    async def statuses(self, cell: MemoryCell, *pipelines: PipelineId) -> list[str]:
        found: list[Pipeline | None] = [await cell.store.pipeline(each) for each in pipelines]
        return [pipeline.status for pipeline in found if pipeline]

    @pytest.mark.parametrize("strategy", ["", ", strategy: depend"])
    async def test_a_pipeline_takes_its_children_along(self, cell: MemoryCell, strategy: str) -> None:
        cell.files[cell.project.path] |= {
            "child.yml": f"go: {{trigger: {{include: grandchild.yml{strategy}}}}}\nb: {{script: x}}",
            "grandchild.yml": CHILD,
        }
        async with cell.watching():
            family = await cell.push_file(f"go: {{trigger: {{include: child.yml{strategy}}}}}\na: {{script: x}}")
            await settle()
            child = await child_of(cell, family)
            grandchild = await child_of(cell, child)
            await cell.dispatch.cancel_pipeline(family.pipeline.id)
            await settle()
            assert cell.dispatch.waiting() == 0
            every = (family.pipeline.id, child.pipeline.id, grandchild.pipeline.id)
            assert await self.statuses(cell, *every) == ["canceled"] * 3

    async def test_a_trigger_job_takes_its_child_along_and_waits_for_it(self, cell: MemoryCell) -> None:
        async with cell.watching():
            family = await cell.push_file(DEPEND)
            await settle()
            _, token = await cell.start(graceful=True)
            await cell.dispatch.cancel_job((await job_of(cell, family)).id)
            await settle()
            assert await cell.statuses(family) == {"go": "canceling", "after": "created", "pipeline": "running"}
            await cell.put(token, "failed", reason="job_canceled")
            await settle()
            assert await cell.statuses(family) == {"go": "canceled", "after": "skipped", "pipeline": "canceled"}

    async def test_a_failure_that_stops_all_stops_children_too(self, cell: MemoryCell) -> None:
        text = """
            workflow: {auto_cancel: {on_job_failure: all}}
            go: {trigger: {include: child.yml}}
            depends: {trigger: {include: child.yml, strategy: depend}}
            bad: {stage: build, script: x, tags: [linux]}
            worse: {script: x, needs: []}
        """
        async with cell.watching():
            family = await cell.push_file(text)
            assert await run_one(cell) == "bad"
            children = [await child_of(cell, family, name) for name in ("go", "depends")]
            await run_one(cell, "failed")
            assert await cell.statuses(family) == {
                "go": "success",
                "depends": "canceled",
                "bad": "success",
                "worse": "failed",
                "pipeline": "failed",
            }
            assert await self.statuses(cell, *(child.pipeline.id for child in children)) == ["canceled"] * 2

    async def test_before_the_pipeline_was_started(self, cell: MemoryCell) -> None:
        family = await cell.push_file(DEPEND)
        await cell.dispatch.cancel_job((await job_of(cell, family)).id)
        async with cell.watching():
            await settle()
        assert (await cell.statuses(family))["go"] == "canceled"
        assert await cell.store.downstream((await job_of(cell, family)).id) is None


class TestDeaths:
    """A process may die between any two changes; whoever comes after goes on from what is stored."""

    async def test_between_the_pipeline_and_its_trigger_job(
        self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        family = await cell.push_file(DEPEND)
        job = await job_of(cell, family)
        change, changes = cell.store.change_family, 0

        async def die(*given: object) -> object:
            nonlocal changes
            changes += 1
            if changes == 2:
                raise StoreError("gone")
            return await change(*given)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(cell.store, "change_family", die)
            with pytest.raises(StoreError):
                await cell.bridges.look(job.id)
        started = await cell.store.downstream(job.id)
        assert started is not None
        job = await cell.job(job.id)
        assert (job.state, job.downstream_id) == (JobState.RUNNING, None)

        cell = await cell.reopen()
        async with cell.watching():
            await settle()
            assert (await cell.job(job.id)).downstream_id == started.id
            await run_one(cell)
            assert (await cell.statuses(family))["go"] == "success"
            assert await cell.store.downstream(job.id) == await cell.store.pipeline(started.id)
            assert cell.dispatch.waiting() == 1, "the next stage, and no second child"

    async def test_after_the_downstream_pipelines_end(self, cell: MemoryCell) -> None:
        family = await cell.push_file(DEPEND)
        job = await job_of(cell, family)
        await cell.bridges.look(job.id)
        assert await run_one(cell) == "child-job"
        assert await cell.status(job.id) == "running"
        cell = await cell.reopen()
        async with cell.watching():
            await settle()
        assert await cell.status(job.id) == "success"

    async def test_while_a_trigger_job_is_canceled(self, cell: MemoryCell) -> None:
        family = await cell.push_file(DEPEND)
        job = await job_of(cell, family)
        await cell.bridges.look(job.id)
        await cell.dispatch.cancel_job(job.id)
        cell = await cell.reopen()
        async with cell.watching():
            await settle()
        assert await cell.status(job.id) == "canceled"
        assert (await child_of(cell, family)).pipeline.status == "canceled"

    async def test_before_anything_was_started(self, cell: MemoryCell) -> None:
        family = await cell.push_file(DEPEND)
        cell = await cell.reopen()
        async with cell.watching():
            await settle()
        assert (await child_of(cell, family)).pipeline.is_child

    async def test_a_store_that_fails_puts_it_off(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            raise StoreError("disk full")

        family = await cell.push_file(DEPEND)
        with monkeypatch.context() as patch:
            patch.setattr(cell.store, "job_spec", fail)
            async with cell.watching():
                await settle()
        assert (await cell.statuses(family))["go"] == "pending"
        async with cell.watching():
            await cell.clock.advance(61)
            assert (await cell.statuses(family))["go"] == "running"

    async def test_a_starter_that_breaks_fails_the_job(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            raise RuntimeError("a mistake of ours")

        monkeypatch.setattr("remuda.testing.memory_cell.MemoryStarter.start", fail)
        family = await cell.store.add_pipeline(a_pipeline(project_id=cell.project.id), A_TRIGGER, now=0)
        await cell.dispatch.announce(family.jobs)
        async with cell.watching():
            await settle()
        assert (await job_of(cell, family)).failure_reason == "data_integrity_failure"


A_TRIGGER = new_jobs(a_spec("go", script=(), trigger=Trigger(include=({"local": "child.yml"},))))


async def test_a_trigger_job_holds_its_resource_group_until_its_pipeline_is_over(cell: MemoryCell) -> None:
    text = DEPEND.replace("go: {", "go: {resource_group: prod, ")
    async with cell.watching():
        first = await cell.push_file(text)
        await settle()
        second = await cell.push_file(text)
        await settle()
        assert (await cell.statuses(second))["go"] == "waiting_for_resource"
        await run_one(cell)
        assert (await cell.statuses(first))["go"] == "success"
        assert (await cell.statuses(second))["go"] == "running"
