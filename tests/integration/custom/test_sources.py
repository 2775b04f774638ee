"""get_sources as a script: with git alone, under bash and under another shell."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.runners.custom_driver import Bench

WITH_SH = '#!/bin/sh\necho "run $3" >>"$CALLS"\nsh "$2" || exit 1\n'


def test_the_other_shell_is_not_bash() -> None:
    said = subprocess.run(["sh", "-c", "echo ${BASH_VERSION-none}"], capture_output=True, text=True, check=True)
    assert said.stdout == "none\n"


@pytest.fixture(params=["bash", "sh"])
def bench_of(request: pytest.FixtureRequest, bench: Bench) -> Bench:
    if request.param == "sh":
        bench.driver.write("run", WITH_SH)
    return bench


def variable(key: str, value: str) -> list[dict[str, str]]:
    return [{"key": key, "value": value}]


@pytest.mark.parametrize("strategy", ["clone", "fetch"])
async def test_what_an_earlier_job_left_is_cleaned(bench_of: Bench, strategy: str) -> None:
    project = bench_of.driver.builds / "group/project"
    await bench_of.run("touch left; echo changed >file", "git config core.fsmonitor /nowhere/evil")
    (project / ".git/index.lock").touch()
    seen = await bench_of.run("cat file; ls", variables=variable("GIT_STRATEGY", strategy))
    assert seen.check().status == "success", seen.log.decode()
    assert b"version 1" in seen.lines
    assert b"left" not in seen.lines


@pytest.mark.parametrize(("strategy", "words"), [("none", b"Skipping Git"), ("empty", b"creating an empty build")])
async def test_no_sources(bench_of: Bench, strategy: str, words: bytes) -> None:
    seen = await bench_of.run("ls -a | wc -l", variables=variable("GIT_STRATEGY", strategy))
    assert seen.check().status == "success", seen.log.decode()
    assert any(words in line for line in seen.lines)
    assert b"2" in seen.lines


async def test_depth_then_the_whole_history(bench_of: Bench, push: Callable[..., str]) -> None:
    for number in (2, 3):
        bench_of.commit = push({"file": f"version {number}\n"})
    git_info = {"repo_url": bench_of.server.repo_url, "sha": bench_of.commit, "ref": "main", "depth": 1}
    seen = await bench_of.run("git rev-list --count HEAD", git_info=git_info)
    assert b"1" in seen.lines, seen.log.decode()
    seen = await bench_of.run("git rev-list --count HEAD", git_info=git_info | {"depth": 0})
    assert b"3" in seen.lines, seen.log.decode()


async def test_a_commit_that_is_not_there(bench_of: Bench) -> None:
    bench_of.commit = "0123456789abcdef0123456789abcdef01234567"
    seen = await bench_of.run()
    assert seen.check().status == "failure"
    assert any(b"is not in the repository" in line for line in seen.lines)
    assert bench_of.driver.stages == ["prepare_script", "get_sources", "cleanup_file_variables"]


async def test_the_token_stays_out_of_the_repository_and_the_log(bench: Bench) -> None:
    seen = await bench.run("cat .git/config; git remote -v; ls $CI_PROJECT_DIR.tmp")
    assert seen.check().status == "success"
    assert b"glcbt-1_abc" not in seen.log
    assert b"remuda-git" not in seen.log


async def test_hooks_are_part_of_the_stage(bench: Bench) -> None:
    hooks = [
        {"name": "pre_get_sources_script", "script": ["echo before; cd /"]},
        {"name": "post_get_sources_script", "script": ["echo behind $(cat file)"]},
    ]
    seen = await bench.run(hooks=hooks)
    assert b"before" in seen.lines
    assert b"behind version 1" in seen.lines


async def test_submodules(bench_of: Bench, push: Callable[..., str], tmp_path: Path) -> None:
    push({"inner": "of the submodule\n"}, repository="library")
    bench_of.commit = push({"file": "version 2\n"}, submodule="../library.git")
    seen = await bench_of.run("cat module/inner", variables=variable("GIT_SUBMODULE_STRATEGY", "recursive"))
    assert b"of the submodule" in seen.lines, seen.log.decode()
    seen = await bench_of.run("cat module/inner", variables=variable("GIT_SUBMODULE_STRATEGY", "normal"))
    assert b"of the submodule" in seen.lines, seen.log.decode()


async def test_a_repository_at_the_place_of_a_submodule_starts_no_program(
    bench_of: Bench, push: Callable[..., str], tmp_path: Path
) -> None:
    push({"inner": "of the submodule\n"}, repository="library")
    bench_of.commit = push({"file": "version 2\n"}, submodule="../library.git")
    started = tmp_path / "started"
    left = (
        "cd module; git init -q; git -c user.name=A -c user.email=a@a commit -q --allow-empty -m evil; "
        "git config protocol.file.allow always; git config remote.origin.url $PWD; "
        f"git config remote.origin.uploadpack 'touch {started}; git-upload-pack'"
    )
    seen = await bench_of.run(left)
    assert seen.check().status == "success", seen.log.decode()
    for variables in (variable("GIT_FETCH_EXTRA_FLAGS", "--recurse-submodules"), []):
        own = [*variables, *variable("GIT_SUBMODULE_STRATEGY", "normal")]
        seen = await bench_of.run("cat module/inner", variables=own)
        assert not started.exists(), seen.log.decode()
        assert b"of the submodule" in seen.lines, seen.log.decode()


async def test_getting_sources_may_be_tried_again(bench: Bench) -> None:
    bench.driver.write(
        "run",
        '#!/bin/sh\necho "run $3" >>"$CALLS"\n'
        '[ "$3" != get_sources ] || [ "$(grep -c get_sources "$CALLS")" -gt 2 ] || exit 1\nbash "$2"\n',
    )
    seen = await bench.run(variables=variable("GET_SOURCES_ATTEMPTS", "3"))
    assert seen.check().status == "success", seen.log.decode()
    assert bench.driver.stages[1:6] == ["get_sources", "clear_worktree", "get_sources", "clear_worktree", "get_sources"]


@pytest.mark.parametrize("left", ['"$CI_PROJECT_DIR"', '"${CI_PROJECT_DIR%/*}"', '"$CI_PROJECT_DIR.tmp"'])
async def test_a_link_that_an_earlier_job_left_is_not_followed(bench_of: Bench, tmp_path: Path, left: str) -> None:
    precious = tmp_path / "precious"
    (precious / "project").mkdir(parents=True)
    (precious / "project/file").write_text("kept")
    (precious / "KEY").write_text("kept")

    def there() -> dict[str, str]:
        return {str(path): path.read_text() if path.is_file() else "" for path in precious.rglob("*")}

    seen = await bench_of.run(f"cd /; mv {left} {tmp_path}/aside; ln -s {precious} {left}")
    assert seen.check().status == "success", seen.log.decode()
    before = there()
    secret = {"key": "KEY", "value": "secret", "file": True}
    seen = await bench_of.run("cat file", variables=[*variable("GIT_STRATEGY", "clone"), secret])
    assert seen.check().status == "success", seen.log.decode()
    assert b"version 1" in seen.lines
    assert there() == before
