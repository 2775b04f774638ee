"""Trigger jobs: the start of downstream pipelines, strategies, cancel, retry, and restarts of the cell."""

import io
import zipfile
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from remuda.cell.errors import StoreError
from remuda.cell.values import USER_ID, Family, Job, Pipeline
from remuda.cell.values.people import Member
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.lib.clock import settle
from remuda.model.job import JobState, PipelineId
from remuda.pipeline import Trigger
from remuda.testing.builders import a_pipeline, a_project, a_spec, an_artifact, new_jobs
from remuda.testing.memory_cell import MemoryCell, MemoryStarter

CHILD = "child-job: {script: make}"


@pytest.fixture
async def cell() -> MemoryCell:
    cell = await MemoryCell.open()
    cell.files[cell.project.path] = {"child.yml": CHILD}
    return cell


async def run_failing_trigger(cell: MemoryCell, text: str) -> tuple[str | None, str]:
    """Run a file whose trigger job "go" fails; return the failure reason and the message."""
    family = await cell.push_file(text)
    async with cell.run_timeouts():
        await settle()
    job = await cell.newest(family, "go")
    assert job.state is JobState.FAILED
    return job.failure_reason, job.failure_message or ""


class TestChildPipeline:
    async def test_is_started_at_once_and_never_by_a_runner(self, cell: MemoryCell) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file("go: {trigger: {include: child.yml}}")
            assert len(cell.dispatch.memory.waiting_jobs) == 0
            await settle()
            assert await cell.statuses(family) == {"go": "success", "pipeline": "success"}
            child = await cell.child(family)
            assert await cell.run_next() == "child-job"
        job = await cell.newest(family, "go")
        assert (job.downstream_id, job.started_at, job.trace_checksum) == (child.pipeline.id, cell.clock.now(), None)
        pipeline = child.pipeline
        assert (pipeline.source, pipeline.is_child, pipeline.depth) == ("parent_pipeline", True, 1)
        assert (pipeline.ref, pipeline.sha) == (family.pipeline.ref, family.pipeline.sha)

    async def test_gets_the_variables_of_the_file_expanded(self, cell: MemoryCell) -> None:
        text = """
            variables: {ENV: prod, NAME: "$CI_PROJECT_NAME-$ENV", RAW: {value: "$ENV", expand: false}}
            go: {variables: {OWN: "$NAME"}, trigger: {include: child.yml}}
        """
        async with cell.run_timeouts():
            family = await cell.push_file(text, {"GIVEN": "x", "ENV": "test"})
            await settle()
        child = await cell.child(family)
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
        async with cell.run_timeouts():
            family = await cell.push_file(text, {"GIVEN": "x", "A": "given"})
            generator = await cell.newest(family, "make")
            await cell.store.jobs.put_artifact(an_artifact(generator.id, "dotenv", variables={"C": "left"}))
            await cell.run_next()
        assert (await cell.child(family)).pipeline.variables == expected

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
        async with cell.run_timeouts():
            family = await cell.push_file(text)
            await settle()
        assert sorted(job.name for job in (await cell.child(family)).jobs) == ["a big", "b", "c"]
        assert [job.name for job in (await cell.child(family, "one")).jobs] == ["a small"]

    @pytest.mark.parametrize(("ref", "tag"), [("refs/tags/v1", True), ("refs/merge-requests/7/head", False)])
    async def test_has_the_same_ref(self, cell: MemoryCell, ref: str, tag: bool) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file("go: {trigger: {include: child.yml}}", ref=ref)
            await settle()
        pipeline = (await cell.child(family)).pipeline
        assert (pipeline.ref, pipeline.tag, pipeline.merge_request_iid) == (
            family.pipeline.ref,
            tag,
            family.pipeline.merge_request_iid,
        )

    async def test_errors_in_its_file_fail_the_trigger_job(self, cell: MemoryCell) -> None:
        cell.files[cell.project.path]["child.yml"] = "a: {skript: x}\nb: {needs: [c], script: x}"
        reason, message = await run_failing_trigger(cell, "go: {trigger: {include: child.yml}}")
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
    async def test_file_that_cannot_be_read(self, cell: MemoryCell, text: str, expected: str) -> None:
        reason, message = await run_failing_trigger(cell, text)
        assert reason == "downstream_pipeline_creation_failed"
        assert expected in message


