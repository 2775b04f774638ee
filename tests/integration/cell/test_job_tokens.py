"""Job tokens: rotation of the signing keys while jobs run, opaque tokens, and access to submodules."""

import io
import json
import zipfile
from base64 import b64encode
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jwt
import pytest
from tests.support.cells.people import (
    add_member,
    create_group,
    create_group_project,
    create_organization,
    create_person,
)
from tests.support.cells.served_cell import ScriptedRunner, ServedCell
from tests.support.git_client import Clone

from remuda.cell.errors import CellError
from remuda.cell.secrets.key_ring import REFRESH_SECONDS
from remuda.cli.main import call
from remuda.lib.clock import SystemClock

JOBS = "a: {script: [echo]}\nb: {script: [echo]}\nc: {script: [echo]}\nd: {script: [echo]}\n"
TWO_STAGES = """
make: {stage: build, script: [make], artifacts: {paths: [out]}}
use: {stage: test, script: [use]}
"""


class LaterClock(SystemClock):
    """A clock that a test can advance."""

    later = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.later


def kid_of(job: dict[str, Any]) -> str:
    return str(jwt.get_unverified_header(job["token"].removeprefix("glcbt-"))["kid"])


def published_key_ids(cell: ServedCell) -> list[str]:
    keys = cell.send("GET", "/oauth/discovery/keys").json()["keys"]
    return [key["kid"] for key in keys if key["alg"] == "EdDSA"]


def verify_token(cell: ServedCell, job: dict[str, Any]) -> dict[str, Any]:
    """Verify a token like a service in front of the cell, with the published keys; return its claims."""
    token = job["token"].removeprefix("glcbt-")
    key = jwt.PyJWKClient(f"{cell.url}/oauth/discovery/keys").get_signing_key_from_jwt(token)
    claims: dict[str, Any] = jwt.decode(token, key.key, algorithms=["EdDSA"], audience="gitlab-authz-token")
    return claims


