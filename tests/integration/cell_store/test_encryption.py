"""Secrets are encrypted on disk and absent from logs; keys can be rotated; a wrong key prevents the start."""

import asyncio
import io
import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell, commit_file, log_errors_only

from remuda.cell import service
from remuda.cell.errors import CellError
from remuda.cell.operations import encryption_keys
from remuda.cell.operations.backups import back_up, missing_keys, restore
from remuda.cell.secrets import resealing
from remuda.cell.secrets.key_files import key_file, read_keys
from remuda.cell.secrets.sealing import SealError, format_key, new_key
from remuda.cell.settings import CellSettings
from remuda.cell.store.sqlite.store import SqliteStore
from remuda.cell.values import Project, ProjectVariable
from remuda.model.job import ProjectId
from remuda.telemetry.logs import configure
from remuda.testing.builders import NOW
from remuda.testing.waiting import wait_until

SECRET = "hunter2hunter2"
PIPELINE = f"""
variables:
  YAML: {SECRET}-yaml
build:
  script: "true"
  artifacts:
    reports:
      dotenv: out.env
deploy:
  stage: deploy
  script: "true"
  when: manual
"""


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that the cell logs."""
    stream = io.StringIO()
    log_errors_only()  # the first cell of a process does this, which would undo the next line
    configure(level="debug", log_format="json", stream=stream)
    yield stream
    configure(level="error", log_format="text", stream=sys.__stderr__)


def set_secrets(cell: ServedCell) -> int:
    """Store a secret in every place that takes one; return the project's id."""
    project = cell.new_project("app")
    group = cell.api("POST", "/groups", {"name": "team", "path": "team"}).json()["id"]
    places: list[tuple[str, dict[str, Any]]] = [
        (f"/projects/{project}/variables", {"masked": True}),
        (f"/projects/{project}/variables", {"environment_scope": "production"}),
        (f"/groups/{group}/variables", {}),
        ("/admin/ci/variables", {"key": "EVERYWHERE"}),
    ]
    for number, (path, settings) in enumerate(places):
        response = cell.api("POST", path, {"key": "PASSWORD", "value": f"{SECRET}-{number}", **settings})
        assert response.status == 201, response
    commit_file(cell, project, "build:\n  script: make\n", commit_message="First commit [skip ci]")
    schedule = {"description": "nightly", "ref": "main", "cron": "0 1 * * *"}
    response = cell.api("POST", f"/projects/{project}/pipeline_schedules", schedule)
    assert response.status == 201, response
    path = f"/projects/{project}/pipeline_schedules/{response.json()['id']}/variables"
    assert cell.api("POST", path, {"key": "NIGHTLY", "value": f"{SECRET}-schedule"}).status == 201
    return project


def values_in(job: dict[str, Any]) -> set[str]:
    return {str(variable["value"]) for variable in job["variables"]}


def files_with(folder: Path, text: str) -> list[str]:
    """Return files below a folder that contain a text; repositories hold what users pushed and are left out."""
    files = [file for file in folder.rglob("*") if file.is_file() and "repos" not in file.relative_to(folder).parts]
    assert any(file.name == "encryption.keys" for file in files)
    return [str(file) for file in files if text.encode() in file.read_bytes()]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_secret_on_disk_or_log(tmp_path: Path, request: pytest.FixtureRequest, log: io.StringIO, kind: str) -> None:
    database = request.getfixturevalue("database") if kind == "postgres" else ""
    data = tmp_path / "cell"
    with ServedCell(data, database=database) as cell:
        runner = cell.new_runner()
        project = set_secrets(cell)
        body = {"ref": "main", "variables": [{"key": "GIVEN", "value": f"{SECRET}-given"}]}
        started = cell.api("POST", f"/projects/{project}/pipeline", body)
        assert started.status == 201, started
        job = runner.take()
        assert {f"{SECRET}-0", f"{SECRET}-3", f"{SECRET}-given"} <= values_in(job)
        assert runner.patch(job, 0, b"the log says nothing\n").status == 202
        assert runner.put(job, "success").status == 200
        variables = cell.api("GET", f"/projects/{project}/pipelines/{started.json()['id']}/variables").json()
        assert variables[0]["value"] == f"{SECRET}-given"
        assert (
            cell.api("GET", f"/projects/{project}/variables/PASSWORD?filter[environment_scope]=*")
            .json()["value"]
            .startswith(SECRET)
        )
        assert files_with(data, SECRET) == [], "while the cell runs, with the write-ahead log"
    assert files_with(data, SECRET) == []
    assert "jobs/request" in log.getvalue()
    assert SECRET not in log.getvalue()
    if kind == "postgres":
        text = b"".join(read_values(database))
        assert b"PASSWORD" in text
        assert SECRET.encode() not in text


