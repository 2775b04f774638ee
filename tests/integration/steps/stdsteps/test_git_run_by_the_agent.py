"""Git that the agent runs for a job in a container: no variable and no file of the job makes git start a program.

The job has no rights on the machine itself; it can only use its variables and its working directory.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import git
from tests.support.servers.step_server import TOKEN, StepServer, create_repository, run_step_server
from tests.support.step_jobs import Build, RunStep

from remuda.testing.agent_process import AgentProcess, Seen, run_job, steps_text


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A program of the job that nobody must start."""
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    program.chmod(0o755)
    return program


def checkout_inputs(server: StepServer, sha: str, **values: Any) -> dict[str, Any]:
    refspecs = ["+refs/heads/main:refs/remotes/origin/main"]
    return {"repo_url": server.repo_url, "sha": sha, "ref": "main", "refspecs": refspecs, "depth": 1} | values


@pytest.mark.parametrize(
    "flags",
    [
        "--upload-pack={evil} file://{source}",
        "--upload-pack {evil} file://{source}",
        "--upl={evil} {source}",
        "{source}",
        "--multiple {source}",
        "-o",
        "-qo",
        "--recurse-submodules",
        "--recurse-submodules=yes",
        "--rec",
        "-p --recu=on-demand",
    ],
)
async def test_flags_of_a_fetch_start_no_program(
    run_step: RunStep, server: StepServer, commits: list[str], evil: Path, tmp_path: Path, flags: str
) -> None:
    fetch_flags = flags.format(evil=evil, source=tmp_path / "source").split()
    seen = await run_step("checkout", checkout_inputs(server, commits[2], fetch_flags=fetch_flags))
    assert not (tmp_path / "started").exists()
    assert seen.check().status == "failure"
    assert any(b"GIT_FETCH_EXTRA_FLAGS" in line for line in seen.lines), seen.log.decode()


@pytest.mark.parametrize(
    "fetch_flags",
    [
        ["--prune", "--no-tags"],
        ["-j", "4", "--quiet"],
        ["--shallow-since", "2001-01-01"],
        ["--filter=blob:none"],
        ["-fpj4"],
    ],
)
async def test_flags_of_a_fetch_are_used(
    run_step: RunStep, server: StepServer, commits: list[str], fetch_flags: list[str]
) -> None:
    seen = await run_step("checkout", checkout_inputs(server, commits[2], fetch_flags=fetch_flags, depth=0))
    assert seen.check().status == "success", seen.log.decode()


async def test_variables_of_a_job_choose_no_configuration(
    agent: AgentProcess, a_job: Build, server: StepServer, evil: Path, tmp_path: Path
) -> None:
    files = {".gitattributes": "* filter=evil\n", "file": "text\n"}
    [sha] = create_repository(server.root / "group/project.git", tmp_path / "source", files)
    (tmp_path / "home/git").mkdir(parents=True)
    config = f'[filter "evil"]\n\tsmudge = {evil}\n[core]\n\tfsmonitor = {evil}\n\tsshCommand = {evil}\n'
    for path in (tmp_path / "home/git/config", tmp_path / "home/.gitconfig"):
        path.write_text(config)
    step = {"name": "it", "step": "builtin://checkout", "inputs": checkout_inputs(server, sha), "origin": "compiled"}
    box = {"name": "box", "step": "builtin://container", "inputs": {"image": "none"}, "origin": "compiled"}
    confined = box | {"if": "false", "run": [{"name": "own", "script": "true"}]}
    names = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "OPENSSL_CONF", "ANYTHING")
    env = dict.fromkeys(names, str(tmp_path / "home"))
    seen = await run_job(agent, a_job(steps=steps_text(step, confined), env=env))
    assert seen.check().status == "success", seen.log.decode()
    assert not (tmp_path / "started").exists()


async def test_a_repository_around_the_work_dir_is_not_used(
    run_step: RunStep, server: StepServer, commits: list[str], evil: Path, tmp_path: Path
) -> None:
    outer, work = tmp_path / "builds", tmp_path / "builds/a:b/work"
    work.mkdir(parents=True)
    for folder in (outer, work.parent, work):
        git(folder, "init", "-q")
    for folder in (outer, work.parent):
        git(folder, "config", "remote.origin.url", str(tmp_path / "source"))
        git(folder, "config", "remote.origin.uploadpack", str(evil))
    (work / ".git/HEAD").write_text("no ref\n")
    seen = await run_step("checkout", checkout_inputs(server, commits[2]), work_dir=str(work))
    assert not (tmp_path / "started").exists()
    assert seen.check().status == "success", seen.log.decode()
    assert (work / "file").read_text() == "version 2\n"


