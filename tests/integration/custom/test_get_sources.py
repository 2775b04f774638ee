"""The stage get_sources of the custom executor: a script that needs only git, in bash and in a plain POSIX shell."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.runners.custom_driver import CustomHarness

RUN_WITH_SH = '#!/bin/sh\necho "run $3" >>"$CALLS"\nsh "$2" || exit 1\n'


def test_the_other_shell_is_not_bash() -> None:
    result = subprocess.run(["sh", "-c", "echo ${BASH_VERSION-none}"], capture_output=True, text=True, check=True)
    assert result.stdout == "none\n"


@pytest.fixture(params=["bash", "sh"])
def shell_harness(request: pytest.FixtureRequest, harness: CustomHarness) -> CustomHarness:
    if request.param == "sh":
        harness.driver.write("run", RUN_WITH_SH)
    return harness


def variable(key: str, value: str) -> list[dict[str, str]]:
    return [{"key": key, "value": value}]


@pytest.mark.parametrize("strategy", ["clone", "fetch"])
async def test_files_of_an_earlier_job_are_cleaned(shell_harness: CustomHarness, strategy: str) -> None:
    project = shell_harness.driver.builds / "group/project"
    await shell_harness.run("touch left; echo changed >file", "git config core.fsmonitor /nowhere/evil")
    (project / ".git/index.lock").touch()
    result = await shell_harness.run("cat file; ls", variables=variable("GIT_STRATEGY", strategy))
    assert result.check().status == "success", result.log.decode()
    assert b"version 1" in result.lines
    assert b"left" not in result.lines


@pytest.mark.parametrize(("strategy", "message"), [("none", b"Skipping Git"), ("empty", b"creating an empty build")])
async def test_git_strategies_without_sources(shell_harness: CustomHarness, strategy: str, message: bytes) -> None:
    result = await shell_harness.run("ls -a | wc -l", variables=variable("GIT_STRATEGY", strategy))
    assert result.check().status == "success", result.log.decode()
    assert any(message in line for line in result.lines)
    assert b"2" in result.lines


async def test_shallow_fetch_and_then_the_whole_history(shell_harness: CustomHarness, push: Callable[..., str]) -> None:
    for number in (2, 3):
        shell_harness.commit = push({"file": f"version {number}\n"})
    git_info = {"repo_url": shell_harness.server.repo_url, "sha": shell_harness.commit, "ref": "main", "depth": 1}
    result = await shell_harness.run("git rev-list --count HEAD", git_info=git_info)
    assert b"1" in result.lines, result.log.decode()
    result = await shell_harness.run("git rev-list --count HEAD", git_info=git_info | {"depth": 0})
    assert b"3" in result.lines, result.log.decode()


async def test_a_missing_commit_fails_the_job(shell_harness: CustomHarness) -> None:
    shell_harness.commit = "0123456789abcdef0123456789abcdef01234567"
    result = await shell_harness.run()
    assert result.check().status == "failure"
    assert any(b"is not in the repository" in line for line in result.lines)
    assert shell_harness.driver.stages == ["prepare_script", "get_sources", "cleanup_file_variables"]


async def test_the_token_stays_out_of_the_repository_and_the_log(harness: CustomHarness) -> None:
    result = await harness.run("cat .git/config; git remote -v; ls $CI_PROJECT_DIR.tmp")
    assert result.check().status == "success"
    assert b"glcbt-1_abc" not in result.log
    assert b"remuda-git" not in result.log


async def test_get_sources_hooks_run_in_the_stage(harness: CustomHarness) -> None:
    hooks = [
        {"name": "pre_get_sources_script", "script": ["echo before; cd /"]},
        {"name": "post_get_sources_script", "script": ["echo behind $(cat file)"]},
    ]
    result = await harness.run(hooks=hooks)
    assert b"before" in result.lines
    assert b"behind version 1" in result.lines


async def test_submodules_checked_out(shell_harness: CustomHarness, push: Callable[..., str], tmp_path: Path) -> None:
    push({"inner": "of the submodule\n"}, repository="library")
    shell_harness.commit = push({"file": "version 2\n"}, submodule="../library.git")
    result = await shell_harness.run("cat module/inner", variables=variable("GIT_SUBMODULE_STRATEGY", "recursive"))
    assert b"of the submodule" in result.lines, result.log.decode()
    result = await shell_harness.run("cat module/inner", variables=variable("GIT_SUBMODULE_STRATEGY", "normal"))
    assert b"of the submodule" in result.lines, result.log.decode()


async def test_submodule_starts_nothing(shell_harness: CustomHarness, push: Callable[..., str], tmp_path: Path) -> None:
    push({"inner": "of the submodule\n"}, repository="library")
    shell_harness.commit = push({"file": "version 2\n"}, submodule="../library.git")
    started = tmp_path / "started"
    script = (
        "cd module; git init -q; git -c user.name=A -c user.email=a@a commit -q --allow-empty -m evil; "
        "git config protocol.file.allow always; git config remote.origin.url $PWD; "
        f"git config remote.origin.uploadpack 'touch {started}; git-upload-pack'"
    )
    result = await shell_harness.run(script)
    assert result.check().status == "success", result.log.decode()
    for variables in (variable("GIT_FETCH_EXTRA_FLAGS", "--recurse-submodules"), []):
        job_variables = [*variables, *variable("GIT_SUBMODULE_STRATEGY", "normal")]
        result = await shell_harness.run("cat module/inner", variables=job_variables)
        assert not started.exists(), result.log.decode()
        assert b"of the submodule" in result.lines, result.log.decode()


async def test_get_sources_is_retried(harness: CustomHarness) -> None:
    harness.driver.write(
        "run",
        '#!/bin/sh\necho "run $3" >>"$CALLS"\n'
        '[ "$3" != get_sources ] || [ "$(grep -c get_sources "$CALLS")" -gt 2 ] || exit 1\nbash "$2"\n',
    )
    result = await harness.run(variables=variable("GET_SOURCES_ATTEMPTS", "3"))
    assert result.check().status == "success", result.log.decode()
    assert harness.driver.stages[1:6] == [
        "get_sources",
        "clear_worktree",
        "get_sources",
        "clear_worktree",
        "get_sources",
    ]


@pytest.mark.parametrize("replaced", ['"$CI_PROJECT_DIR"', '"${CI_PROJECT_DIR%/*}"', '"$CI_PROJECT_DIR.tmp"'])
async def test_link_of_earlier_job_is_not_followed(shell_harness: CustomHarness, tmp_path: Path, replaced: str) -> None:
    precious = tmp_path / "precious"
    (precious / "project").mkdir(parents=True)
    (precious / "project/file").write_text("kept")
    (precious / "KEY").write_text("kept")

    def read_all() -> dict[str, str]:
        return {str(path): path.read_text() if path.is_file() else "" for path in precious.rglob("*")}

    result = await shell_harness.run(f"cd /; mv {replaced} {tmp_path}/aside; ln -s {precious} {replaced}")
    assert result.check().status == "success", result.log.decode()
    before = read_all()
    secret = {"key": "KEY", "value": "secret", "file": True}
    result = await shell_harness.run("cat file", variables=[*variable("GIT_STRATEGY", "clone"), secret])
    assert result.check().status == "success", result.log.decode()
    assert b"version 1" in result.lines
    assert read_all() == before