def read_values(database: str) -> list[bytes]:
    """Return all values of all tables that hold secrets."""

    async def read() -> list[bytes]:
        import asyncpg

        db = await asyncpg.connect(database)
        try:
            values: list[bytes] = []
            for table, *_ in resealing.TABLES:
                for row in await db.fetch(f"SELECT * FROM {table}"):
                    values += [column if isinstance(column, bytes) else str(column).encode() for column in row.values()]
            return values
        finally:
            await db.close()

    return asyncio.run(read())


def test_values_given_to_a_manual_job_and_by_dotenv_are_sealed(tmp_path: Path) -> None:
    data = tmp_path / "cell"
    with ServedCell(data) as cell:
        runner = cell.new_runner()
        cell.new_project("app", PIPELINE)
        job = runner.take()
        assert f"{SECRET}-yaml" in values_in(job)
        # The secret stays in the blob of the report, which is what the job uploaded.
        report = f"FROM_JOB={SECRET}-dotenv\n".encode()
        query = "?artifact_type=dotenv&artifact_format=raw"
        assert runner.upload(job, report, filename="out.env", query=query).status == 201
        assert runner.put(job, "success").status == 200
        wait_until(lambda: len(cell.api("GET", "/projects/root%2Fapp/jobs?scope=manual").json()) == 1, "manual job")
        waiting = cell.api("GET", "/projects/root%2Fapp/jobs?scope=manual").json()[0]["id"]
        body = {"job_variables_attributes": [{"key": "PLAYED", "value": f"{SECRET}-played"}]}
        assert cell.api("POST", f"/projects/root%2Fapp/jobs/{waiting}/play", body).status == 200
        assert {f"{SECRET}-played", f"{SECRET}-dotenv", f"{SECRET}-yaml"} <= values_in(runner.take())
    files = files_with(data, SECRET)
    assert all("blobs" in Path(file).parts for file in files), files


def test_the_key_file_is_private_and_does_not_change(tmp_path: Path) -> None:
    path = key_file(CellSettings(data=tmp_path / "cell"))
    with ServedCell(tmp_path / "cell"):
        first = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with ServedCell(tmp_path / "cell"):
        assert path.read_bytes() == first


def test_a_wrong_or_missing_key_stops_the_start(tmp_path: Path) -> None:
    data = tmp_path / "cell"
    path = key_file(CellSettings(data=data))
    with ServedCell(data):
        pass
    right = path.read_bytes()
    path.unlink()
    with pytest.raises(CellError, match=r"encryption\.keys, is missing; restore it from a copy"), ServedCell(data):
        pass
    assert not path.exists(), "no new key is created for secrets that are encrypted already"
    path.write_text(f"{format_key(new_key())}\n")
    with pytest.raises(SealError, match=r"encrypted with key \w{12}, which is not in .*encryption\.keys"):
        ServedCell(data).__enter__()
    path.write_text("garbage\n")
    with pytest.raises(CellError, match="line 1: this is no encryption key"), ServedCell(data):
        pass
    path.write_text("# nothing\n")
    with pytest.raises(CellError, match="has no key"), ServedCell(data):
        pass
    path.unlink()
    key = format_key(next(iter(read_keys_of(right, tmp_path).values())))
    with ServedCell(data, encryption_keys=(key,)) as cell:
        assert cell.api("GET", "/projects").status == 200
    with pytest.raises(CellError, match="REMUDA_ENCRYPTION_KEYS: this is no"), ServedCell(data, encryption_keys=("x",)):
        pass


