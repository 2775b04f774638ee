"""Drivers of the custom executor: calls, environment and files of the scripts, exit codes, and cleanup."""

import json
from pathlib import Path

import msgspec
import pytest
from tests.support.runners.custom_driver import STAGES, CustomHarness
from tests.support.servers.vault_server import JWT, PASSWORD, run_vault_server

from remuda.manager.config.values import CustomBuildDirConfig
from remuda.testing.agent_process import Seen, follow
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentRefusedError, JobEnded
from remuda.wire.agent_shell import ShellCommand, ShellData, ShellExit, open_shell

EXITS_IN_STAGE = """#!/bin/sh
echo "run $3" >>"$CALLS"
[ "$3" != {stage} ] || exit {code}
bash "$2"
"""


def end_of(result: Seen) -> JobEnded:
    return result.check()


async def test_a_job_goes_through_all_stages_in_order(harness: CustomHarness) -> None:
    result = await harness.run("cat file", "pwd")
    assert end_of(result).status == "success", result.log.decode()
    assert b"version 1" in result.lines
    assert str(harness.driver.builds / "group/project").encode() in result.lines
    assert b"Using Custom executor with driver plain v1..." in result.lines
    assert any(line.endswith(b"via the-host...") for line in result.lines)
    assert harness.driver.calls == ["config", "prepare yes", *(f"run {stage}" for stage in STAGES), "cleanup"]


async def test_the_environment_of_the_driver(harness: CustomHarness) -> None:
    services = [{"name": "redis:7", "alias": "cache", "command": ["--save", ""]}]
    variables = [{"key": "TMPDIR", "value": "/nowhere"}, {"key": "GIT_DEPTH", "value": "5"}]
    await harness.run(
        image={"name": "alpine:3"},
        services=services,
        variables=variables,
        runner={"environment": ("OF_RUNNER=x",)},
    )
    env = harness.driver.env_of("step_script")
    assert env["PATH"] == harness.driver.env["PATH"]
    assert env["CUSTOM_ENV_TMPDIR"] == "/nowhere" != env["TMPDIR"]
    assert (env["BUILD_FAILURE_EXIT_CODE"], env["SYSTEM_FAILURE_EXIT_CODE"]) == ("1", "2")
    assert env["BUILD_EXIT_CODE_FILE"].startswith(env["TMPDIR"])
    assert env["CUSTOM_ENV_CI_JOB_ID"] == "1"
    assert env["CUSTOM_ENV_OF_RUNNER"] == "x"
    assert env["CUSTOM_ENV_CI_JOB_IMAGE"] == "alpine:3"
    assert env["CUSTOM_ENV_CI_PROJECT_DIR"] == str(harness.driver.builds / "group/project")
    assert env["FROM_CONFIG"] == "yes"
    assert "CI_JOB_ID" not in env
    assert json.loads(env["CUSTOM_ENV_CI_JOB_SERVICES"]) == [
        {"name": "redis:7", "alias": "cache", "entrypoint": None, "command": ["--save", ""]}
    ]
    response = json.loads((harness.driver.folder / "calls.response").read_text())
    assert (response["id"], response["token"], response["steps"][0]["name"]) == (1, "glcbt-1_abc", "script")
    assert not Path(env["TMPDIR"]).exists(), "TMPDIR must be removed with the job"


async def test_variables_and_files_reach_the_job_and_are_removed(harness: CustomHarness) -> None:
    variables = [
        {"key": "SECRET", "value": "it's very secret", "masked": True},
        {"key": "WHERE", "value": "$CI_PROJECT_DIR/here"},
        {"key": "KEY_FILE", "value": "line 1\nline '2'", "file": True},
        {"key": "LARGE", "value": "x" * 200_000},
    ]
    script = ("echo $SECRET", "echo $WHERE", 'cat "$KEY_FILE"; echo "; $KEY_FILE"', "echo ${#LARGE}", "cat; echo end")
    result = await harness.run(*script, variables=variables)
    assert end_of(result).status == "success", result.log.decode()
    project = harness.driver.builds / "group/project"
    assert b"very secret" not in result.log
    assert f"{project}/here".encode() in result.lines
    assert b"line 1" in result.lines
    assert f"line '2'; {project}.tmp/KEY_FILE".encode() in result.lines
    assert b"200000" in result.lines
    assert list(Path(f"{project}.tmp").iterdir()) == []


