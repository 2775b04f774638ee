"""Checkouts with submodules, over real HTTP with the job's token."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import git
from tests.support.servers.step_server import BASIC, TOKEN, StepServer, create_repository
from tests.support.step_jobs import RunStep


@pytest.fixture
def sha(server: StepServer, tmp_path: Path) -> str:
    """The hash of a commit with two submodules, one of which has its own submodule."""
    deep = create_repository(server.root / "group/deep.git", tmp_path / "deep", {"deep": "old\n"}, {"deep": "new\n"})[0]
    library = create_repository(
        server.root / "group/library.git", tmp_path / "library", {"lib": "1\n"}, {"lib": "2\n"}
    )[1]
    add_submodule(tmp_path / "library", "inner", f"{server.url}/group/deep.git", deep)
    library = commit_and_push(tmp_path / "library", server.root / "group/library.git")
    create_repository(server.root / "group/project.git", tmp_path / "source", {"file": "text\n"})
    add_submodule(tmp_path / "source", "vendor/library", "../library.git", library)
    add_submodule(tmp_path / "source", "vendor/deep", "git@127.0.0.1:group/deep.git", deep)
    return commit_and_push(tmp_path / "source", server.root / "group/project.git")


def add_submodule(repository: Path, path: str, url: str, sha: str) -> None:
    """Add a submodule to the index without a fetch."""
    with (repository / ".gitmodules").open("a") as file:
        file.write(f'[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n')
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{sha},{path}")
    git(repository, "add", ".gitmodules")


def commit_and_push(repository: Path, bare: Path) -> str:
    git(repository, "commit", "-q", "-m", "submodules")
    git(repository, "push", "-q", str(bare), "main")
    return git(repository, "rev-parse", "HEAD")


def checkout_inputs(server: StepServer, sha: str, **values: Any) -> dict[str, Any]:
    refspecs = ["+refs/heads/main:refs/remotes/origin/main"]
    return {"repo_url": server.repo_url, "sha": sha, "ref": "main", "refspecs": refspecs, "depth": 5} | values


async def test_submodule_strategies_and_paths(run_step: RunStep, server: StepServer, sha: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    library, inner = work / "vendor/library", work / "vendor/library/inner"
    only = {"submodule_paths": ["vendor/library"], "submodule_depth": 1}
    seen = await run_step("checkout", checkout_inputs(server, sha, submodules="recursive", **only))
    assert seen.check().status == "success", seen.lines
    assert b"Updating submodules failed with a depth of 1; trying again with the whole history" in seen.lines
    assert (library / "lib").read_text() == "2\n"
    assert (inner / "deep").read_text() == "old\n"
    assert not list((work / "vendor/deep").iterdir())
    (library / "lib").write_text("changed by a job\n")
    (work / ".git/modules/vendor/library/config").write_text("[core]\n\tfsmonitor = false; touch ran\n")
    seen = await run_step("checkout", checkout_inputs(server, sha, submodules="normal", **only), "2")
    assert seen.check().status == "success", seen.lines
    assert (library / "lib").read_text() == "2\n"
    assert not list(inner.iterdir())
    assert not list(tmp_path.rglob("ran"))
    seen = await run_step("checkout", checkout_inputs(server, sha), "3")
    assert seen.check().status == "success", seen.lines
    assert not list(library.iterdir())
    assert git(work, "status", "--porcelain") == ""
    for path in (work / ".git").rglob("*"):
        assert not (path.is_file() and any(text in path.read_bytes() for text in (TOKEN.encode(), BASIC.encode()))), (
            path
        )


def leave_repository(folder: Path, program: str) -> None:
    """Create a repository like one that a job leaves in place of a submodule: a fetch in it starts the program."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    for key, value in (("user.name", "A"), ("user.email", "a@a"), ("protocol.file.allow", "always")):
        git(folder, "config", key, value)
    git(folder, "commit", "-q", "--allow-empty", "-m", "evil")
    git(folder, "config", "remote.origin.url", str(folder))
    git(folder, "config", "remote.origin.uploadpack", f"{program}; git-upload-pack")


@pytest.mark.parametrize("kind", ["folder", "file", "link", "link above"])
async def test_submodule_starts_nothing(
    run_step: RunStep, server: StepServer, sha: str, tmp_path: Path, kind: str
) -> None:
    work = tmp_path / "work"
    seen = await run_step("checkout", checkout_inputs(server, sha))
    assert seen.check().status == "success", seen.lines
    evil, program = tmp_path / "evil/library", f"touch {tmp_path}/started"
    place = work / "vendor/library"
    if kind == "folder":
        leave_repository(place, program)
    else:
        leave_repository(evil, program)
    if kind == "file":
        (place / ".git").write_text(f"gitdir: {evil}/.git\n")
    elif kind != "folder":
        # With this flag git does not touch files at these paths.
        git(work, "update-index", "--skip-worktree", "vendor/library", "vendor/deep")
        moved = place if kind == "link" else place.parent
        moved.rename(tmp_path / "moved")
        moved.symlink_to(evil if kind == "link" else evil.parent)
    only = {"submodule_paths": ["vendor/library"]}
    seen = await run_step("checkout", checkout_inputs(server, sha, submodules="normal", clean_flags=[], **only), "2")
    assert not (tmp_path / "started").exists(), seen.lines
    assert seen.check().status == "success", seen.lines
    assert (place / "lib").read_text() == "2\n"
    assert kind == "folder" or list(evil.iterdir()) == [evil / ".git"], "the checkout followed the link"


