"""Single jobs against a strict server and the real agent."""

from pathlib import Path

from tests.support.runners.manager_harness import ManagerHarness

from remuda.manager.core.record import Phase
from remuda.manager.jobs.journal import Journal
from remuda.testing.coordinator import Coordinator, ServerJob
from remuda.testing.waiting import until

NO_SOURCES = {"key": "GIT_STRATEGY", "value": "none"}


async def test_a_job_succeeds_with_an_exact_trace(harness: ManagerHarness, coordinator: Coordinator) -> None:
    async with harness.manager():
        job = await coordinator.enqueue("echo hello", "for n in $(seq 1 5000); do echo line $n; done")
        await coordinator.until_over(job)
    assert job.status == "success"
    lines = job.output.decode().splitlines()
    assert [line for line in lines if line.startswith("line ")] == [f"line {n}" for n in range(1, 5001)]
    first, second, *_ = bytes(job.trace).decode().splitlines()
    assert first[32:].startswith("Running with remuda ")
    assert second[32:].startswith("  on bench abcdefghi, system ID: ")
    assert [result["event"] for result in job.results] == ["started", "finished", "used"]
    assert job.updates[0]["state"] == "running"
    assert "output" not in job.updates[0]
    assert harness.rows() == 0


async def test_a_failed_job_reports_exit_code_and_reason(harness: ManagerHarness, coordinator: Coordinator) -> None:
    async with harness.manager():
        job = await coordinator.enqueue("echo before", "exit 7")
        await coordinator.until_over(job)
    assert job.status == "failed"
    assert job.updates[-1]["failure_reason"] == "script_failure"
    assert job.updates[-1]["exit_code"] == 7
    assert b"before\n" in job.output


async def test_variables_mask_and_after_script_reach_the_job(harness: ManagerHarness, coordinator: Coordinator) -> None:
    variables = [
        {"key": "GIT_STRATEGY", "value": "none"},
        {"key": "NAME", "value": "world"},
        {"key": "GREETING", "value": "hello $NAME"},
        {"key": "RAW", "value": "$NAME", "raw": True},
        {"key": "SECRET", "value": "very-secret-value", "masked": True},
    ]
    steps = [
        {"name": "script", "script": ['echo "$GREETING and $RAW and $SECRET in $CI_PROJECT_DIR"', "pwd", "false"]},
        {"name": "after_script", "script": ['echo "after $CI_JOB_STATUS"'], "when": "always", "allow_failure": True},
    ]
    async with harness.manager():
        job = await coordinator.enqueue(variables=variables, steps=steps)
        await coordinator.until_over(job)
    work_dir = harness.work_dir
    assert f"hello world and $NAME and [MASKED] in {work_dir}\n".encode() in job.output
    assert f"{work_dir}\n".encode() in job.output
    assert b"after failed\n" in job.output
    assert job.status == "failed"


async def test_a_job_may_choose_its_folder(harness: ManagerHarness, coordinator: Coordinator) -> None:
    harness.write_config(extra="[runners.custom_build_dir]\nenabled = true")
    path = {"key": "GIT_CLONE_PATH", "value": "$CI_BUILDS_DIR/go/src/$CI_CONCURRENT_ID"}
    async with harness.manager():
        job = await coordinator.enqueue("pwd", "echo $CI_PROJECT_DIR of $CI_BUILDS_DIR", variables=[path, NO_SOURCES])
        await coordinator.until_over(job)
    builds = harness.jobs / "builds"
    assert f"{builds}/go/src/0\n{builds}/go/src/0 of {builds}\n".encode() in script_output(job)


async def test_a_job_fails_if_it_may_not_choose_its_folder(harness: ManagerHarness, coordinator: Coordinator) -> None:
    path = {"key": "GIT_CLONE_PATH", "value": "$CI_BUILDS_DIR/go"}
    async with harness.manager():
        job = await coordinator.enqueue("pwd", variables=[path, NO_SOURCES])
        await coordinator.until_over(job)
    assert job.status == "failed"
    assert b"GIT_CLONE_PATH: this runner does not let jobs choose their folder" in job.trace


def script_output(job: ServerJob) -> bytes:
    return b"".join(line for line in job.output.splitlines(keepends=True) if not line.startswith(b"\x1b"))


async def test_server_that_is_no_remuda_cell_gets_no_results(harness: ManagerHarness, coordinator: Coordinator) -> None:
    coordinator.is_remuda = False
    async with harness.manager():
        job = await coordinator.enqueue("true")
        await coordinator.until_over(job)
    assert job.status == "success"
    assert job.results == []


