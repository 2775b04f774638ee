"""Caches and artifacts of a driver's job: with Remuda's agent inside, with gitlab-runner, with neither."""

import io
import os
import sys
import zipfile
from pathlib import Path

import pytest
from tests.support.runners.custom_driver import Bench
from tests.support.servers.step_server import TOKEN

CACHE = [{"key": "k", "paths": ["kept/"], "policy": "pull-push", "when": "on_success"}]
ARTIFACTS = [{"name": "it", "paths": ["out"], "when": "always", "artifact_type": "archive", "artifact_format": "zip"}]
RUNNER = '#!/bin/sh\necho "$@" >>"$CALLS.helper"\n'


def tools(bench: Bench, **programs: str) -> None:
    """The driver's scripts find these programs, and of Remuda's nothing else."""
    folder = bench.folder / "tools"
    folder.mkdir()
    for name, text in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(text)
        path.chmod(0o755)
    without = [one for one in os.environ["PATH"].split(":") if not (Path(one) / "remuda-agent").exists()]
    bench.driver.extra["PATH"] = ":".join([str(folder), *without])


@pytest.fixture
def _agent_inside(bench: Bench) -> None:
    tools(bench, remuda_agent=f'#!/bin/sh\nexec {sys.executable} -m remuda.steps "$@"\n')


@pytest.mark.usefixtures("_agent_inside")
async def test_caches_are_saved_and_restored(bench: Bench) -> None:
    first = await bench.run("mkdir kept; echo warm >kept/a", cache=CACHE)
    assert first.check().status == "success", first.log.decode()
    assert (bench.driver.folder / "caches/group/project/k.zip").exists()
    second = await bench.run("cat kept/a", cache=CACHE)
    assert b"warm" in second.lines, second.log.decode()
    assert bench.driver.stages[-5:] == [
        "get_sources",
        "restore_cache",
        "step_script",
        "archive_cache",
        "cleanup_file_variables",
    ]


@pytest.mark.usefixtures("_agent_inside")
async def test_artifacts_go_to_the_server_and_come_from_it(bench: Bench) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("from-before", "of another job\n")
    bench.server.archives["/api/v4/jobs/77/artifacts"] = packed.getvalue()
    dependencies = [{"id": 77, "name": "before", "token": TOKEN, "artifacts_file": {"filename": "a.zip", "size": 1}}]
    seen = await bench.run("cat from-before >out", artifacts=ARTIFACTS, dependencies=dependencies)
    assert seen.check().status == "success", seen.log.decode()
    [form] = bench.server.forms
    assert b"PK" in form
    assert bench.driver.stages == [
        "prepare_script",
        "get_sources",
        "download_artifacts",
        "step_script",
        "upload_artifacts_on_success",
        "cleanup_file_variables",
    ]


@pytest.mark.usefixtures("_agent_inside")
async def test_after_a_failure_what_is_wanted_then(bench: Bench) -> None:
    on_failure = [{**CACHE[0], "when": "on_failure", "key": "f"}, CACHE[0]]
    seen = await bench.run("mkdir kept; touch kept/a out; exit 3", cache=on_failure, artifacts=ARTIFACTS)
    assert seen.check().exit_code == 3
    caches = bench.driver.folder / "caches/group/project"
    assert [path.name for path in caches.iterdir()] == ["f.zip"]
    assert len(bench.server.forms) == 1
    assert bench.driver.stages[-3:] == [
        "archive_cache_on_failure",
        "upload_artifacts_on_failure",
        "cleanup_file_variables",
    ]


@pytest.mark.usefixtures("_agent_inside")
async def test_an_upload_that_fails_fails_the_job(bench: Bench) -> None:
    bench.server.answers += [413]
    seen = await bench.run("touch out", artifacts=ARTIFACTS)
    assert seen.check().reason == "script_failure"


@pytest.mark.parametrize("name", ["gitlab_runner", "gitlab_runner_helper"])
async def test_gitlab_runner_does_it_where_it_is(bench: Bench, name: str) -> None:
    tools(bench, **{name: RUNNER})
    dependencies = [{"id": 77, "name": "before", "token": "t", "artifacts_file": {"filename": "a.zip", "size": 1}}]
    seen = await bench.run("touch out", artifacts=ARTIFACTS, cache=CACHE, dependencies=dependencies)
    assert seen.check().status == "success", seen.log.decode()
    url, file = bench.server.url, bench.driver.folder / "caches/group/project/k/cache.zip"
    assert (bench.driver.folder / "calls.helper").read_text().splitlines() == [
        f"cache-extractor --file {file} --timeout 10",
        f"artifacts-downloader --url {url} --token t --id 77",
        f"cache-archiver --file {file} --timeout 10 --path kept/",
        f"artifacts-uploader --url {url} --token {TOKEN} --id 1 --path out --name it "
        "--artifact-format zip --artifact-type archive",
    ]


async def test_without_either_the_job_goes_on_and_says_so(bench: Bench) -> None:
    tools(bench)
    seen = await bench.run("touch out", artifacts=ARTIFACTS, cache=CACHE)
    assert seen.check().status == "success", seen.log.decode()
    missing = [line for line in seen.lines if b"Missing remuda-agent and gitlab-runner" in line]
    assert [line.rpartition(b". ")[2] for line in missing] == [
        b"Extracting cache is disabled.",
        b"Creating cache is disabled.",
        b"Uploading artifacts is disabled.",
    ]