@pytest.mark.parametrize("flag", ["--recurse-submodules", "--recurse-submodules=yes", "--rec"])
async def test_fetch_of_submodules(run_step: RunStep, server: StepServer, sha: str, tmp_path: Path, flag: str) -> None:
    await run_step("checkout", checkout_inputs(server, sha))
    leave_repository(tmp_path / "work/vendor/library", f"touch {tmp_path}/started")
    (tmp_path / "work/.git/remuda-fetched").unlink()
    seen = await run_step("checkout", checkout_inputs(server, sha, fetch_flags=[flag]), "2")
    assert not (tmp_path / "started").exists(), seen.lines
    assert any(b"GIT_FETCH_EXTRA_FLAGS" in line for line in seen.lines), seen.lines


@pytest.mark.parametrize("flags", [["--no-fetch", "--reference", "{other}"], ["--reference={other}"], ["--jobs"]])
async def test_flags_of_submodules_reach_no_other_repository(
    run_step: RunStep, server: StepServer, sha: str, tmp_path: Path, flags: list[str]
) -> None:
    submodule_flags = [flag.format(other=tmp_path / "source") for flag in flags]
    only = {"submodule_paths": ["vendor/library"], "submodule_flags": submodule_flags}
    seen = await run_step("checkout", checkout_inputs(server, sha, submodules="normal", **only))
    assert not list((tmp_path / "work").rglob("alternates"))
    assert seen.check().status == "failure"
    assert any(b"GIT_SUBMODULE_UPDATE_FLAGS" in line for line in seen.lines), seen.lines


async def test_flags_of_submodules_are_used(run_step: RunStep, server: StepServer, sha: str, tmp_path: Path) -> None:
    flags = ["--remote", "--jobs", "4", "--depth=1", "--no-single-branch", "--progress"]
    only = {"submodule_paths": ["vendor/library"], "submodule_flags": flags}
    seen = await run_step("checkout", checkout_inputs(server, sha, submodules="normal", **only))
    assert seen.check().status == "success", seen.lines
    assert (tmp_path / "work/vendor/library/lib").read_text() == "2\n"


async def test_ssh_addresses_go_over_http(run_step: RunStep, server: StepServer, sha: str, tmp_path: Path) -> None:
    seen = await run_step("checkout", checkout_inputs(server, sha, submodules="normal", instead_of_ssh=True))
    assert seen.check().status == "success", seen.lines
    assert (tmp_path / "work/vendor/deep/deep").read_text() == "old\n"
    assert (tmp_path / "work/vendor/library/lib").exists()


async def test_missing_submodule_fails_the_job(run_step: RunStep, server: StepServer, sha: str, tmp_path: Path) -> None:
    (server.root / "group/deep.git").rename(tmp_path / "moved")
    only = {"submodule_paths": ["vendor/library"]}
    seen = await run_step("checkout", checkout_inputs(server, sha, submodules="recursive", **only))
    assert seen.check().reason == "script_failure"
    assert any(b"git submodule update failed" in line for line in seen.lines), seen.lines


async def test_submodules_wait_for_server_away(run_step: RunStep, server: StepServer, sha: str, tmp_path: Path) -> None:
    server.git_answers = [0, 0, 0, -1, 503]
    only = {"submodule_paths": ["vendor/library"]}
    seen = await run_step("checkout", checkout_inputs(server, sha, submodules="normal", **only))
    assert seen.check().status == "success", seen.lines
    assert (tmp_path / "work/vendor/library/lib").exists()
    assert any(b"git submodule" in line and b"trying again" in line for line in seen.lines), seen.lines


async def test_no_checkout_sources(run_step: RunStep, server: StepServer, commits: list[str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    await run_step("checkout", checkout_inputs(server, commits[0], fetch_flags=["--no-tags", "--quiet"]))
    (work / "made").touch()
    seen = await run_step("checkout", checkout_inputs(server, commits[2], checkout=False), "2")
    assert seen.check().status == "success", seen.lines
    assert (work / "file").read_text() == "version 0\n"
    assert (work / "made").exists()
    assert git(work, "show", f"{commits[2]}:file") == "version 2"
