"""A plain driver: what it is called with, what its scripts see, what its exit codes mean."""

import json
from pathlib import Path

import msgspec
import pytest
from tests.support.runners.custom_driver import STAGES, Bench
from tests.support.servers.vault_server import JWT, PASSWORD, serving_vault

from remuda.manager.config.values import CustomBuildDirConfig
from remuda.testing.agent_process import Seen, follow
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentRefusedError, JobEnded
from remuda.wire.agent_shell import ShellCommand, ShellData, ShellExit, open_shell

ENDS_WITH = """#!/bin/sh
echo "run $3" >>"$CALLS"
[ "$3" != {stage} ] || exit {code}
bash "$2"
"""


def end_of(seen: Seen) -> JobEnded:
    return seen.check()


async def test_a_job_goes_through_all_stages_in_order(bench: Bench) -> None:
    seen = await bench.run("cat file", "pwd")
    assert end_of(seen).status == "success", seen.log.decode()
    assert b"version 1" in seen.lines
    assert str(bench.driver.builds / "group/project").encode() in seen.lines
    assert b"Using Custom executor with driver plain v1..." in seen.lines
    assert any(line.endswith(b"via the-host...") for line in seen.lines)
    assert bench.driver.calls == ["config", "prepare yes", *(f"run {stage}" for stage in STAGES), "cleanup"]


async def test_what_the_driver_finds_in_its_environment(bench: Bench) -> None:
    services = [{"name": "redis:7", "alias": "cache", "command": ["--save", ""]}]
    variables = [{"key": "TMPDIR", "value": "/nowhere"}, {"key": "GIT_DEPTH", "value": "5"}]
    await bench.run(
        image={"name": "alpine:3"},
        services=services,
        variables=variables,
        runner={"environment": ("OF_RUNNER=x",)},
    )
    env = bench.driver.env_of("step_script")
    assert env["PATH"] == bench.driver.env["PATH"]
    assert env["CUSTOM_ENV_TMPDIR"] == "/nowhere" != env["TMPDIR"]
    assert (env["BUILD_FAILURE_EXIT_CODE"], env["SYSTEM_FAILURE_EXIT_CODE"]) == ("1", "2")
    assert env["BUILD_EXIT_CODE_FILE"].startswith(env["TMPDIR"])
    assert env["CUSTOM_ENV_CI_JOB_ID"] == "1"
    assert env["CUSTOM_ENV_OF_RUNNER"] == "x"
    assert env["CUSTOM_ENV_CI_JOB_IMAGE"] == "alpine:3"
    assert env["CUSTOM_ENV_CI_PROJECT_DIR"] == str(bench.driver.builds / "group/project")
    assert env["FROM_CONFIG"] == "yes"
    assert "CI_JOB_ID" not in env
    assert json.loads(env["CUSTOM_ENV_CI_JOB_SERVICES"]) == [
        {"name": "redis:7", "alias": "cache", "entrypoint": None, "command": ["--save", ""]}
    ]
    response = json.loads((bench.driver.folder / "calls.response").read_text())
    assert (response["id"], response["token"], response["steps"][0]["name"]) == (1, "glcbt-1_abc", "script")
    assert not Path(env["TMPDIR"]).exists(), "it goes with the job"


async def test_variables_and_files_are_inside_and_gone_afterwards(bench: Bench) -> None:
    variables = [
        {"key": "SECRET", "value": "it's very secret", "masked": True},
        {"key": "WHERE", "value": "$CI_PROJECT_DIR/here"},
        {"key": "KEY_FILE", "value": "line 1\nline '2'", "file": True},
        {"key": "LARGE", "value": "x" * 200_000},
    ]
    script = ("echo $SECRET", "echo $WHERE", 'cat "$KEY_FILE"; echo "; $KEY_FILE"', "echo ${#LARGE}", "cat; echo end")
    seen = await bench.run(*script, variables=variables)
    assert end_of(seen).status == "success", seen.log.decode()
    project = bench.driver.builds / "group/project"
    assert b"very secret" not in seen.log
    assert f"{project}/here".encode() in seen.lines
    assert b"line 1" in seen.lines
    assert f"line '2'; {project}.tmp/KEY_FILE".encode() in seen.lines
    assert b"200000" in seen.lines
    assert list(Path(f"{project}.tmp").iterdir()) == []