async def store_archive(cell: MemoryCell, job: Job, files: dict[str, bytes]) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)

    async def pieces() -> AsyncIterator[bytes]:
        yield packed.getvalue()

    await cell.blobs.put(f"job-{job.id}", pieces(), limit_bytes=10_000_000)
    await cell.store.jobs.put_artifact(an_artifact(job.id, blob=f"job-{job.id}"))


class TestGeneratedChildPipeline:
    text = """
        make: {stage: build, script: x, artifacts: {paths: [out]}}
        go: {trigger: {include: [{artifact: out/child.yml, job: make}], strategy: depend}}
    """

    async def start_child(self, cell: MemoryCell, files: dict[str, bytes]) -> Family:
        """Run the job that generates the child's file and advance the trigger job; return the parent pipeline."""
        family = await cell.push_file(self.text)
        generator, token = await cell.start()
        await store_archive(cell, generator, files)
        await cell.put(token, "success")
        await cell.trigger_jobs.advance((await cell.newest(family, "go")).id)
        return family

    async def test_file_is_read_from_the_archive(self, cell: MemoryCell) -> None:
        family = await self.start_child(cell, {"out/child.yml": b"generated: {script: x}", "out/big": bytes(3_000_000)})
        assert [job.name for job in (await cell.child(family)).jobs] == ["generated"]
        assert (await cell.statuses(family))["go"] == "running"

    @pytest.mark.parametrize(
        ("files", "expected"),
        [
            ({"out/other.yml": b""}, 'out/child.yml is not among the artifacts of job "make"'),
            ({"out/child.yml": b"\xff"}, "is not UTF-8 (byte 0)"),
            ({"out/child.yml": b"#" * (1024 * 1024 + 1)}, "larger than 1048576 bytes"),
        ],
    )
    async def test_unreadable_archived_file(self, cell: MemoryCell, files: dict[str, bytes], expected: str) -> None:
        job = await cell.newest(await self.start_child(cell, files), "go")
        assert (job.state, job.failure_reason) == (JobState.FAILED, "downstream_pipeline_creation_failed")
        assert expected in (job.failure_message or "")

    async def test_must_be_the_only_file(self, cell: MemoryCell) -> None:
        self.text = self.text.replace("job: make}", "job: make}, child.yml")
        job = await cell.newest(await self.start_child(cell, {"out/child.yml": b"a: {script: x}"}), "go")
        assert "the only file" in (job.failure_message or "")


class TestPipelineOfAnotherProject:
    @pytest.fixture
    async def cell(self, cell: MemoryCell) -> MemoryCell:
        await cell.store.projects.add_project(a_project(path="acme/Other"))
        cell.files["acme/Other"] = {".gitlab-ci.yml": "other-job: {script: x}"}
        return cell

    async def test_runs_its_own_file(self, cell: MemoryCell) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file("go: {variables: {P: other}, trigger: {project: acme/$P, branch: main}}")
            await settle()
        downstream = await cell.child(family)
        project = await cell.store.projects.load_project(downstream.pipeline.project_id)
        assert project is not None
        assert (project.path, downstream.pipeline.source, downstream.pipeline.is_child) == (
            "acme/Other",
            "pipeline",
            False,
        )
        assert [job.name for job in downstream.jobs] == ["other-job"]
        assert (await cell.statuses(family))["go"] == "success"

    @pytest.mark.parametrize(
        ("trigger", "reason", "message"),
        [
            ("acme/nowhere", "downstream_bridge_project_not_found", 'no project "acme/nowhere"'),
            ("acme/shop", "invalid_bridge_trigger", "include"),
            ("{project: acme/other, branch: x}", "downstream_pipeline_creation_failed", 'no branch or tag "x"'),
        ],
    )
    async def test_unusable_project_or_ref(self, cell: MemoryCell, trigger: str, reason: str, message: str) -> None:
        failure_reason, failure_message = await run_failing_trigger(cell, f"go: {{trigger: {trigger}}}")
        assert failure_reason == reason
        assert message in failure_message

    @pytest.mark.parametrize(("set_by", "state"), [(0.0, JobState.SUCCESS), (7200.0, JobState.FAILED)])
    async def test_is_reached_until_membership_ends(self, cell: MemoryCell, set_by: float, state: JobState) -> None:
        user = await cell.store.people.load_user(USER_ID)
        assert user is not None
        await cell.store.people.put_user(replace(user, is_admin=False, namespace_id=77))
        for path in (cell.project.path, "acme/Other"):
            project = await cell.store.projects.find_project(path)
            assert project is not None
            end = cell.clock.now() + 3600.0
            owner = ("project", project.id)
            await cell.store.people.put_member(
                Member(owner=owner, user_id=USER_ID, level=40, created_at=0.0, expires_at=end)
            )
        cell.clock.set_wall(set_by)
        family = await cell.push_file("go: {trigger: {project: acme/other}}")
        async with cell.run_timeouts():
            await settle()
        assert (await cell.newest(family, "go")).state is state

    async def test_goes_on_when_its_trigger_job_is_canceled(self, cell: MemoryCell) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file("go: {trigger: {project: acme/other, strategy: depend}}")
            await settle()
            await cell.dispatch.changes.cancel_pipeline(family.pipeline.id)
            await settle()
            assert await cell.statuses(family) == {"go": "canceled", "pipeline": "canceled"}
            assert await cell.run_next() == "other-job"
            assert await cell.statuses(family) == {"go": "canceled", "pipeline": "canceled"}


