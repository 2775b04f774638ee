"""Checkout and artifact steps of real jobs, against a real git server and a real HTTP server."""

import asyncio
import io
import os
import signal
import stat
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.support.git_client import git
from tests.support.servers.step_server import BASIC, TOKEN, StepServer
from tests.support.step_jobs import Build, RunStep

from remuda.steps.process.fork_server import NAME
from remuda.testing.agent_process import AgentProcess, run_job, steps_text, through_deaths
from remuda.testing.waiting import until


def checkout_inputs(server: StepServer, sha: str, **values: Any) -> dict[str, Any]:
    refspecs = ["+refs/heads/main:refs/remotes/origin/main"]
    return {"repo_url": server.repo_url, "sha": sha, "ref": "main", "refspecs": refspecs, "depth": 1} | values


async def test_checkout_fetches_again_and_keeps_no_credentials(
    run_step: RunStep, server: StepServer, commits: list[str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    seen = await run_step("checkout", checkout_inputs(server, commits[2]))
    assert seen.check().status == "success", seen.log
    assert f"Checking out {commits[2][:8]} as detached HEAD (ref is main)...".encode() in seen.lines
    assert (work / "file").read_text() == "version 2\n"
    (work / "rubbish").touch()
    (work / ".git/index.lock").touch()
    # This commit is older than the shallow history.
    seen = await run_step("checkout", checkout_inputs(server, commits[0]), "2")
    assert seen.check().status == "success", seen.log
    assert (work / "file").read_text() == "version 0\n"
    assert not (work / "rubbish").exists()
    assert seen.results[-1]["reference"] == "builtin://checkout@1.0.0"
    assert seen.results[-1]["origin"] == "compiled"
    secrets = (TOKEN.encode(), BASIC.encode())
    assert not any(secret in seen.log for secret in secrets)
    for path in (work / ".git").rglob("*"):
        assert not (path.is_file() and any(secret in path.read_bytes() for secret in secrets)), path


async def test_commits_fetched_once(run_step: RunStep, server: StepServer, commits: list[str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    await run_step("checkout", checkout_inputs(server, commits[2]))
    (work / "file").write_text("changed by a job")
    second = await run_step("checkout", checkout_inputs(server, commits[2], repo_url=server.repo_url), "2")
    assert second.check().status == "success", second.log
    assert b"Skipping Git fetch: an earlier job of this pipeline has fetched the commit" in second.lines
    assert (work / "file").read_text() == "version 2\n"

    # A fetch follows if more history is needed or a job has removed objects.
    deeper = await run_step("checkout", checkout_inputs(server, commits[2], depth=0), "3")
    assert b"Fetching changes..." in deeper.lines
    assert git(work, "rev-list", "--count", "HEAD") == "3"
    for pack in (work / ".git/objects").glob("??/*"):
        pack.unlink()
    for pack in (work / ".git/objects/pack").glob("*"):
        pack.unlink()
    emptied = await run_step("checkout", checkout_inputs(server, commits[2], depth=0), "4")
    assert b"Fetching changes..." in emptied.lines


async def test_checkout_strategies(run_step: RunStep, server: StepServer, commits: list[str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "old/folder").mkdir(parents=True)
    seen = await run_step("checkout", {"strategy": "none"})
    assert seen.check().status == "success"
    assert (work / "old").exists()
    await run_step("checkout", checkout_inputs(server, commits[1], strategy="clone", depth=0), "2")
    assert not (work / "old").exists()
    assert git(work, "rev-parse", "HEAD") == commits[1]
    await run_step("checkout", {"strategy": "empty"}, "3")
    assert not list(work.iterdir())


@pytest.mark.parametrize(
    ("change", "reason", "text"),
    [
        ({"sha": "0" * 40}, "script_failure", b"is not in the repository"),
        ({"sha": "main"}, "script_failure", b"8 or more hex digits"),
        ({"refspecs": ["+refs/heads/gone:refs/remotes/origin/gone"]}, "script_failure", b"git fetch failed: "),
        ({"repo_url": "http://127.0.0.1:1/x.git"}, "runner_system_failure", b"cannot be reached"),
        (
            {"strategie": "fetch"},
            "script_failure",
            b'does not accept input with name "strategie"; did you mean "strategy"?',
        ),
    ],
)
async def test_checkout_failures(
    run_step: RunStep,
    server: StepServer,
    commits: list[str],
    change: dict[str, Any],
    reason: str,
    text: bytes,
) -> None:
    seen = await run_step("checkout", checkout_inputs(server, commits[2]) | change, patience=1)
    assert seen.check().reason == reason
    assert any(text in line for line in (*seen.lines, *seen.agent_lines)), seen.log


async def test_wrong_token_is_not_tried_again(run_step: RunStep, server: StepServer, commits: list[str]) -> None:
    url = server.repo_url.replace(TOKEN, "glcbt-other")
    seen = await run_step("checkout", checkout_inputs(server, commits[2], repo_url=url))
    assert seen.check().reason == "script_failure"
    assert not any(b"trying again" in line for line in seen.lines)
    assert b"glcbt-other" not in seen.log


async def test_a_checkout_waits_for_a_server_that_is_away(
    run_step: RunStep, server: StepServer, commits: list[str], tmp_path: Path
) -> None:
    # The last two failures happen in the search for the commit, which is no longer the tip of the branch.
    server.git_answers = [-1, 503, 0, -1, 0, 0, 502]
    seen = await run_step("checkout", checkout_inputs(server, commits[0]))
    assert seen.check().status == "success", seen.lines
    assert (tmp_path / "work/file").read_text() == "version 0\n"
    assert not server.git_answers
    assert any(b"trying again for up to 30 seconds" in line for line in seen.lines), seen.lines


async def test_hostile_repository(run_step: RunStep, server: StepServer, commits: list[str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    await run_step("checkout", checkout_inputs(server, commits[1]))
    (work / ".git/hooks").mkdir(exist_ok=True)
    for path in (work / ".git/hooks/post-checkout", tmp_path / "program"):
        path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        path.chmod(0o755)
    for name in ("core.fsmonitor", "filter.bad.smudge", "core.sshCommand", "core.pager"):
        git(work, "config", name, str(tmp_path / "program"))
    (work / ".git/info").mkdir(exist_ok=True)
    (work / ".git/info/attributes").write_text("* filter=bad\n")
    (tmp_path / "ran").unlink(missing_ok=True)
    seen = await run_step("checkout", checkout_inputs(server, commits[2]), "2")
    assert seen.check().status == "success", seen.lines
    assert (work / "file").read_text() == "version 2\n"
    assert not (tmp_path / "ran").exists()


def upload_inputs(server: StepServer, **values: Any) -> dict[str, Any]:
    return {"api_url": server.api_url, "job_id": 5, "token": TOKEN, "paths": ["out/"]} | values


async def test_artifacts_are_uploaded_and_downloaded(
    run_step: RunStep, agent: AgentProcess, a_job: Build, server: StepServer, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "out/deep").mkdir(parents=True)
    (work / "out/run").write_text("#!/bin/sh\n")
    (work / "out/run").chmod(0o755)
    (work / "out/deep/data").write_bytes(os.urandom(700_000))
    (work / "out/deep/skipped.tmp").touch()
    (work / "out/link").symlink_to("deep/data")
    inputs = upload_inputs(server, exclude=["**/*.tmp"], name="built", expire_in="1 week")
    seen = await run_step("artifacts_upload", inputs)
    assert seen.check().status == "success", seen.lines
    await run_step("artifacts_upload", inputs, "2")
    assert server.forms[0] == server.forms[1]
    query = parse_qs(urlsplit(server.requests[0]).query)
    assert query == {"artifact_format": ["zip"], "artifact_type": ["archive"], "expire_in": ["1 week"]}
    head, _, rest = server.forms[0].partition(b"\r\n\r\n")
    assert b'name="file"; filename="built.zip"' in head
    archive = rest[: rest.rindex(b"\r\n--")]
    assert sorted(zipfile.ZipFile(io.BytesIO(archive)).namelist()) == [
        "out/",
        "out/deep/",
        "out/deep/data",
        "out/link",
        "out/run",
    ]
    server.archives["/api/v4/jobs/5/artifacts"] = archive
    server.answers = [502]
    download_job = a_job("3", work_dir=str(tmp_path / "other"), steps=download_steps(server))
    seen = await run_job(agent, download_job)
    assert seen.check().status == "success", seen.lines
    assert server.requests[-2:] == [
        "GET /api/v4/jobs/5/artifacts?direct_download=true",
        "GET /api/v4/jobs/5/artifacts",
    ]
    outputs = seen.results[-1]["outputs"]
    assert (outputs["jobs"], outputs["bytes"]) == (1, len(server.archives["/api/v4/jobs/5/artifacts"]))
    downloaded = tmp_path / "other/out"
    assert stat.S_IMODE((downloaded / "run").stat().st_mode) == 0o755
    assert (downloaded / "link").read_bytes() == (work / "out/deep/data").read_bytes()
    assert os.readlink(downloaded / "link") == "deep/data"
    assert not (downloaded / "deep/skipped.tmp").exists()
    assert TOKEN.encode() not in seen.log


def download_steps(server: StepServer) -> str:
    dependency = {"id": 5, "name": "build", "token": TOKEN, "filename": "built.zip"}
    inputs = {"api_url": server.api_url, "dependencies": [dependency]}
    return steps_text({"name": "it", "step": "builtin://artifacts_download", "inputs": inputs})


async def test_redirect_gets_no_token(agent: AgentProcess, a_job: Build, server: StepServer, tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("file", "text")
    server.archives["/storage"] = data.getvalue()
    seen = await run_job(agent, a_job(steps=download_steps(server)))
    assert seen.check().status == "success", seen.lines
    assert (tmp_path / "work/file").read_text() == "text"
    assert server.requests == ["GET /api/v4/jobs/5/artifacts?direct_download=true", "GET /storage"]


async def test_nothing_to_upload_is_a_warning(run_step: RunStep, server: StepServer) -> None:
    seen = await run_step("artifacts_upload", upload_inputs(server))
    assert seen.check().status == "success"
    assert b"WARNING: No files to upload" in seen.lines
    assert not server.requests


@pytest.mark.parametrize(
    ("answers", "token", "reason", "requests", "text"),
    [
        ([413], TOKEN, "script_failure", 1, b"too large for this server (300"),
        ([413], TOKEN, "script_failure", 1, b"answered 413 Request Entity Too Large"),
        ([500, 500, 500], TOKEN, "runner_system_failure", 3, b"answered 500"),
        ([], "glcbt-other", "script_failure", 1, b"answered 403 Forbidden: told by the test"),
        ([503, 500], TOKEN, "", 3, b"Uploaded artifacts"),
        pytest.param(
            [-1, 502, 504, -1], TOKEN, "", 5, b"the server cannot be reached: 127.0.0.1", marks=pytest.mark.long
        ),
    ],
)
async def test_responses_to_an_upload(
    run_step: RunStep,
    server: StepServer,
    tmp_path: Path,
    answers: list[int],
    token: str,
    reason: str,
    requests: int,
    text: bytes,
) -> None:
    (tmp_path / "work/out").mkdir(parents=True)
    (tmp_path / "work/out/data").write_bytes(os.urandom(3_000_000))
    server.answers = answers
    seen = await run_step("artifacts_upload", upload_inputs(server, token=token))
    assert seen.check().reason == reason
    assert len(server.requests) == requests
    assert any(text in line for line in seen.lines), seen.lines


async def test_missing_artifacts_are_not_tried_again(agent: AgentProcess, a_job: Build, server: StepServer) -> None:
    seen = await run_job(agent, a_job(steps=download_steps(server)))
    assert seen.check().reason == "script_failure"
    assert len(server.requests) == 1
    assert any(b"answered 404" in line for line in seen.lines)


def checkout_step(name: str, strategy: str) -> dict[str, Any]:
    return {"name": name, "step": "builtin://checkout", "inputs": {"strategy": strategy}, "origin": "compiled"}


def list_children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("point", ["agent.step_prepared", "agent.step_spawned", "agent.step_exited"])
async def test_steps_of_a_fork_server_survive_agent_kill(a_job: Build, tmp_path: Path, point: str, times: int) -> None:
    script = {"name": "script", "script": "echo run >>runs"}
    steps = steps_text(
        checkout_step("one", "empty"), checkout_step("two", "none"), script, checkout_step("three", "none")
    )
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start(kill_point=point, env={"REMUDA_KILL_AFTER": str(times)})
        seen = await through_deaths(agent, a_job(steps=steps), kill_point=point)
    assert seen.check().status == "success", seen.log
    assert set(seen.statuses.values()) == {"success"}
    assert [line for line in seen.lines if not line.startswith(b"section_")] == [
        b"Skipping Git repository setup and creating an empty build directory",
        b"Skipping Git repository setup",
        b"Skipping Git repository setup",
    ]
    assert (tmp_path / "work/runs").read_text() == "run\n"


async def test_killed_waiting_worker_is_replaced(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    work = tmp_path / "work"
    script = {"name": "script", "script": "touch ready; while [ ! -e go ]; do sleep 0.01; done"}
    steps = steps_text(checkout_step("one", "none"), script, checkout_step("two", "none"))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run_job(agent, a_job(steps=steps)))
        await until((work / "ready").exists)
        # The fork server has one waiting worker as soon as it has forked it; its other children are shims.
        await until(lambda: len(find_workers(agent.pid)) == 1)
        [worker] = find_workers(agent.pid)
        os.kill(worker, signal.SIGSTOP)
        (work / "go").touch()
        # The worker is killed before it runs the next step, whether or not it has got it.
        await until(lambda: len(list((agent.data / "jobs").glob("*/step-*.raw"))) > 0 or running.done())
        os.kill(worker, signal.SIGKILL)
    seen = running.result()
    assert seen.check().status == "success", seen.log
    assert seen.lines.count(b"Skipping Git repository setup") == 2


def find_workers(agent: int) -> list[int]:
    return [worker for child in list_children(agent) for worker in list_children(child) if is_waiting_worker(worker)]


def is_waiting_worker(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == NAME
    except (FileNotFoundError, ProcessLookupError):
        return False