class TestRotation:
    def test_new_key_signs_and_the_old_is_still_good(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        clock = LaterClock()
        with ServedCell(tmp_path / "cell", clock) as cell:
            cell.new_project("app", JOBS)
            runner = cell.new_runner()
            before = runner.take()
            options = ["--data", str(tmp_path / "cell")]
            assert call(["cell", "keys", "rotate", "--job-tokens", *options]) == 0
            assert len(published_key_ids(cell)) == 2
            clock.later = REFRESH_SECONDS
            after = runner.take()
            assert kid_of(after) != kid_of(before)
            assert published_key_ids(cell) == [kid_of(before), kid_of(after)]
            for job in (before, after):
                assert verify_token(cell, job)["sub"].endswith(f"/{job['id']}")
                assert "job" in verify_token(cell, job)["scopes"]
                assert runner.put(job, "running").status == 200
            capsys.readouterr()
            assert call(["cell", "keys", "list", "--output", "json", *options]) == 0
            listed = json.loads(capsys.readouterr().out)
            signing = {key["name"]: key["signs"] for key in listed if key["for"] == "job tokens"}
            assert signing == {kid_of(before): False, kid_of(after): True}
            assert call(["cell", "keys", "rotate", "--job-tokens", "--at-once", *options]) == 0
            clock.later = 2 * REFRESH_SECONDS
            assert len(published_key_ids(cell)) == 1
            for job in (before, after):
                assert runner.put(job, "running").status == 403
            assert runner.put(runner.take(), "success").status == 200

    def test_all_processes_of_a_cell_accept_the_new_key(self, tmp_path: Path, database: str) -> None:
        clock = LaterClock()
        with ExitStack() as stack:
            cells = [
                stack.enter_context(
                    ServedCell(
                        tmp_path / "cell",
                        clock if number == 0 else None,
                        database=database,
                        public_url="http://cell.example",
                    )
                )
                for number in range(3)
            ]
            for cell in cells:
                cell.url = f"http://127.0.0.1:{cell.service.settings.port}"
            cells[0].new_project("app", JOBS)
            token = cells[0].new_runner().token
            runners = [ScriptedRunner(cell, token) for cell in cells]
            before = runners[1].take(hold=True)
            command = ["cell", "keys", "rotate", "--job-tokens", "--data", str(tmp_path / "cell")]
            assert call([*command, "--database", database]) == 0
            clock.later = REFRESH_SECONDS  # only the first process reads the keys again because of the time
            after = runners[0].take(hold=True)
            assert kid_of(after) != kid_of(before)
            for runner in runners:
                for job in (before, after):
                    assert runner.put(job, "running").status == 200

    def test_rotation_without_a_cell_fails(self, tmp_path: Path) -> None:
        with pytest.raises(CellError, match="cannot read"):
            call(["cell", "keys", "rotate", "--job-tokens", "--data", str(tmp_path / "none")])
        assert not (tmp_path / "none").exists()


class TestOpaque:
    def test_opaque_tokens_work_like_signed_ones(self, tmp_path: Path) -> None:
        with ServedCell(tmp_path / "cell", job_tokens="opaque") as cell:
            project = cell.new_project("app", TWO_STAGES)
            runner = cell.new_runner()
            make = runner.take()
            assert make["token"].startswith("glcbt-")
            assert "." not in make["token"]
            assert runner.put(make, "running").status == 200
            assert runner.patch(make, 0, b"hello\n").status == 202
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w") as file:
                file.writestr("out", "made")
            assert runner.upload(make, archive.getvalue()).status == 201
            build = Clone(tmp_path / "build")
            build.run("clone", "--quiet", make["git_info"]["repo_url"], "here")
            assert runner.put(make, "success").status == 200
            use = runner.take()
            [dependency] = use["dependencies"]
            assert runner.download({"token": dependency["token"]}, dependency["id"]).body == archive.getvalue()
            assert cell.send("GET", "/api/v4/job", JOB_TOKEN=use["token"]).json()["id"] == use["id"]
            triggered = {"token": use["token"], "ref": "main"}
            assert cell.send("POST", f"/api/v4/projects/{project}/trigger/pipeline", triggered).status == 201
            assert runner.put({"id": use["id"], "token": make["token"]}, "success").status == 403
            assert runner.put(use, "success").status == 200
            build.run("fetch", use["git_info"]["repo_url"], ok=False)
            stored = b"".join(path.read_bytes() for path in (tmp_path / "cell").glob("cell.sqlite*"))
            assert make["token"].encode() not in stored
            assert use["token"].encode() not in stored

    def test_tokens_stay_valid_after_a_change_of_the_setting(self, tmp_path: Path) -> None:
        jobs: list[dict[str, Any]] = []
        for kind in ("signed", "opaque", "signed"):
            with ServedCell(tmp_path / "cell", job_tokens=kind) as cell:
                if not jobs:
                    cell.new_project("app", JOBS)
                runner = cell.new_runner()
                jobs.append(runner.take())
                assert ("." in jobs[-1]["token"]) is (kind == "signed")
                for job in jobs:
                    assert runner.put(job, "running").status == 200

    def test_the_same_request_again_gets_a_token_that_works(self, tmp_path: Path) -> None:
        with ServedCell(tmp_path / "cell", job_tokens="opaque") as cell:
            cell.new_project("app", JOBS)
            runner = cell.new_runner()
            first, again = runner.take(request_id="r1"), runner.take(request_id="r1")
            assert (again["id"], again["token"] != first["token"]) == (first["id"], True)
            assert runner.put(first, "running").status == 403
            assert runner.put(again, "running").status == 200


def test_submodules_of_the_same_cell(cell: ServedCell, runner: ScriptedRunner, tmp_path: Path) -> None:
    acme, hidden = create_group(cell, "acme"), create_group(cell, "hidden")
    far = create_group(cell, "faraway", organization_id=create_organization(cell, "far"))
    create_group_project(cell, acme, "library", "x: {script: [echo], rules: [{when: never}]}\n")
    create_group_project(cell, hidden, "secret", "x: {script: [echo], rules: [{when: never}]}\n")
    create_group_project(cell, far, "alien", "x: {script: [echo], rules: [{when: never}]}\n")
    for path in ("acme/library", "hidden/secret", "faraway/alien"):
        cell.disable_job_token_allowlist(path)
    ada = create_person(cell, "ada")
    add_member(cell, f"groups/{acme}", ada, 30)
    create_group_project(cell, acme, "app", "x: {script: [echo], rules: [{when: never}]}\n")
    work = Clone(tmp_path / "work")
    work.run("init", "--quiet", "-b", "feature")
    library = work.run("ls-remote", ada.address("acme/library"), "HEAD").stdout.split()[0]
    work.run("update-index", "--add", "--cacheinfo", f"160000,{library},vendor")
    modules = '[submodule "vendor"]\n\tpath = vendor\n\turl = ../library.git\n'
    (work.folder / ".gitmodules").write_text(modules)
    (work.folder / ".gitlab-ci.yml").write_text("job: {script: [echo]}\n")
    work.run("add", ".gitmodules", ".gitlab-ci.yml")
    work.run("commit", "--quiet", "-m", "With a submodule")
    work.run("push", "--quiet", ada.address("acme/app"), "feature")
    cell.until_pipelines(1, "acme/app")
    job = runner.take()
    build = Clone(tmp_path / "build")
    build.run("clone", "--quiet", "--branch", "feature", "--recurse-submodules", job["git_info"]["repo_url"], "app")
    assert (build.folder / "app" / "vendor" / ".gitlab-ci.yml").exists()

    def status(token: str, path: str, service: str = "git-upload-pack") -> int:
        credentials = b64encode(f"gitlab-ci-token:{token}".encode()).decode()
        path = f"/{path}.git/info/refs?service={service}"
        return cell.send("GET", path, Authorization=f"Basic {credentials}").status

    assert status(job["token"], "acme/library") == 200
    assert status(job["token"], "acme/library", "git-receive-pack") == 403
    # A job token has no more access than its user, and never to another organization.
    assert status(job["token"], "hidden/secret") == status(job["token"], "faraway/alien") == 404
    cell.new_project("own", "job: {script: [echo]}\n")
    of_root = runner.take()
    assert status(of_root["token"], "hidden/secret") == 200
    assert status(of_root["token"], "faraway/alien") == 404
    for path, expected in (("hidden%2Fsecret", 400), ("faraway%2Falien", 404)):  # 400: its pipeline would have no job
        body = {"token": of_root["token"], "ref": "main"}
        assert cell.send("POST", f"/api/v4/projects/{path}/trigger/pipeline", body).status == expected
    assert runner.put(job, "success").status == 200
    assert status(job["token"], "acme/library") == 401
