"""Data that the first release stored is served by this one: nothing is lost, and jobs that ran go on.

`first_release` holds a cell's rows as that release wrote them, its one repository, and its API responses.
"""

import asyncio
import json
import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.cell.operations.backups import back_up, restore
from remuda.cell.service import CellService
from remuda.cell.settings import CellSettings
from remuda.cell.store import migrations
from remuda.lib.clock import SystemClock
from remuda.testing.builders import NOW

FIXTURE = Path(__file__).parent / "first_release"
STORED_AT = 1794760430.0
ARCHIVE = b"PK\x05\x06" + bytes(18)
FILES = {
    "version": b"1\n",
    "cell": b"1\n",
    "traces/archive/1.log": b"compiled\n",
    "traces/archive/2.log": b"failed\n",
    "traces/archive/3.log": b"failed\n",
    "traces/5.log": b"still running\n",
    "blobs/kept/artifacts/1/archive-84f9c612baf1da7d": ARCHIVE,
}
RUNNER_TOKEN = "glrt-nvWQJmgqtq57wkETYKtZ4mM6MQpvOjEKdDoxCnU6MQ8.01.170o78x10"
JOB_TOKEN = (
    "glcbt-eyJhbGciOiJFZERTQSIsImtpZCI6ImNlbGwxLTE3OTQ3NjA0MjgiLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJodHRwOi8vY2VsbC5leGF"
    "tcGxlIiwiYXVkIjoiZ2l0bGFiLWF1dGh6LXRva2VuIiwic3ViIjoiZ2lkOi8vZ2l0bGFiL0NpOjpCdWlsZC81IiwidmVyc2lvbiI6IjAuMS4"
    "wIiwiaWF0IjoxNzk0NzYwNDI4LCJleHAiOjE3OTQ3NjQzMjgsImMiOiIxIiwibyI6IjEiLCJwIjoiMSIsInUiOiIxIiwiZXBvY2giOjF9.v9"
    "E4Cb7m3zDnLR5O02ZpjpixtFTgsphAJucUm7O7_kOly9NicTbvXxLmRmqu-2-wN7S9i63XE17J7-KkDpgSCA"
)
FIELDS_THAT_MAY_DIFFER = re.compile(r"\.(queued_)?duration$|\.detailed_status\.text$|\.artifacts_expire_at$")
"""Fields that may differ: durations grow, status texts changed, and the default expiry is another."""


class FirstReleaseClock(SystemClock):
    """A clock that starts when the first release stopped."""

    def __init__(self) -> None:
        self._shift = time.time() - STORED_AT

    def now(self) -> float:
        return time.time() - self._shift


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of the first release."""
    data = tmp_path / "cell"
    for name, content in FILES.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(content)
    with closing(sqlite3.connect(data / "cell.sqlite")) as db:
        db.executescript((FIXTURE / "cell.sql").read_text())
        bodies = [json.loads(body) for (body,) in db.execute("SELECT body FROM projects")]
    for project in bodies:
        repository = data / "repos" / project["repo_path"]
        if project["path"] == "root/app":
            subprocess.run(["git", "clone", "-q", "--mirror", FIXTURE / "app.bundle", repository], check=True)
        else:
            subprocess.run(["git", "init", "-q", "--bare", "--initial-branch=main", repository], check=True)
    return data


def create_cell(settings: CellSettings) -> ServedCell:
    options = {name: getattr(settings, name) for name in ("database", "public_url")}
    cell = ServedCell(settings.data, admin_token=None, **options)
    cell.service = CellService(cell.settings, FirstReleaseClock())
    cell.token = "glpat-served-cell-administrator"
    return cell


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """Yield the values of the old response that are missing or different in the new one."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            yield from differences(value, new.get(key, "MISSING"), f"{where}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (old_item, new_item) in enumerate(zip(old, new, strict=True)):
            yield from differences(old_item, new_item, f"{where}[{index}]")
    elif old != new:
        yield f"{where}: {old!r} -> {new!r}"


@pytest.mark.parametrize("way", ["in place", "restored", "restored to PostgreSQL"])
def test_all_data_is_served(tmp_path: Path, folder: Path, request: pytest.FixtureRequest, way: str) -> None:
    settings = CellSettings(data=folder, public_url="http://cell.example")
    if way != "in place":
        database = request.getfixturevalue("database") if way == "restored to PostgreSQL" else ""
        asyncio.run(back_up(settings, tmp_path / "backup.tar", now=NOW, with_keys=True))
        settings = CellSettings(data=tmp_path / "new", public_url="http://cell.example", database=database)
        asyncio.run(restore(tmp_path / "backup.tar", settings))
    with create_cell(settings) as cell:
        cell.url = f"http://127.0.0.1:{cell.service.settings.port}"
        answers = json.loads((FIXTURE / "answers.json").read_text())
        steps = cell.send("GET", "/api/remuda/v1/jobs/1/steps", PRIVATE_TOKEN=cell.token).json()
        assert list(differences(answers.pop("steps"), steps)) == []
        for path, old in answers.items():
            changes = differences(old, cell.api("GET", path).json(), path)
            assert [change for change in changes if not FIELDS_THAT_MAY_DIFFER.search(change.partition(":")[0])] == []
        for job_id, log in ((1, b"compiled\n"), (2, b"failed\n"), (5, b"still running\n")):
            assert cell.api("GET", f"/projects/1/jobs/{job_id}/trace").body == log
        assert cell.api("GET", "/projects/1/jobs/1/artifacts").body == ARCHIVE
        _continue_work(cell)


def _continue_work(cell: ServedCell) -> None:
    """End the job that ran, take the next one with its variables, and create a pipeline with new ids."""
    runner = ScriptedRunner(cell, RUNNER_TOKEN)
    running = {"id": 5, "token": JOB_TOKEN}
    assert runner.patch(running, 14, b"done\n").status == 202
    assert runner.put(running, "success").status == 200
    assert cell.api("GET", "/projects/1/jobs/5").json()["status"] == "success"
    job = runner.take()
    assert (job["job_info"]["name"], job["git_info"]["ref"]) == ("compile", "main")
    variables = {variable["key"]: variable for variable in job["variables"]}
    assert (variables["SECRET_KEY"]["value"], variables["SECRET_KEY"]["masked"]) == ("hunter2hunter2", True)
    assert (variables["AS_FILE"]["value"], variables["AS_FILE"]["file"]) == ("content", True)
    more = cell.api("POST", "/projects/1/pipeline", {"ref": "main"}).json()
    assert (more["id"], more["iid"]) == (4, 4)
    assert min(row["id"] for row in cell.api("GET", "/projects/1/pipelines/4/jobs").json()) == 14


def test_the_fixture_is_of_the_first_schema() -> None:
    text = (FIXTURE / "cell.sql").read_text()
    assert "INSERT INTO schema_version VALUES (1, 1);" in text
    assert "alembic" not in text
    assert migrations.NAMES[0] == "0001"