def commit_submodule(tmp_path: Path, bare: Path, url: str, sha: str) -> str:
    """Commit the submodule `inner` with this URL. Returns the hash of the commit."""
    text = f'[submodule "inner"]\n\tpath = inner\n\turl = {url}\n'
    create_repository(bare, tmp_path / "outer", {".gitmodules": text})
    git(tmp_path / "outer", "update-index", "--add", "--cacheinfo", f"160000,{sha},inner")
    git(tmp_path / "outer", "commit", "-q", "-m", "submodule")
    git(tmp_path / "outer", "push", "-q", str(bare), "main")
    return git(tmp_path / "outer", "rev-parse", "HEAD")


async def run_checkout(tmp_path: Path, a_job: Build, inputs: dict[str, Any], **env: str) -> Seen:
    """Run a checkout with a separate agent. `env`: more variables of the agent."""
    step = {"name": "it", "step": "builtin://checkout", "inputs": inputs, "origin": "compiled"}
    async with AgentProcess(tmp_path / "other-data") as agent:
        await agent.start(env=env)
        return await run_job(agent, a_job(steps=steps_text(step), env={"REMUDA_PATIENCE_SECONDS": "1"}))


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("login", ["netrc", "config"])
async def test_submodules_use_no_logins_of_the_agents_user(
    a_job: Build, server: StepServer, tmp_path: Path, login: str, isolated: bool
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with run_step_server(tmp_path / "elsewhere") as other:
        [private] = create_repository(other.root / "group/private.git", tmp_path / "private", {"secret": "text\n"})
        address = f"{other.url}/group/private.git"
        if login == "netrc":
            (home / ".netrc").write_text(f"machine 127.0.0.1 login gitlab-ci-token password {TOKEN}\n")
        else:
            url_with_login = other.url.replace("//", f"//gitlab-ci-token:{TOKEN}@")
            (home / ".gitconfig").write_text(f'[url "{url_with_login}/"]\n\tinsteadOf = {other.url}/\n')
        sha = commit_submodule(tmp_path, server.root / "group/project.git", address, private)
        inputs = checkout_inputs(server, sha, submodules="normal", isolated=isolated)
        seen = await run_checkout(tmp_path, a_job, inputs, HOME=str(home))
    assert (tmp_path / "work/.gitmodules").exists()
    assert (tmp_path / "work/inner/secret").exists() is not isolated, seen.log.decode()
    assert seen.check().status == ("failure" if isolated else "success")


@pytest.mark.parametrize("isolated", [True, False])
async def test_submodules_never_come_from_here(a_job: Build, tmp_path: Path, isolated: bool) -> None:
    repositories, home = tmp_path / "repositories", tmp_path / "home"
    [private] = create_repository(repositories / "private.git", tmp_path / "private", {"secret": "text\n"})
    sha = commit_submodule(tmp_path, repositories / "project.git", "../private.git", private)
    home.mkdir()
    refspecs = ["+refs/heads/main:refs/remotes/origin/main"]
    source: dict[str, Any] = {"repo_url": (repositories / "project.git").as_uri(), "sha": sha, "refspecs": refspecs}
    inputs = source | {"submodules": "recursive", "isolated": isolated}
    seen = await run_checkout(tmp_path, a_job, inputs, HOME=str(home))
    assert (tmp_path / "work/.gitmodules").exists()
    assert (tmp_path / "work/inner/secret").exists() is not isolated, seen.log.decode()
    assert (b"transport 'file' not allowed" in seen.log) is isolated, seen.log.decode()


@pytest.mark.parametrize("isolated", [True, False])
async def test_submodules_use_no_keys_of_the_agents_user(
    a_job: Build, server: StepServer, evil: Path, tmp_path: Path, isolated: bool
) -> None:
    (tmp_path / "bin").mkdir()
    evil.rename(tmp_path / "bin/ssh")
    sha = commit_submodule(tmp_path, server.root / "group/project.git", "git@ssh.example:a/private.git", "a" * 40)
    inputs = checkout_inputs(server, sha, submodules="normal", isolated=isolated)
    seen = await run_checkout(tmp_path, a_job, inputs, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert seen.check().status == "failure"
    assert (tmp_path / "started").exists() is not isolated
    assert (b"transport 'ssh' not allowed" in seen.log) is isolated, seen.log.decode()
