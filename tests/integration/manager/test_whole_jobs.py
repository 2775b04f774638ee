"""Jobs with caches, hooks and run steps, and the stored work folders of failed jobs."""

import json
from pathlib import Path
from typing import Any

from tests.support.runners.manager_harness import ManagerHarness

from remuda.manager.compile.kept_workdirs import read_kept_job
from remuda.testing.coordinator import Coordinator, ServerJob

NO_SOURCES = [{"key": "GIT_STRATEGY", "value": "none"}]


def outputs(job: ServerJob, name: str) -> dict[str, Any]:
    """Return the outputs of a step."""
    [step_outputs] = [
        result["outputs"] for result in job.results if result["event"] == "finished" and result["name"] == name
    ]
    return dict(step_outputs)


def statuses(job: ServerJob) -> dict[str, str]:
    return {result["name"]: result["status"] for result in job.results if result["event"] == "finished"}


async def test_jobs_share_a_cache(harness: ManagerHarness, coordinator: Coordinator) -> None:
    cache = [{"key": "$WHAT/deps", "paths": ["deps/"], "policy": "pull-push", "fallback_keys": ["none"]}]
    variables = [*NO_SOURCES, {"key": "WHAT", "value": "py"}, {"key": "CACHE_FALLBACK_KEY", "value": "py/deps"}]
    async with harness.manager():
        first = await coordinator.enqueue("mkdir deps", "echo one > deps/it", cache=cache, variables=variables)
        await coordinator.until_over(first)
        second = await coordinator.enqueue("cat deps/it", cache=cache, variables=variables)
        await coordinator.until_over(second)
        other = [{"key": "new", "paths": ["deps/"], "policy": "pull"}]
        third = await coordinator.enqueue("cat deps/it", cache=other, variables=variables)
        await coordinator.until_over(third)
    assert (first.status, second.status, third.status) == ("success", "success", "success")
    assert outputs(first, "restore_cache")["hit"] is False
    assert outputs(first, "archive_cache")["saved"] is True
    assert outputs(second, "restore_cache")["hit"] is True
    assert outputs(second, "archive_cache")["saved"] is False
    assert (outputs(third, "restore_cache")["key"], outputs(third, "restore_cache")["fallback"]) == ("py/deps", True)
    assert list(statuses(third)) == ["restore_cache", "step_script"]
    assert (harness.jobs / "cache/group/project/py%2Fdeps.zip").is_file()


async def test_caches_of_failed_jobs_in_a_configured_folder(harness: ManagerHarness, coordinator: Coordinator) -> None:
    harness.write_config(extra=f'cache_dir = "{harness.folder}/caches"')
    cache = [
        {"key": "good", "paths": ["log"]},
        {"key": "bad", "paths": ["log"], "when": "on_failure"},
        {"key": "any", "paths": ["log"], "when": "always"},
    ]
    steps = [
        {"name": "script", "script": ["echo x > log", "exit 3"]},
        {"name": "after_script", "script": ["echo y >> log"], "when": "always", "allow_failure": True},
    ]
    async with harness.manager():
        job = await coordinator.enqueue(steps=steps, cache=cache, variables=NO_SOURCES)
        await coordinator.until_over(job)
    assert (job.updates[-1]["exit_code"], job.updates[-1]["failure_reason"]) == (3, "script_failure")
    assert list(statuses(job)) == [
        "restore_cache",
        "restore_cache_2",
        "restore_cache_3",
        "step_script",
        "after_script",
        "archive_cache",
        "archive_cache_2",
        "archive_cache_3",
    ]
    caches = sorted(path.name for path in (harness.folder / "caches/group/project").iterdir())
    assert caches == ["any.zip", "bad.zip"]


async def test_an_unusable_cache_does_not_fail_the_job(harness: ManagerHarness, coordinator: Coordinator) -> None:
    (harness.folder / "occupied").write_text("a file")
    harness.write_config(extra=f'cache_dir = "{harness.folder}/occupied"')
    async with harness.manager():
        job = await coordinator.enqueue("echo x > log", cache=[{"key": "k", "paths": ["log"]}], variables=NO_SOURCES)
        await coordinator.until_over(job)
    assert job.status == "success"
    assert b"WARNING: the cache is not saved" in job.output