@pytest.mark.parametrize(("is_shared", "folder"), [(False, "group/project"), (True, "abcdefghi/3/group/project")])
async def test_build_folders_are_those_of_gitlab_runner(harness: CustomHarness, is_shared: bool, folder: str) -> None:
    shared = json.dumps({"builds_dir_is_shared": is_shared})
    harness.driver.write("config", f"#!/bin/sh\necho '{shared}'\n")
    await harness.run(runner={"builds_dir": str(harness.driver.builds)})
    assert (harness.driver.builds / folder / "file").exists()


async def test_a_job_may_choose_its_folder(harness: CustomHarness) -> None:
    build_dir = CustomBuildDirConfig(enabled=True)
    await harness.run(
        runner={"builds_dir": str(harness.driver.builds), "custom_build_dir": build_dir},
        variables=[{"key": "GIT_CLONE_PATH", "value": "$CI_BUILDS_DIR/go/$CI_CONCURRENT_ID"}],
    )
    assert (harness.driver.builds / "go" / "3" / "file").exists()


async def test_programs_that_are_not_configured_are_not_called(harness: CustomHarness) -> None:
    no_programs = dict.fromkeys(("config_exec", "prepare_exec", "cleanup_exec"), "")
    result = await harness.run(custom=no_programs, runner={"builds_dir": str(harness.driver.builds)})
    assert end_of(result).status == "success"
    assert harness.driver.calls == [f"run {stage}" for stage in STAGES]


async def test_a_missing_builds_dir_is_explained(harness: CustomHarness) -> None:
    result = await harness.run(custom={"config_exec": ""})
    assert end_of(result).status == "failure"
    assert b"builds_dir is not set: set it for the runner in config.toml, or print" in result.log
    assert harness.driver.calls == ["cleanup"]


async def test_a_driver_may_pass_the_script_on_stdin(harness: CustomHarness) -> None:
    harness.driver.write("run", '#!/bin/sh\necho "run $3" >>"$CALLS"\nexec sh <"$2"\n')
    result = await harness.run("cat", "cat file", "read -r x || echo nothing to read", after=["echo and after"])
    assert end_of(result).status == "success", result.log.decode()
    assert [line for line in result.lines if not line.startswith(b"\x1b")][-3:] == [
        b"version 1",
        b"nothing to read",
        b"and after",
    ]


async def test_the_exit_code_of_the_script_is_the_exit_code_of_the_job(harness: CustomHarness) -> None:
    result = await harness.run("exit 75", after=["echo status $CI_JOB_STATUS"])
    end = end_of(result)
    assert (end.status, end.reason, end.exit_code) == ("failure", "script_failure", 75)
    assert b"status failed" in result.lines
    assert harness.driver.stages == [*STAGES[:3], "after_script", STAGES[3]]
    assert harness.driver.calls[-1] == "cleanup"


@pytest.mark.parametrize(("code", "message"), [("2", "failure of the system"), ("7", "exit code 7")])
async def test_any_other_exit_code_is_a_runner_system_failure(harness: CustomHarness, code: str, message: str) -> None:
    harness.driver.write("run", EXITS_IN_STAGE.format(stage="step_script", code=code))
    end = end_of(await harness.run())
    assert (end.status, end.reason) == ("failure", "runner_system_failure")
    assert message in end.message


async def test_a_driver_that_cannot_be_started_is_a_runner_system_failure(harness: CustomHarness) -> None:
    end = end_of(await harness.run(custom={"run_exec": "/nowhere/run"}))
    assert end.reason == "runner_system_failure"
    assert "/nowhere/run cannot be started" in end.message


@pytest.mark.parametrize("stage", ["prepare_script", "get_sources", "step_script", "after_script"])
async def test_a_failure_at_any_stage_ends_in_cleanup(harness: CustomHarness, stage: str) -> None:
    harness.driver.write("run", EXITS_IN_STAGE.format(stage=stage, code=1))
    result = await harness.run(after=["true"])
    expected = {
        "prepare_script": ["prepare_script"],
        "get_sources": ["prepare_script", "get_sources", "cleanup_file_variables"],
        "step_script": [*STAGES[:3], "after_script", STAGES[3]],
        "after_script": [*STAGES[:3], "after_script", STAGES[3]],
    }
    assert harness.driver.stages == expected[stage]
    assert harness.driver.calls[-1] == "cleanup"
    assert end_of(result).status == ("success" if stage == "after_script" else "failure")