def read_keys_of(content: bytes, folder: Path) -> dict[str, bytes]:
    (folder / "copy").write_bytes(content)
    return read_keys(folder / "copy").by_id


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_keys_are_rotated_while_the_cell_runs(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(resealing, "_BATCH", 3)
    database = request.getfixturevalue("database") if kind == "postgres" else ""
    data = tmp_path / "cell"
    settings = CellSettings(data=data, database=database)
    with ServedCell(data, database=database) as cell:
        runner = cell.new_runner()
        project = set_secrets(cell)
        for _ in range(4):
            body = {"ref": "main", "variables": [{"key": "GIVEN", "value": f"{SECRET}-given"}]}
            assert cell.api("POST", f"/projects/{project}/pipeline", body).status == 201
        old = asyncio.run(encryption_keys.list_encryption_keys(settings))
        assert len(old) == 1
        new, changed = asyncio.run(encryption_keys.rotate_encryption_key(settings))
        assert changed >= 15
        listed = {key.id: key for key in asyncio.run(encryption_keys.list_encryption_keys(settings))}
        assert listed[new].encrypts
        assert listed[old[0].id].rows == 0
        for _ in range(4):
            job = runner.take()
            assert {f"{SECRET}-0", f"{SECRET}-given"} <= values_in(job)
            assert runner.put(job, "success").status == 200
        assert cell.api("POST", f"/projects/{project}/variables", {"key": "LATER", "value": SECRET}).status == 201
        assert asyncio.run(resealing.count_keys_in_use(settings)).keys() == {new}, (
            "the running cell seals with the new key"
        )
        event = cell.api("GET", "/audit_events?action=encryption_key_rotated").json()[0]
        assert event["details"]["target_details"] == new
        assert event["details"]["author_name"].startswith("command of ")
        with pytest.raises(CellError, match="changed a moment ago"):
            asyncio.run(encryption_keys.forget_encryption_key(settings, old[0].id))
    monkeypatch.setattr(encryption_keys, "SETTLED_SECONDS", 0)
    with pytest.raises(CellError, match="is the one that encrypts"):
        asyncio.run(encryption_keys.forget_encryption_key(settings, new))
    with pytest.raises(CellError, match="there is no key"):
        asyncio.run(encryption_keys.forget_encryption_key(settings, "nothing"))
    asyncio.run(encryption_keys.forget_encryption_key(settings, old[0].id))
    with ServedCell(data, database=database) as cell:
        assert cell.api("GET", f"/projects/{project}/variables/LATER").json()["value"] == SECRET


def test_every_process_uses_a_new_key(tmp_path: Path, database: str) -> None:
    data = tmp_path / "cell"
    settings = CellSettings(data=data, database=database)
    with ServedCell(data, database=database) as first, ServedCell(data, database=database) as second:
        project = set_secrets(first)
        new, _ = asyncio.run(encryption_keys.rotate_encryption_key(settings))
        for number, cell in enumerate((first, second)):
            path = f"/projects/{project}/variables"
            assert {row["value"] for row in cell.api("GET", path).json()} >= {f"{SECRET}-0", f"{SECRET}-1"}
            assert cell.api("POST", path, {"key": f"LATER{number}", "value": SECRET}).status == 201
        assert asyncio.run(resealing.count_keys_in_use(settings)).keys() == {new}
        assert second.api("GET", f"/projects/{project}/variables/LATER0").json()["value"] == SECRET


def test_an_interrupted_rotation_can_be_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "cell"
    settings = CellSettings(data=data)
    with ServedCell(data) as cell:
        project = set_secrets(cell)
    monkeypatch.setattr(resealing, "_BATCH", 1)
    reseal, remaining = resealing._reseal, [3]

    def reseal_until_interrupted(*arguments: Any) -> Any:
        remaining[0] -= 1
        if remaining[0] < 0:
            raise KeyboardInterrupt
        return reseal(*arguments)

    monkeypatch.setattr(resealing, "_reseal", reseal_until_interrupted)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(encryption_keys.rotate_encryption_key(settings))
    monkeypatch.setattr(resealing, "_reseal", reseal)
    assert len(asyncio.run(resealing.count_keys_in_use(settings))) == 2
    with ServedCell(data) as cell:
        value = cell.api("GET", f"/projects/{project}/variables/PASSWORD?filter[environment_scope]=production")
        assert value.json()["value"] == f"{SECRET}-1"
    asyncio.run(encryption_keys.rotate_encryption_key(settings))
    assert len(asyncio.run(resealing.count_keys_in_use(settings))) == 1


async def _create_unencrypted_store(path: Path) -> None:
    store = SqliteStore.open(path, 1)
    project = await store.projects.add_project(Project(id=ProjectId(0), path="root/app", name="app", created_at=NOW))
    for number in range(20):
        variable = ProjectVariable(project_id=project.id, key=f"OLD{number}", value=f"{SECRET}-{number}" + "x" * 3000)
        await store.projects.put_variable(variable, replace=False)
    await store.projects.remove_variable(project.id, "OLD3")
    await store.settings.put_setting("registration_token", SECRET)
    await store.close()


def test_the_first_start_encrypts_secrets_of_an_older_release(tmp_path: Path) -> None:
    data = tmp_path / "cell"
    data.mkdir(mode=0o700)
    asyncio.run(_create_unencrypted_store(data / "cell.sqlite"))
    assert SECRET.encode() in (data / "cell.sqlite").read_bytes()
    with ServedCell(data) as cell:
        value = cell.api("GET", "/projects/root%2Fapp/variables/OLD7").json()["value"]
        assert value == f"{SECRET}-7" + "x" * 3000
        assert files_with(data, SECRET) == []
    assert files_with(data, SECRET) == []


def test_a_backup_without_keys_says_which_are_missing(tmp_path: Path) -> None:
    settings = CellSettings(data=tmp_path / "cell")
    with ServedCell(settings.data) as cell:
        project = set_secrets(cell)
    bare = asyncio.run(back_up(settings, tmp_path / "bare", now=NOW))
    assert bare.keys == ()
    assert len(bare.keys_wanted) == 1
    new = CellSettings(data=tmp_path / "new")
    asyncio.run(restore(tmp_path / "bare", new))
    assert missing_keys(bare, new) == bare.keys_wanted
    with pytest.raises(CellError, match="is missing; restore it from a copy"), ServedCell(new.data):
        pass
    key_file(new).write_bytes(key_file(settings).read_bytes())
    assert missing_keys(bare, new) == ()
    with ServedCell(new.data) as cell:
        assert cell.api("GET", f"/projects/{project}").status == 200

    whole = asyncio.run(back_up(settings, tmp_path / "whole.tar", now=NOW, with_keys=True))
    other = CellSettings(data=tmp_path / "other")
    asyncio.run(restore(tmp_path / "whole.tar", other))
    assert missing_keys(whole, other) == ()
    with ServedCell(other.data) as cell:
        path = f"/projects/{project}/variables/PASSWORD?filter[environment_scope]=production"
        assert cell.api("GET", path).json()["value"] == f"{SECRET}-1"


def test_a_tampered_row_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "cell"
    with ServedCell(data) as cell:
        project = set_secrets(cell)
    db = sqlite3.connect(data / "cell.sqlite")
    (body,) = db.execute("SELECT body FROM variables WHERE project_id != 0").fetchone()
    changed = body.replace(b"A", b"B").replace(b"a", b"b")
    db.execute("UPDATE variables SET body = ? WHERE body = ?", (changed.replace(b"vblue", b"value"), body))
    db.commit()
    db.close()
    with ServedCell(data) as cell:
        answer = cell.api("GET", f"/projects/{project}/variables")
        assert answer.status >= 500
        assert SECRET not in answer.body.decode()


def test_encryption_commands(tmp_path: Path) -> None:
    def remuda(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "remuda", "cell", *arguments, "--data", str(data)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)

    data = tmp_path / "cell"
    with ServedCell(data) as cell:
        set_secrets(cell)
        done = remuda("encryption", "rotate")
        assert re.fullmatch(r"key \w{12} encrypts now; \d\d rows were encrypted with it\n", done.stdout), done
        listed = json.loads(remuda("encryption", "list", "--output", "json").stdout)
        assert [(key["encrypts"], key["known"]) for key in listed] == [(True, True), (False, True)]
        assert "decrypts" in remuda("encryption", "list").stdout
        assert "a moment ago" in remuda("encryption", "forget", listed[1]["id"]).stderr
        done = remuda("backup", str(tmp_path / "bare"))
        assert f"without the keys ({listed[0]['id']}): keep a copy of {data}/encryption.keys" in done.stdout
        assert not (tmp_path / "bare" / "encryption.keys").exists()
    keys = ",".join(format_key(key) for key in read_keys(data / "encryption.keys").by_id.values())
    command = [sys.executable, "-m", "remuda", "cell", "encryption", "generate"]
    new = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    done = remuda("encryption", "rotate", REMUDA_ENCRYPTION_KEYS=f"{new},{keys}")
    assert done.returncode == 0, done
    assert "REMUDA_ENCRYPTION_KEYS" in remuda("encryption", "forget", "x", REMUDA_ENCRYPTION_KEYS=new).stderr
    refused = remuda("encryption", "list")
    assert refused.returncode != 0
    assert "which is not in" in refused.stderr
    checked = remuda("check")
    assert (checked.returncode, "which is not in" in checked.stdout) == (1, True), checked
    with ServedCell(data, encryption_keys=(new,)) as cell:
        assert cell.api("GET", "/projects").status == 200
    refused = remuda("encryption", "list", REMUDA_ENCRYPTION_KEYS="c2hvcnQ=")
    assert "this is no encryption key" in refused.stderr
    assert "c2hvcnQ=" not in refused.stderr


def test_a_job_whose_key_was_forgotten_can_end(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption_keys, "SETTLED_SECONDS", 0)
    monkeypatch.setattr(service, "REREAD_SECONDS", 0.02)
    data = tmp_path / "cell"
    settings = CellSettings(data=data, database=database)
    with ServedCell(data, database=database) as cell:
        runner = cell.new_runner()
        project = cell.new_project("app", "build:\n  script: make\n  coverage: '/covered (\\d+)/'\n")
        job = runner.take(hold=True)
        assert runner.patch(job, 0, b"covered 97\n").status == 202
        old = asyncio.run(encryption_keys.list_encryption_keys(settings))[0].id
        asyncio.run(encryption_keys.rotate_encryption_key(settings))
        asyncio.run(encryption_keys.forget_encryption_key(settings, old))
        wait_until(lambda: old not in cell.service._seals.keys.by_id, "the cell drops the old key")
        assert runner.put(job, "success").status == 200
        assert cell.api("GET", f"/projects/{project}/jobs/{job['id']}").json()["coverage"] == 97