async def test_failing_hook_fails_the_job_before_its_sources(harness: ManagerHarness, coordinator: Coordinator) -> None:
    hooks = [{"name": "pre_get_sources_script", "script": ["echo before", "exit 9"]}]
    variables = [{"key": "GIT_STRATEGY", "value": "empty"}]
    async with harness.manager():
        job = await coordinator.enqueue("echo never", hooks=hooks, variables=variables)
        await coordinator.until_over(job)
    assert job.updates[-1]["exit_code"] == 9
    assert statuses(job) == {
        "pre_get_sources_script": "failure",
        "get_sources": "skipped",
        "step_script": "skipped",
    }


async def test_steps_of_a_run(harness: ManagerHarness, coordinator: Coordinator) -> None:
    listed = [
        {"name": "one", "script": "echo from $CI_SERVER $MINE", "env": {"MINE": "mine"}},
        {"name": "two", "script": "exit 4"},
        {"name": "three", "script": "echo never"},
    ]
    async with harness.manager():
        job = await coordinator.enqueue(run=json.dumps(listed), variables=NO_SOURCES, steps=[])
        await coordinator.until_over(job)
        missing = await coordinator.enqueue(run='[{"name": "a", "step": "./steps/a"}]', variables=NO_SOURCES, steps=[])
        await coordinator.until_over(missing)
    assert b"from yes mine\n" in job.output
    assert (job.updates[-1]["exit_code"], statuses(job)["three"]) == (4, "skipped")
    assert missing.updates[-1]["failure_reason"] == "script_failure"
    assert b"ERROR: Job failed: step ./steps/a not found" in missing.trace


async def test_work_folder_of_failed_job_keeps_its_variables(harness: ManagerHarness, coordinator: Coordinator) -> None:
    variables = [
        *NO_SOURCES,
        {"key": "GREETING", "value": "hello $NAME"},
        {"key": "NAME", "value": "world"},
        {"key": "CERT", "value": "a secret", "file": True},
    ]
    async with harness.manager(keep_builds=True):
        failed = await coordinator.enqueue("echo made > made", "false", variables=variables)
        await coordinator.until_over(failed)
        good = await coordinator.enqueue("test ! -e made", "echo made > made", variables=variables)
        await coordinator.until_over(good)
    assert (failed.status, good.status) == ("failed", "success")
    kept_job = read_kept_job(harness.data, failed.id)
    assert kept_job is not None
    assert (kept_job.work_dir / "made").read_text() == "made\n"
    assert kept_job.environment["GREETING"] == "hello world"
    assert kept_job.environment["CI_PROJECT_DIR"] == str(kept_job.work_dir)
    assert kept_job.environment["CI_JOB_STATUS"] == "failed"
    assert Path(kept_job.environment["CERT"]).read_text() == "a secret"
    assert read_kept_job(harness.data, good.id) is None
    assert [path.name for path in (harness.jobs / "builds/abcdefghi").iterdir()] == [f"job-{failed.id}"]


async def test_no_work_folder_is_emptied_through_a_symlink(harness: ManagerHarness, coordinator: Coordinator) -> None:
    precious = harness.folder / "precious"
    (precious / "project").mkdir(parents=True)
    (precious / "project/file").write_text("kept")
    (precious / "file").write_text("kept")
    emptied = [{"key": "GIT_STRATEGY", "value": "empty"}]
    jobs: list[ServerJob] = []
    async with harness.manager():
        for target in ('"$CI_PROJECT_DIR"', '"${CI_PROJECT_DIR%/*}"', '"$CI_PROJECT_DIR.tmp"'):
            script = f"cd / && mv {target} {harness.folder}/aside-{len(jobs)} && ln -s {precious} {target}"
            jobs.append(await coordinator.enqueue(script, variables=NO_SOURCES))
            await coordinator.until_over(jobs[-1])
            jobs.append(await coordinator.enqueue("pwd -P; touch new", variables=emptied))
            await coordinator.until_over(jobs[-1])
    assert {job.status for job in jobs} == {"success"}, [job.trace for job in jobs]
    remaining = sorted(str(path.relative_to(precious)) for path in precious.rglob("*"))
    assert remaining == ["file", "project", "project/file"]
