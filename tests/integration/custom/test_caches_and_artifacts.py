"""Caches and artifacts of the custom executor: handled by remuda-agent or gitlab-runner, or skipped with a warning."""

import io
import os
import sys
import zipfile
from pathlib import Path

import pytest
from tests.support.runners.custom_driver import CustomHarness
from tests.support.servers.step_server import TOKEN

CACHE = [{"key": "k", "paths": ["kept/"], "policy": "pull-push", "when": "on_success"}]
ARTIFACTS = [{"name": "it", "paths": ["out"], "when": "always", "artifact_type": "archive", "artifact_format": "zip"}]
RUNNER = '#!/bin/sh\necho "$@" >>"$CALLS.helper"\n'


def install_tools(harness: CustomHarness, **programs: str) -> None:
    """Put these programs on the PATH of the driver's scripts, and remove folders with remuda-agent from it."""
    folder = harness.folder / "tools"
    folder.mkdir()
    for name, text in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(text)
        path.chmod(0o755)
    other_folders = [name for name in os.environ["PATH"].split(":") if not (Path(name) / "remuda-agent").exists()]
    harness.driver.extra["PATH"] = ":".join([str(folder), *other_folders])


@pytest.fixture
def _remuda_agent(harness: CustomHarness) -> None:
    install_tools(harness, remuda_agent=f'#!/bin/sh\nexec {sys.executable} -m remuda.steps "$@"\n')


@pytest.mark.usefixtures("_remuda_agent")
async def test_caches_are_saved_and_restored(harness: CustomHarness) -> None:
    first = await harness.run("mkdir kept; echo warm >kept/a", cache=CACHE)
    assert first.check().status == "success", first.log.decode()
    assert (harness.driver.folder / "caches/group/project/k.zip").exists()
    second = await harness.run("cat kept/a", cache=CACHE)
    assert b"warm" in second.lines, second.log.decode()
    assert harness.driver.stages[-5:] == [
        "get_sources",
        "restore_cache",
        "step_script",
        "archive_cache",
        "cleanup_file_variables",
    ]


@pytest.mark.usefixtures("_remuda_agent")
async def test_artifacts_are_downloaded_and_uploaded(harness: CustomHarness) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("from-before", "of another job\n")
    harness.server.archives["/api/v4/jobs/77/artifacts"] = packed.getvalue()
    dependencies = [{"id": 77, "name": "before", "token": TOKEN, "artifacts_file": {"filename": "a.zip", "size": 1}}]
    result = await harness.run("cat from-before >out", artifacts=ARTIFACTS, dependencies=dependencies)
    assert result.check().status == "success", result.log.decode()
    [form] = harness.server.forms
    assert b"PK" in form
    assert harness.driver.stages == [
        "prepare_script",
        "get_sources",
        "download_artifacts",
        "step_script",
        "upload_artifacts_on_success",
        "cleanup_file_variables",
    ]


@pytest.mark.usefixtures("_remuda_agent")
async def test_after_a_failure_on_failure_caches_and_artifacts_are_saved(harness: CustomHarness) -> None:
    on_failure = [{**CACHE[0], "when": "on_failure", "key": "f"}, CACHE[0]]
    result = await harness.run("mkdir kept; touch kept/a out; exit 3", cache=on_failure, artifacts=ARTIFACTS)
    assert result.check().exit_code == 3
    caches = harness.driver.folder / "caches/group/project"
    assert [path.name for path in caches.iterdir()] == ["f.zip"]
    assert len(harness.server.forms) == 1
    assert harness.driver.stages[-3:] == [
        "archive_cache_on_failure",
        "upload_artifacts_on_failure",
        "cleanup_file_variables",
    ]


@pytest.mark.usefixtures("_remuda_agent")
async def test_a_failed_upload_fails_the_job(harness: CustomHarness) -> None:
    harness.server.answers += [413]
    result = await harness.run("touch out", artifacts=ARTIFACTS)
    assert result.check().reason == "script_failure"


@pytest.mark.parametrize("name", ["gitlab_runner", "gitlab_runner_helper"])
async def test_gitlab_runner_is_used_if_it_is_installed(harness: CustomHarness, name: str) -> None:
    install_tools(harness, **{name: RUNNER})
    dependencies = [{"id": 77, "name": "before", "token": "t", "artifacts_file": {"filename": "a.zip", "size": 1}}]
    result = await harness.run("touch out", artifacts=ARTIFACTS, cache=CACHE, dependencies=dependencies)
    assert result.check().status == "success", result.log.decode()
    url, file = harness.server.url, harness.driver.folder / "caches/group/project/k/cache.zip"
    assert (harness.driver.folder / "calls.helper").read_text().splitlines() == [
        f"cache-extractor --file {file} --timeout 10",
        f"artifacts-downloader --url {url} --token t --id 77",
        f"cache-archiver --file {file} --timeout 10 --path kept/",
        f"artifacts-uploader --url {url} --token {TOKEN} --id 1 --path out --name it "
        "--artifact-format zip --artifact-type archive",
    ]


async def test_without_either_program_the_job_continues_with_warnings(harness: CustomHarness) -> None:
    install_tools(harness)
    result = await harness.run("touch out", artifacts=ARTIFACTS, cache=CACHE)
    assert result.check().status == "success", result.log.decode()
    missing = [line for line in result.lines if b"Missing remuda-agent and gitlab-runner" in line]
    assert [line.rpartition(b". ")[2] for line in missing] == [
        b"Extracting cache is disabled.",
        b"Creating cache is disabled.",
        b"Uploading artifacts is disabled.",
    ]