DEPEND = "go: {trigger: {include: child.yml, strategy: depend}}\nafter: {stage: deploy, script: x}"
A_TRIGGER = new_jobs(a_spec("go", script=(), trigger=Trigger(include=({"local": "child.yml"},))))


class TestStrategies:
    @pytest.mark.parametrize(
        ("end", "status", "after"), [("success", "success", "pending"), ("failed", "failed", "skipped")]
    )
    async def test_dependent_ends_with_its_pipeline(self, cell: MemoryCell, end: str, status: str, after: str) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND)
            await settle()
            assert await cell.statuses(family) == {"go": "running", "after": "created", "pipeline": "running"}
            await cell.clock.advance(3500)
            assert (await cell.statuses(family))["go"] == "running"
            await cell.run_next(end)
            job = await cell.newest(family, "go")
            assert (job.state.value, job.finished_at) == (status, cell.clock.now())
            assert (await cell.statuses(family))["after"] == after

    async def test_a_failure_that_is_allowed_does_not_skip_the_next_stage(self, cell: MemoryCell) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND.replace("go: {", "go: {allow_failure: true, "))
            await settle()
            await cell.run_next("failed")
            assert (await cell.statuses(family))["after"] == "pending"

    @pytest.mark.parametrize(("strategy", "status"), [("depend", "failed"), ("mirror", "success")])
    async def test_a_pipeline_with_manual_jobs_only(self, cell: MemoryCell, strategy: str, status: str) -> None:
        cell.files[cell.project.path]["child.yml"] = "a: {script: x, when: manual, allow_failure: true}"
        async with cell.run_timeouts():
            family = await cell.push_file(f"go: {{trigger: {{include: child.yml, strategy: {strategy}}}}}")
            await settle()
        assert (await cell.statuses(family))["go"] == status

    async def test_a_blocking_manual_job_keeps_the_trigger_job_running(self, cell: MemoryCell) -> None:
        cell.files[cell.project.path]["child.yml"] = "a: {script: x, when: manual, allow_failure: false}"
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND)
            await settle()
            child = await cell.child(family)
            assert child.pipeline.status == "manual"
            assert (await cell.statuses(family))["go"] == "running"
            await cell.dispatch.user_commands.play_job(child.jobs[0].id)
            await cell.run_next()
            assert (await cell.statuses(family))["go"] == "success"

    async def test_a_failure_passes_through_several_pipelines(self, cell: MemoryCell) -> None:
        cell.files[cell.project.path] |= {
            "child.yml": "go: {trigger: {include: grandchild.yml, strategy: depend}}",
            "grandchild.yml": CHILD,
        }
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND)
            await settle()
            await cell.run_next("failed")
            assert await cell.statuses(family) == {"go": "failed", "after": "skipped", "pipeline": "failed"}

    @pytest.mark.parametrize("end", ["success", "failed"])
    async def test_a_retry_of_the_pipeline_resumes_the_trigger_job(self, cell: MemoryCell, end: str) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND)
            await settle()
            await cell.run_next("failed")
            child = await cell.child(family)
            await cell.dispatch.user_commands.retry_pipeline(child.pipeline.id)
            await settle()
            assert await cell.statuses(family) == {"go": "running", "after": "created", "pipeline": "running"}
            job = await cell.newest(family, "go")
            assert (job.finished_at, job.failure_message, job.downstream_id) == (None, None, child.pipeline.id)
            await cell.run_next(end)
            assert (await cell.statuses(family))["go"] == end

    async def test_a_retry_of_the_trigger_job_starts_another_pipeline(self, cell: MemoryCell) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND)
            await settle()
            await cell.run_next("failed")
            first = await cell.child(family)
            await cell.dispatch.user_commands.retry_job((await cell.newest(family, "go")).id)
            await settle()
            second = await cell.child(family)
            assert second.pipeline.id != first.pipeline.id
            await cell.dispatch.user_commands.retry_pipeline(first.pipeline.id)
            await settle()
            assert (await cell.statuses(family))["go"] == "running"
            assert await cell.run_next() == "child-job"
            assert (await cell.statuses(family))["go"] == "success"


