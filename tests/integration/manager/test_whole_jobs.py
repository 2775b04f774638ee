"""Payloads with everything in them: caches, hooks, run steps, and what stays of failed jobs."""

import json
from pathlib import Path
from typing import Any

from tests.support.runners.manager_bench import ManagerBench

from remuda.manager.compile.kept_workdirs import read_kept_job
from remuda.testing.coordinator import Coordinator, ServerJob

NO_SOURCES = [{"key": "GIT_STRATEGY", "value": "none"}]


def outputs(job: ServerJob, name: str) -> dict[str, Any]:
    """What a step told of its work."""
    [found] = [result["outputs"] for result in job.results if result["event"] == "finished" and result["name"] == name]
    return dict(found)


def statuses(job: ServerJob) -> dict[str, str]:
    return {result["name"]: result["status"] for result in job.results if result["event"] == "finished"}


async def test_a_cache_goes_from_job_to_job(bench: ManagerBench, coordinator: Coordinator) -> None:
    cache = [{"key": "$WHAT/deps", "paths": ["deps/"], "policy": "pull-push", "fallback_keys": ["none"]}]
    variables = [*NO_SOURCES, {"key": "WHAT", "value": "py"}, {"key": "CACHE_FALLBACK_KEY", "value": "py/deps"}]
    async with bench.manager():
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
    assert (bench.jobs / "cache/group/project/py%2Fdeps.zip").is_file()


async def test_caches_of_failed_jobs_and_a_folder_of_their_own(bench: ManagerBench, coordinator: Coordinator) -> None:
    bench.write_config(extra=f'cache_dir = "{bench.folder}/caches"')
    cache = [
        {"key": "good", "paths": ["log"]},
        {"key": "bad", "paths": ["log"], "when": "on_failure"},
        {"key": "any", "paths": ["log"], "when": "always"},
    ]
    steps = [
        {"name": "script", "script": ["echo x > log", "exit 3"]},
        {"name": "after_script", "script": ["echo y >> log"], "when": "always", "allow_failure": True},
    ]
    async with bench.manager():
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
    caches = sorted(path.name for path in (bench.folder / "caches/group/project").iterdir())
    assert caches == ["any.zip", "bad.zip"]


async def test_a_cache_that_cannot_be_used_fails_no_job(bench: ManagerBench, coordinator: Coordinator) -> None:
    (bench.folder / "occupied").write_text("a file")
    bench.write_config(extra=f'cache_dir = "{bench.folder}/occupied"')
    async with bench.manager():
        job = await coordinator.enqueue("echo x > log", cache=[{"key": "k", "paths": ["log"]}], variables=NO_SOURCES)
        await coordinator.until_over(job)
    assert job.status == "success"
    assert b"WARNING: the cache is not saved" in job.output


async def test_a_failing_hook_fails_the_job_before_its_sources(bench: ManagerBench, coordinator: Coordinator) -> None:
    hooks = [{"name": "pre_get_sources_script", "script": ["echo before", "exit 9"]}]
    variables = [{"key": "GIT_STRATEGY", "value": "empty"}]
    async with bench.manager():
        job = await coordinator.enqueue("echo never", hooks=hooks, variables=variables)
        await coordinator.until_over(job)
    assert job.updates[-1]["exit_code"] == 9
    assert statuses(job) == {
        "pre_get_sources_script": "failure",
        "get_sources": "skipped",
        "step_script": "skipped",
    }


async def test_steps_of_a_run(bench: ManagerBench, coordinator: Coordinator) -> None:
    listed = [
        {"name": "one", "script": "echo from $CI_SERVER $MINE", "env": {"MINE": "mine"}},
        {"name": "two", "script": "exit 4"},
        {"name": "three", "script": "echo never"},
    ]
    async with bench.manager():
        job = await coordinator.enqueue(run=json.dumps(listed), variables=NO_SOURCES, steps=[])
        await coordinator.until_over(job)
        odd = await coordinator.enqueue(run='[{"name": "a", "step": "./steps/a"}]', variables=NO_SOURCES, steps=[])
        await coordinator.until_over(odd)
    assert b"from yes mine\n" in job.output
    assert (job.updates[-1]["exit_code"], statuses(job)["three"]) == (4, "skipped")
    assert odd.updates[-1]["failure_reason"] == "script_failure"
    assert b"ERROR: Job failed: step ./steps/a is not there" in odd.trace


async def test_the_directory_of_a_failed_job_stays_with_its_variables(
    bench: ManagerBench, coordinator: Coordinator
) -> None:
    variables = [
        *NO_SOURCES,
        {"key": "GREETING", "value": "hello $NAME"},
        {"key": "NAME", "value": "world"},
        {"key": "CERT", "value": "a secret", "file": True},
    ]
    async with bench.manager(keep_builds=True):
        failed = await coordinator.enqueue("echo made > made", "false", variables=variables)
        await coordinator.until_over(failed)
        good = await coordinator.enqueue("test ! -e made", "echo made > made", variables=variables)
        await coordinator.until_over(good)
    assert (failed.status, good.status) == ("failed", "success")
    found = read_kept_job(bench.data, failed.id)
    assert found is not None
    assert (found.work_dir / "made").read_text() == "made\n"
    assert found.environment["GREETING"] == "hello world"
    assert found.environment["CI_PROJECT_DIR"] == str(found.work_dir)
    assert found.environment["CI_JOB_STATUS"] == "failed"
    assert Path(found.environment["CERT"]).read_text() == "a secret"
    assert read_kept_job(bench.data, good.id) is None
    assert [path.name for path in (bench.jobs / "builds/abcdefghi").iterdir()] == [f"job-{failed.id}"]


async def test_a_working_directory_that_a_job_replaced_by_a_link_is_not_emptied_through_it(
    bench: ManagerBench, coordinator: Coordinator
) -> None:
    precious = bench.folder / "precious"
    (precious / "project").mkdir(parents=True)
    (precious / "project/file").write_text("kept")
    (precious / "file").write_text("kept")
    emptied = [{"key": "GIT_STRATEGY", "value": "empty"}]
    jobs: list[ServerJob] = []
    async with bench.manager():
        for left in ('"$CI_PROJECT_DIR"', '"${CI_PROJECT_DIR%/*}"', '"$CI_PROJECT_DIR.tmp"'):
            moves = f"cd / && mv {left} {bench.folder}/aside-{len(jobs)} && ln -s {precious} {left}"
            jobs.append(await coordinator.enqueue(moves, variables=NO_SOURCES))
            await coordinator.until_over(jobs[-1])
            jobs.append(await coordinator.enqueue("pwd -P; touch new", variables=emptied))
            await coordinator.until_over(jobs[-1])
    assert {job.status for job in jobs} == {"success"}, [job.trace for job in jobs]
    found = sorted(str(path.relative_to(precious)) for path in precious.rglob("*"))
    assert found == ["file", "project", "project/file"]