async def test_a_canceled_job_runs_its_after_script_and_ends(harness: ManagerHarness, coordinator: Coordinator) -> None:
    steps = [
        {"name": "script", "script": ["echo started", "while :; do echo tick; sleep 0.1; done"]},
        {"name": "after_script", "script": ["echo after $CI_JOB_STATUS"], "when": "always", "allow_failure": True},
    ]
    async with harness.manager():
        job = await coordinator.enqueue(steps=steps)
        await coordinator.until(lambda: b"started" in job.output)
        job.status = "canceling"
        await coordinator.until_over(job)
    assert job.status == "canceled"
    assert job.updates[-1]["failure_reason"] == "job_canceled"
    assert b"after canceled" in job.output


async def test_an_aborted_job_is_killed_and_forgotten(harness: ManagerHarness, coordinator: Coordinator) -> None:
    number = harness.folder / "pid"
    async with harness.manager():
        job = await coordinator.enqueue(f"echo $$ > {number}", "while :; do echo tick; sleep 0.1; done")
        await coordinator.until(lambda: b"tick" in job.output)
        job.status = "canceled"
        await coordinator.notify()
    assert harness.rows() == 0
    await until(lambda: not Path(f"/proc/{number.read_text().strip()}").exists())


async def test_an_unusable_working_directory_fails_the_job(harness: ManagerHarness, coordinator: Coordinator) -> None:
    (harness.folder / "occupied").write_text("a file")
    harness.write_config(extra=f'builds_dir = "{harness.folder}/occupied"')
    async with harness.manager():
        job = await coordinator.enqueue("true")
        await coordinator.until_over(job)
    assert job.updates[-1]["failure_reason"] == "runner_system_failure"
    assert b"ERROR: Job failed (system failure): the working directory" in bytes(job.trace)


async def test_a_wrong_git_strategy_warns_and_the_default_is_used(
    harness: ManagerHarness, coordinator: Coordinator
) -> None:
    wrong = [{"key": "GIT_STRATEGY", "value": "carrier pigeon"}]
    invalid = {"repo_url": "http://[::1/p.git", "sha": "0" * 40, "ref": "main"}
    async with harness.manager():
        job = await coordinator.enqueue("true", variables=wrong, git_info=invalid)
        await coordinator.until_over(job)
    expected = b"GIT_STRATEGY: must be one of fetch, clone, empty, none, not 'carrier pigeon'; the default is used"
    assert expected in bytes(job.trace)
    # The default, fetch, needs a repository, whose address is invalid here.
    assert [result["name"] for result in job.results if result.get("status") == "failure"] == ["get_sources"]


async def test_a_job_that_cannot_be_decoded_fails_at_once(harness: ManagerHarness, coordinator: Coordinator) -> None:
    async with harness.manager():
        job = await coordinator.enqueue(steps="not a list")
        await coordinator.until_over(job)
    assert job.updates[-1]["failure_reason"] == "runner_system_failure"


async def test_job_continues_at_agent_of_stopped_manager(harness: ManagerHarness, coordinator: Coordinator) -> None:
    go = harness.folder / "go"
    async with harness.manager() as events:
        job = await coordinator.enqueue("echo first", f"until [ -e {go} ]; do sleep 0.05; done", "echo second")
        await coordinator.until(lambda: b"first\n" in job.output)
        events.stop.set()
    journal = Journal(harness.data / "journal.sqlite")
    [(_, record)] = journal.jobs()
    journal.close()
    assert record.phase is Phase.STARTED
    go.touch()
    async with harness.manager():
        await coordinator.until_over(job)
    assert job.status == "success"
    assert job.output.count(b"first\n") == 1
    assert job.output.endswith(b"second\n")


async def test_draining_accepts_none_and_waits_for_the_job(harness: ManagerHarness, coordinator: Coordinator) -> None:
    go = harness.folder / "go"
    async with harness.manager() as events:
        job = await coordinator.enqueue("echo first", f"until [ -e {go} ]; do sleep 0.05; done")
        await coordinator.until(lambda: b"first" in job.output)
        await coordinator.until(lambda: coordinator.held == 2)
        events.drain.set()
        await coordinator.until(lambda: coordinator.held == 0)
        late = await coordinator.enqueue("true")
        go.touch()
        await coordinator.until_over(job)
    assert job.status == "success"
    assert late.status == "pending"
    assert harness.rows() == 0


async def test_draining_ends_at_its_timeout_while_a_job_runs(harness: ManagerHarness, coordinator: Coordinator) -> None:
    harness.write_config(top='[remuda]\ndrain_timeout = "1s"')
    async with harness.manager() as events:
        job = await coordinator.enqueue("echo first", "sleep 60")
        await coordinator.until(lambda: b"first" in job.output)
        events.drain.set()
    assert job.status == "running"
    assert harness.rows() == 1