async def test_a_failed_cleanup_only_warns(harness: CustomHarness) -> None:
    harness.driver.write("cleanup", "#!/bin/sh\nexit 1\n")
    result = await harness.run()
    assert end_of(result).status == "success"
    assert any(b"WARNING: Cleanup failed" in line for line in result.lines)


async def test_older_drivers_can_have_the_stage_build_script(harness: CustomHarness) -> None:
    await harness.run(runner={"environment": ("REMUDA_CUSTOM_BUILD_SCRIPT=true",)})
    assert harness.driver.stages == ["prepare_script", "get_sources", "build_script", "cleanup_file_variables"]


async def test_steps_have_the_names_of_gitlab_runner(harness: CustomHarness) -> None:
    steps = [{"name": "script", "script": ["true"]}, {"name": "release", "script": ["true"]}]
    await harness.run(steps=steps)
    assert harness.driver.stages == ["prepare_script", "get_sources", "step_script", "step_release", STAGES[3]]


async def test_secrets_reach_the_job_as_variables_and_files(harness: CustomHarness) -> None:
    with run_vault_server() as vault:
        secret = vault.secret()["vault"]
        secret["server"]["auth"]["data"]["jwt"] = JWT
        secrets = {"GIT_PASSWORD": {"vault": secret, "file": False}, "KEPT": {"vault": secret, "file": True}}
        result = await harness.run(
            f'test "$GIT_PASSWORD" = {PASSWORD}', 'test "$(cat "$KEPT")" = "$GIT_PASSWORD"; echo $KEPT', secrets=secrets
        )
    assert end_of(result).status == "success", result.log.decode()
    project = harness.driver.builds / "group/project"
    assert f"{project}.tmp/KEPT".encode() in result.lines
    assert PASSWORD.encode() not in result.log.replace(f'"$GIT_PASSWORD" = {PASSWORD}'.encode(), b"")
    env = harness.driver.env_of("step_script")
    assert env["CUSTOM_ENV_GIT_PASSWORD"] == env["CUSTOM_ENV_KEPT"] == PASSWORD
    assert list(Path(f"{project}.tmp").iterdir()) == []


async def test_a_job_on_hold_is_cleaned_up_when_it_is_closed(harness: CustomHarness) -> None:
    job = msgspec.structs.replace(harness.job("exit 1"), hold_failed_seconds=60)
    async with harness.agent.client() as client:
        await client.start(job)
        result = await follow(client, job.id)
        assert end_of(result).status == "failure"
        assert "cleanup" not in harness.driver.calls
        await client.close_job(job.id)
    await until(lambda: harness.driver.calls[-1] == "cleanup")


async def test_a_shell_into_the_job_is_refused(harness: CustomHarness) -> None:
    job = harness.job("while :; do sleep 0.1; done")
    async with harness.agent.client() as client:
        await client.start(job)
        await until(lambda: "run step_script" in harness.driver.calls)
        async with open_shell(client, job.id, ShellCommand(command=("true",))) as shell:
            events = [event async for event in shell]
        assert events[-1] == ShellExit(1)
        assert any(b"custom executor supports only" in event.data for event in events if isinstance(event, ShellData))
        await client.cancel(job.id)
        await follow(client, job.id)


async def test_a_shell_is_refused_while_the_driver_prepares(harness: CustomHarness) -> None:
    go = harness.driver.builds.parent / "go"
    harness.driver.write("prepare", f"#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.05; done\nexit 1\n")
    job = msgspec.structs.replace(harness.job("true"), hold_failed_seconds=60)
    async with harness.agent.client() as client:
        await client.start(job)
        await until(lambda: "config" in harness.driver.calls)
        for message in ("not open yet", "was not opened"):
            with pytest.raises(AgentRefusedError, match=message):
                async with open_shell(client, job.id, ShellCommand(command=("true",))) as shell:
                    assert [event async for event in shell] == []
            go.touch()
            await follow(client, job.id)
        await client.close_job(job.id)