@pytest.mark.parametrize(("is_shared", "folder"), [(False, "group/project"), (True, "abcdefghi/3/group/project")])
async def test_folders_are_those_of_gitlab_runner(bench: Bench, is_shared: bool, folder: str) -> None:
    shared = json.dumps({"builds_dir_is_shared": is_shared})
    bench.driver.write("config", f"#!/bin/sh\necho '{shared}'\n")
    await bench.run(runner={"builds_dir": str(bench.driver.builds)})
    assert (bench.driver.builds / folder / "file").exists()


async def test_a_job_may_choose_its_folder(bench: Bench) -> None:
    chooses = CustomBuildDirConfig(enabled=True)
    await bench.run(
        runner={"builds_dir": str(bench.driver.builds), "custom_build_dir": chooses},
        variables=[{"key": "GIT_CLONE_PATH", "value": "$CI_BUILDS_DIR/go/$CI_CONCURRENT_ID"}],
    )
    assert (bench.driver.builds / "go" / "3" / "file").exists()


async def test_programs_that_are_not_configured_are_not_called(bench: Bench) -> None:
    nothing = dict.fromkeys(("config_exec", "prepare_exec", "cleanup_exec"), "")
    seen = await bench.run(custom=nothing, runner={"builds_dir": str(bench.driver.builds)})
    assert end_of(seen).status == "success"
    assert bench.driver.calls == [f"run {stage}" for stage in STAGES]


async def test_without_a_builds_dir_the_job_says_what_to_do(bench: Bench) -> None:
    seen = await bench.run(custom={"config_exec": ""})
    assert end_of(seen).status == "failure"
    assert b"builds_dir is not set: set it for the runner in config.toml, or print" in seen.log
    assert bench.driver.calls == ["cleanup"]


async def test_a_script_may_be_handed_to_a_shell_as_its_input(bench: Bench) -> None:
    bench.driver.write("run", '#!/bin/sh\necho "run $3" >>"$CALLS"\nexec sh <"$2"\n')
    seen = await bench.run("cat", "cat file", "read -r x || echo nothing to read", after=["echo and after"])
    assert end_of(seen).status == "success", seen.log.decode()
    assert [line for line in seen.lines if not line.startswith(b"\x1b")][-3:] == [
        b"version 1",
        b"nothing to read",
        b"and after",
    ]


async def test_the_real_exit_code_is_the_jobs(bench: Bench) -> None:
    seen = await bench.run("exit 75", after=["echo status $CI_JOB_STATUS"])
    end = end_of(seen)
    assert (end.status, end.reason, end.exit_code) == ("failure", "script_failure", 75)
    assert b"status failed" in seen.lines
    assert bench.driver.stages == [*STAGES[:3], "after_script", STAGES[3]]
    assert bench.driver.calls[-1] == "cleanup"


@pytest.mark.parametrize(("code", "words"), [("2", "failure of the system"), ("7", "exit code 7")])
async def test_any_other_exit_code_is_a_failure_of_the_system(bench: Bench, code: str, words: str) -> None:
    bench.driver.write("run", ENDS_WITH.format(stage="step_script", code=code))
    end = end_of(await bench.run())
    assert (end.status, end.reason) == ("failure", "runner_system_failure")
    assert words in end.message


async def test_a_driver_that_cannot_be_started(bench: Bench) -> None:
    end = end_of(await bench.run(custom={"run_exec": "/nowhere/run"}))
    assert end.reason == "runner_system_failure"
    assert "/nowhere/run cannot be started" in end.message


@pytest.mark.parametrize("stage", ["prepare_script", "get_sources", "step_script", "after_script"])
async def test_a_failure_at_any_stage_ends_in_cleanup(bench: Bench, stage: str) -> None:
    bench.driver.write("run", ENDS_WITH.format(stage=stage, code=1))
    seen = await bench.run(after=["true"])
    expected = {
        "prepare_script": ["prepare_script"],
        "get_sources": ["prepare_script", "get_sources", "cleanup_file_variables"],
        "step_script": [*STAGES[:3], "after_script", STAGES[3]],
        "after_script": [*STAGES[:3], "after_script", STAGES[3]],
    }
    assert bench.driver.stages == expected[stage]
    assert bench.driver.calls[-1] == "cleanup"
    assert end_of(seen).status == ("success" if stage == "after_script" else "failure")