class TestCancel:
    async def statuses(self, cell: MemoryCell, *pipeline_ids: PipelineId) -> list[str]:
        pipelines = [await cell.store.pipelines.load_pipeline(pipeline_id) for pipeline_id in pipeline_ids]
        return [pipeline.status for pipeline in pipelines if pipeline]

    @pytest.mark.parametrize("strategy", ["", ", strategy: depend"])
    async def test_cancel_of_a_pipeline_cancels_its_children(self, cell: MemoryCell, strategy: str) -> None:
        cell.files[cell.project.path] |= {
            "child.yml": f"go: {{trigger: {{include: grandchild.yml{strategy}}}}}\nb: {{script: x}}",
            "grandchild.yml": CHILD,
        }
        async with cell.run_timeouts():
            family = await cell.push_file(f"go: {{trigger: {{include: child.yml{strategy}}}}}\na: {{script: x}}")
            await settle()
            child = await cell.child(family)
            grandchild = await cell.child(child)
            await cell.dispatch.changes.cancel_pipeline(family.pipeline.id)
            await settle()
            assert len(cell.dispatch.memory.waiting_jobs) == 0
            pipeline_ids = (family.pipeline.id, child.pipeline.id, grandchild.pipeline.id)
            assert await self.statuses(cell, *pipeline_ids) == ["canceled"] * 3

    async def test_cancel_of_a_trigger_job_cancels_its_child_and_waits_for_it(self, cell: MemoryCell) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND)
            await settle()
            _, token = await cell.start(graceful=True)
            await cell.dispatch.user_commands.cancel_job((await cell.newest(family, "go")).id)
            await settle()
            assert await cell.statuses(family) == {"go": "canceling", "after": "created", "pipeline": "running"}
            await cell.put(token, "failed", reason="job_canceled")
            await settle()
            assert await cell.statuses(family) == {"go": "canceled", "after": "skipped", "pipeline": "canceled"}

    async def test_auto_cancel_after_a_failure_cancels_the_children(self, cell: MemoryCell) -> None:
        text = """
            workflow: {auto_cancel: {on_job_failure: all}}
            go: {trigger: {include: child.yml}}
            depends: {trigger: {include: child.yml, strategy: depend}}
            bad: {stage: build, script: x, tags: [linux]}
            worse: {script: x, needs: []}
        """
        async with cell.run_timeouts():
            family = await cell.push_file(text)
            assert await cell.run_next() == "bad"
            children = [await cell.child(family, name) for name in ("go", "depends")]
            await cell.run_next("failed")
            assert await cell.statuses(family) == {
                "go": "success",
                "depends": "canceled",
                "bad": "success",
                "worse": "failed",
                "pipeline": "failed",
            }
            assert await self.statuses(cell, *(child.pipeline.id for child in children)) == ["canceled"] * 2

    async def test_cancel_before_the_pipeline_is_started(self, cell: MemoryCell) -> None:
        family = await cell.push_file(DEPEND)
        await cell.dispatch.user_commands.cancel_job((await cell.newest(family, "go")).id)
        async with cell.run_timeouts():
            await settle()
        assert (await cell.statuses(family))["go"] == "canceled"
        assert await cell.store.pipelines.find_downstream((await cell.newest(family, "go")).id) is None

    async def test_cancel_while_the_pipeline_starts(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        family = await cell.push_file(DEPEND)
        start = MemoryStarter.start

        async def start_slowly(starter: MemoryStarter, request: PipelineRequest) -> Pipeline:
            await cell.dispatch.changes.cancel_pipeline(family.pipeline.id)
            return await start(starter, request)

        monkeypatch.setattr(MemoryStarter, "start", start_slowly)
        async with cell.run_timeouts():
            await settle()
        assert await cell.statuses(family) == {"go": "canceled", "after": "canceled", "pipeline": "canceled"}
        assert (await cell.child(family)).pipeline.status == "canceled"


class TestRestarts:
    """The process may die between any two changes; the next one continues from the store."""

    async def test_death_between_pipeline_and_trigger(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        family = await cell.push_file(DEPEND)
        job = await cell.newest(family, "go")
        change, changes = cell.store.pipelines.change_family, 0

        async def fail_second_change(*args: object) -> object:
            nonlocal changes
            changes += 1
            if changes == 2:
                raise StoreError("gone")
            return await change(*args)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(cell.store.pipelines, "change_family", fail_second_change)
            with pytest.raises(StoreError):
                await cell.trigger_jobs.advance(job.id)
        downstream = await cell.store.pipelines.find_downstream(job.id)
        assert downstream is not None
        job = await cell.job(job.id)
        assert (job.state, job.downstream_id) == (JobState.RUNNING, None)

        cell = await cell.reopen()
        async with cell.run_timeouts():
            await settle()
            assert (await cell.job(job.id)).downstream_id == downstream.id
            await cell.run_next()
            assert (await cell.statuses(family))["go"] == "success"
            assert await cell.store.pipelines.find_downstream(job.id) == await cell.store.pipelines.load_pipeline(
                downstream.id
            )
            assert len(cell.dispatch.memory.waiting_jobs) == 1, "only the job of the next stage waits, no second child"

    async def test_death_after_the_end_of_the_downstream_pipeline(self, cell: MemoryCell) -> None:
        family = await cell.push_file(DEPEND)
        job = await cell.newest(family, "go")
        await cell.trigger_jobs.advance(job.id)
        assert await cell.run_next() == "child-job"
        assert await cell.status(job.id) == "running"
        cell = await cell.reopen()
        async with cell.run_timeouts():
            await settle()
        assert await cell.status(job.id) == "success"

    async def test_death_while_a_trigger_job_is_canceled(self, cell: MemoryCell) -> None:
        family = await cell.push_file(DEPEND)
        job = await cell.newest(family, "go")
        await cell.trigger_jobs.advance(job.id)
        await cell.dispatch.user_commands.cancel_job(job.id)
        cell = await cell.reopen()
        async with cell.run_timeouts():
            await settle()
        assert await cell.status(job.id) == "canceled"
        assert (await cell.child(family)).pipeline.status == "canceled"

    async def test_death_before_the_pipeline_is_started(self, cell: MemoryCell) -> None:
        family = await cell.push_file(DEPEND)
        cell = await cell.reopen()
        async with cell.run_timeouts():
            await settle()
        assert (await cell.child(family)).pipeline.is_child

    async def test_a_store_error_delays_the_start(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            raise StoreError("disk full")

        family = await cell.push_file(DEPEND)
        with monkeypatch.context() as patch:
            patch.setattr(cell.store.jobs, "load_spec", fail)
            async with cell.run_timeouts():
                await settle()
        assert (await cell.statuses(family))["go"] == "pending"
        async with cell.run_timeouts():
            await cell.clock.advance(61)
            assert (await cell.statuses(family))["go"] == "running"

    async def test_unexpected_starter_error_fails_job(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(MemoryStarter, "start", fail)
        family = await cell.store.pipelines.add_pipeline(a_pipeline(project_id=cell.project.id), A_TRIGGER, now=0)
        cell.dispatch.memory.announce(family.jobs)
        async with cell.run_timeouts():
            await settle()
        assert (await cell.newest(family, "go")).failure_reason == "data_integrity_failure"


async def test_a_trigger_job_keeps_its_resource_group_until_its_pipeline_ends(cell: MemoryCell) -> None:
    text = DEPEND.replace("go: {", "go: {resource_group: prod, ")
    async with cell.run_timeouts():
        first = await cell.push_file(text)
        await settle()
        second = await cell.push_file(text)
        await settle()
        assert (await cell.statuses(second))["go"] == "waiting_for_resource"
        await cell.run_next()
        assert (await cell.statuses(first))["go"] == "success"
        assert (await cell.statuses(second))["go"] == "running"
