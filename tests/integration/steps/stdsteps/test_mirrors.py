"""Checkouts that share a mirror of the repository on their machine, against a real git server."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import git
from tests.support.servers.step_server import BASIC, TOKEN, StepServer
from tests.support.step_jobs import RunStep

LARGE_LIMIT = 10**9


@pytest.fixture
def mirrors(tmp_path: Path) -> Path:
    return tmp_path / "cache/.git-mirrors"


def checkout_inputs(server: StepServer, mirrors: Path, sha: str, **values: Any) -> dict[str, Any]:
    refspecs = ["+refs/heads/main:refs/remotes/origin/main"]
    source = {"repo_url": server.repo_url, "sha": sha, "ref": "main", "refspecs": refspecs, "depth": 1}
    return source | {"mirrors": str(mirrors), "mirrors_bytes": LARGE_LIMIT} | values


def find_mirror(mirrors: Path) -> Path:
    [mirror] = mirrors.glob("*.git")
    return mirror


async def test_history_is_downloaded_once(
    run_step: RunStep, server: StepServer, commits: list[str], mirrors: Path, tmp_path: Path
) -> None:
    for number in range(3):
        work = tmp_path / f"work{number}"
        seen = await run_step("checkout", checkout_inputs(server, mirrors, commits[2]), str(number), work_dir=str(work))
        assert seen.check().status == "success", seen.lines
        assert (work / "file").read_text() == "version 2\n"
        assert git(work, "rev-list", "--count", "HEAD") == "1"
        assert git(work, "rev-parse", "refs/remotes/origin/main") == commits[2]
        # The checkout does not depend on the mirror.
        assert not (work / ".git/objects/info/alternates").exists()
    assert server.packs == 1
    assert git(find_mirror(mirrors), "rev-list", "--count", "refs/heads/main") == "3"
    for path in mirrors.rglob("*"):
        assert not (path.is_file() and any(text.encode() in path.read_bytes() for text in (TOKEN, BASIC))), path


async def test_git_replace_refs_are_ignored(
    run_step: RunStep, server: StepServer, commits: list[str], mirrors: Path, tmp_path: Path
) -> None:
    """An earlier job left replace refs in the mirror and in the working directory."""
    work = tmp_path / "work"
    await run_step("checkout", checkout_inputs(server, mirrors, commits[2], depth=0), "1")
    for kind in ("", "^{tree}", ":file"):
        for repository in (work, find_mirror(mirrors)):
            original, replacement = (
                git(repository, "--no-replace-objects", "rev-parse", f"{commits[index]}{kind}") for index in (1, 0)
            )
            git(repository, "update-ref", f"refs/replace/{original}", replacement)
    for number, repository in enumerate((work, tmp_path / "new")):
        inputs = checkout_inputs(server, mirrors, commits[1], depth=0)
        seen = await run_step("checkout", inputs, f"2{number}", work_dir=str(repository))
        assert seen.check().status == "success", seen.lines
        assert (repository / "file").read_text() == "version 1\n"
        assert git(repository, "--no-replace-objects", "rev-parse", "HEAD") == commits[1]


async def test_new_commits_and_commits_off_the_branch_are_found(
    run_step: RunStep, server: StepServer, commits: list[str], mirrors: Path, tmp_path: Path
) -> None:
    await run_step("checkout", checkout_inputs(server, mirrors, commits[2]), "1")
    source = tmp_path / "source"
    (source / "file").write_text("newer\n")
    git(source, "commit", "-q", "-a", "-m", "newer")
    git(source, "push", "-q", str(server.root / "group/project.git"), "main")
    newest = git(source, "rev-parse", "HEAD")
    seen = await run_step("checkout", checkout_inputs(server, mirrors, newest), "2")
    assert seen.check().status == "success", seen.lines
    assert (tmp_path / "work/file").read_text() == "newer\n"
    seen = await run_step(
        "checkout", checkout_inputs(server, mirrors, commits[0], depth=0), "3", work_dir=str(tmp_path / "old")
    )
    assert seen.check().status == "success", seen.lines
    assert git(tmp_path / "old", "rev-parse", "HEAD") == commits[0]


async def test_many_checkouts_at_once(
    run_step: RunStep, server: StepServer, commits: list[str], mirrors: Path, tmp_path: Path
) -> None:
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(
                run_step(
                    "checkout",
                    checkout_inputs(server, mirrors, commits[2]),
                    str(number),
                    work_dir=str(tmp_path / f"w{number}"),
                )
            )
            for number in range(6)
        ]
    for number, task in enumerate(running):
        assert task.result().check().status == "success", task.result().lines
        assert (tmp_path / f"w{number}/file").read_text() == "version 2\n"
    assert server.packs == 1


async def test_a_mirror_serves_nothing_that_the_server_refuses(
    run_step: RunStep, server: StepServer, commits: list[str], mirrors: Path, tmp_path: Path
) -> None:
    await run_step("checkout", checkout_inputs(server, mirrors, commits[2]), "1")
    stranger = server.repo_url.replace(TOKEN, "glcbt-wrong")
    other = tmp_path / "other"
    seen = await run_step(
        "checkout", checkout_inputs(server, mirrors, commits[2], repo_url=stranger), "2", work_dir=str(other)
    )
    assert seen.check().status == "failure"
    assert not (other / "file").exists()


async def test_a_mirror_that_a_job_has_spoilt_is_replaced(
    run_step: RunStep, server: StepServer, commits: list[str], mirrors: Path, tmp_path: Path
) -> None:
    await run_step("checkout", checkout_inputs(server, mirrors, commits[2]), "1")
    mirror, ran = find_mirror(mirrors), tmp_path / "ran"
    hook = mirror / "hooks/reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    with (mirror / "config").open("a") as file:
        file.write(f'[core]\n\tfsmonitor = "touch {ran}"\n\tsshCommand = "touch {ran}"\n')
    for path in [*mirror.glob("objects/??/*"), *mirror.glob("objects/pack/*.pack")]:
        path.chmod(0o600)
        path.write_bytes(os.urandom(path.stat().st_size))
    for number in ("2", "3"):
        work = tmp_path / number
        seen = await run_step("checkout", checkout_inputs(server, mirrors, commits[2]), number, work_dir=str(work))
        assert seen.check().status == "success", seen.lines
        assert (work / "file").read_text() == "version 2\n"
    assert not ran.exists()


async def test_a_repository_over_the_size_limit_gets_no_mirror(
    run_step: RunStep, server: StepServer, commits: list[str], mirrors: Path, tmp_path: Path
) -> None:
    for number in range(2):
        work = tmp_path / f"w{number}"
        inputs = checkout_inputs(server, mirrors, commits[2], mirrors_bytes=10)
        seen = await run_step("checkout", inputs, str(number), work_dir=str(work))
        assert seen.check().status == "success", seen.lines
        assert any(b"too large for a mirror" in line for line in seen.lines) == (number == 0)
    assert not list(mirrors.glob("*.git"))


async def test_links_in_a_repository_are_not_written_through(
    run_step: RunStep, server: StepServer, commits: list[str], mirrors: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "pack").mkdir(parents=True)
    (tmp_path / "work/.git/refs").mkdir(parents=True)
    (tmp_path / "work/.git/HEAD").write_text("ref: refs/heads/none\n")
    (tmp_path / "work/.git/objects").symlink_to(elsewhere)
    seen = await run_step("checkout", checkout_inputs(server, mirrors, commits[2]) | {"mirrors": ""})
    assert seen.check().status == "success", seen.lines
    assert not [path for path in elsewhere.rglob("*") if path.is_file()]


async def test_a_link_in_the_place_of_the_mirrors_is_not_followed(
    run_step: RunStep, server: StepServer, commits: list[str], mirrors: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    mirrors.parent.mkdir()
    mirrors.symlink_to(elsewhere)
    seen = await run_step("checkout", checkout_inputs(server, mirrors, commits[2]))
    assert seen.check().status == "success", seen.lines
    assert not list(elsewhere.iterdir())
    assert find_mirror(mirrors).is_dir()