async def test_cleanup_that_fails_changes_nothing(bench: Bench) -> None:
    bench.driver.write("cleanup", "#!/bin/sh\nexit 1\n")
    seen = await bench.run()
    assert end_of(seen).status == "success"
    assert any(b"WARNING: Cleanup failed" in line for line in seen.lines)


async def test_older_drivers_may_want_build_script(bench: Bench) -> None:
    await bench.run(runner={"environment": ("REMUDA_CUSTOM_BUILD_SCRIPT=true",)})
    assert bench.driver.stages == ["prepare_script", "get_sources", "build_script", "cleanup_file_variables"]


async def test_steps_have_the_names_of_gitlab_runner(bench: Bench) -> None:
    steps = [{"name": "script", "script": ["true"]}, {"name": "release", "script": ["true"]}]
    await bench.run(steps=steps)
    assert bench.driver.stages == ["prepare_script", "get_sources", "step_script", "step_release", STAGES[3]]


async def test_secrets_are_inside_as_variables_and_files(bench: Bench) -> None:
    with serving_vault() as vault:
        secret = vault.secret()["vault"]
        secret["server"]["auth"]["data"]["jwt"] = JWT
        secrets = {"GIT_PASSWORD": {"vault": secret, "file": False}, "KEPT": {"vault": secret, "file": True}}
        seen = await bench.run(
            f'test "$GIT_PASSWORD" = {PASSWORD}', 'test "$(cat "$KEPT")" = "$GIT_PASSWORD"; echo $KEPT', secrets=secrets
        )
    assert end_of(seen).status == "success", seen.log.decode()
    project = bench.driver.builds / "group/project"
    assert f"{project}.tmp/KEPT".encode() in seen.lines
    assert PASSWORD.encode() not in seen.log.replace(f'"$GIT_PASSWORD" = {PASSWORD}'.encode(), b"")
    env = bench.driver.env_of("step_script")
    assert env["CUSTOM_ENV_GIT_PASSWORD"] == env["CUSTOM_ENV_KEPT"] == PASSWORD
    assert list(Path(f"{project}.tmp").iterdir()) == []


async def test_a_held_job_is_cleaned_up_when_it_is_let_go(bench: Bench) -> None:
    job = msgspec.structs.replace(bench.job("exit 1"), hold_failed_seconds=60)
    async with bench.agent.client() as client:
        await client.start(job)
        seen = await follow(client, job.id)
        assert end_of(seen).status == "failure"
        assert "cleanup" not in bench.driver.calls
        await client.close_job(job.id)
    await until(lambda: bench.driver.calls[-1] == "cleanup")


async def test_nobody_can_look_into_it(bench: Bench) -> None:
    job = bench.job("while :; do sleep 0.1; done")
    async with bench.agent.client() as client:
        await client.start(job)
        await until(lambda: "run step_script" in bench.driver.calls)
        async with open_shell(client, job.id, ShellCommand(command=("true",))) as shell:
            events = [event async for event in shell]
        assert events[-1] == ShellExit(1)
        assert any(b"custom executor supports only" in event.data for event in events if isinstance(event, ShellData))
        await client.cancel(job.id)
        await follow(client, job.id)


async def test_nobody_gets_to_the_machine_while_the_driver_prepares(bench: Bench) -> None:
    go = bench.driver.builds.parent / "go"
    bench.driver.write("prepare", f"#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.05; done\nexit 1\n")
    job = msgspec.structs.replace(bench.job("true"), hold_failed_seconds=60)
    async with bench.agent.client() as client:
        await client.start(job)
        await until(lambda: "config" in bench.driver.calls)
        for answer in ("not open yet", "was not opened"):
            with pytest.raises(AgentRefusedError, match=answer):
                async with open_shell(client, job.id, ShellCommand(command=("true",))) as shell:
                    assert [event async for event in shell] == []
            go.touch()
            await follow(client, job.id)
        await client.close_job(job.id)
