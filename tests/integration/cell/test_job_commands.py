"""The commands `remuda job` and `remuda runner` against a cell."""

import json
from typing import Any

import pytest
from tests.support.cells.served_cell import FEATURES, ScriptedRunner, ServedCell

from remuda.cell.http.gitlab import jobs as http_jobs
from remuda.cli.main import call
from remuda.lib.exits import BadInputError
from remuda.wire.user_client import RefusedError

FILE = "build:\n  script: make\ngpu:\n  tags: [gpu]\n  script: make gpu\n"


@pytest.fixture(autouse=True)
def _cell_with_pipeline(cell: ServedCell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_URL", cell.url)
    monkeypatch.setenv("REMUDA_TOKEN", cell.token)
    cell.new_project("app", FILE)
    cell.until_pipelines(1)


def test_why(cell: ServedCell, runner: ScriptedRunner, capsys: pytest.CaptureFixture[str]) -> None:
    gpu = next(job["id"] for job in cell.api("GET", "/projects/1/jobs").json() if job["name"] == "gpu")
    assert call(["job", "why", str(gpu)]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"job {gpu}: gpu (root/app, pipeline 1)\n  pending")
    assert "waits for a runner: the only one does not fit" in output
    assert "no runner has the tag gpu: register one or change the tags" in output
    assert call(["job", "why", str(gpu), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["runners"]["matching"] == 0


def test_cancel(cell: ServedCell, capsys: pytest.CaptureFixture[str]) -> None:
    graceful = {"features": FEATURES | {"cancel_gracefully": True}}
    job = cell.new_runner().take(info=graceful)
    token = {"JOB_TOKEN": job["token"]}
    assert (
        cell.send("PUT", f"/api/v4/jobs/{job['id']}", {"token": job["token"], "state": "running"}, **token).status
        == 200
    )
    for options in ([], ["--output", "json"]):
        assert call(["job", "cancel", str(job["id"]), *options]) == 0
    first, _, document = capsys.readouterr().out.partition("\n")
    assert (first, json.loads(document)["status"]) == (f"job {job['id']} is canceling", "canceling")
    assert call(["job", "cancel", str(job["id"]), "--force"]) == 0
    assert capsys.readouterr().out == f"job {job['id']} is canceled\n"


def test_payload(cell: ServedCell, runner: ScriptedRunner, capsys: pytest.CaptureFixture[str]) -> None:
    job = runner.take()
    assert call(["job", "payload", str(job["id"])]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert (payload["id"], payload["token"]) == (job["id"], "[MASKED]")


def test_show_splits_the_time(cell: ServedCell, runner: ScriptedRunner, capsys: pytest.CaptureFixture[str]) -> None:
    job = runner.take()
    runner.put(job, "success")
    assert call(["job", "show", str(job["id"]), "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["times"]["split"]["parts"]) == {"waiting", "running"}
    assert document["steps"] == []


def test_steps_of_a_long_job(
    cell: ServedCell, runner: ScriptedRunner, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_jobs, "RESULTS", 1500)
    job = runner.take()
    results = [{"seq": number, "event": "started", "name": f"s{number}"} for number in range(1, 1502)]
    path = f"/api/remuda/v1/jobs/{job['id']}/results"
    assert cell.send("POST", path, {"results": results}, JOB_TOKEN=job["token"]).status == 200
    assert call(["job", "show", str(job["id"]), "--output", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["steps"]) == 1501
    assert call(["job", "show", str(job["id"])]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "  note       only the first 1500 step events are counted"


def test_show_prints_all_steps(cell: ServedCell, runner: ScriptedRunner, capsys: pytest.CaptureFixture[str]) -> None:
    job = runner.take()
    times = {"started_at": "2026-01-01T00:00:00.000000Z", "finished_at": "2026-01-01T00:00:02.000000Z"}
    denied = {"decision": "denied", "rule": "no curl", "reason": "not here"}
    results: list[dict[str, Any]] = [
        {"event": "started", "path": "/box", "name": "box", "time": times["started_at"]},
        {"event": "finished", "path": "/box/get", "name": "get", "status": "failure", **times, "policy": denied},
        {"event": "finished", "path": "/box", "name": "box", "status": "failure", **times, "outputs": {"hit": False}},
    ]
    numbered = [{"seq": number, **result} for number, result in enumerate(results, 1)]
    path = f"/api/remuda/v1/jobs/{job['id']}/results"
    assert cell.send("POST", path, {"results": numbered}, JOB_TOKEN=job["token"]).status == 200
    assert call(["job", "show", str(job["id"]), "--steps"]) == 0
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "  steps",
        "    ✗ box    failure, 2.0s, gave hit=false",
        "      ✗ get  failure, 2.0s",
        '          denied by rule "no curl": not here',
    ]
    assert call(["job", "show", str(job["id"]), "--steps", "--output", "json"]) == 0
    [box] = json.loads(capsys.readouterr().out)["steps"]
    assert (box["name"], box["outputs"], [step["policy"]["rule"] for step in box["steps"]]) == (
        "box",
        {"hit": False},
        ["no curl"],
    )


def test_a_missing_job() -> None:
    with pytest.raises(RefusedError, match="there is no job 999"):
        call(["job", "why", "999"])


def test_runners_and_their_load(cell: ServedCell, runner: ScriptedRunner, capsys: pytest.CaptureFixture[str]) -> None:
    runner.take(info={"version": "1.2", "config": {"capacity": 4, "gpus": ""}})
    assert call(["runner", "list"]) == 0
    [headings, row] = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert headings == ["runner", "description", "type", "tags", "manager", "version", "jobs", "load", "status", "seen"]
    assert row[:6] == ["1", "instance", "s_0123456789ab", "1.2", "1/4", "online"]
    assert call(["runner", "list", "--output", "json"]) == 0
    [document] = json.loads(capsys.readouterr().out)
    assert [(manager["capacity"], manager["running_jobs"]) for manager in document["managers"]] == [(4, 1)]


def test_settings_of_a_runner(runner: ScriptedRunner, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["runner", "set", "1", "--poll-hold", "30"]) == 0
    assert capsys.readouterr().out == "runner 1: poll hold 30 s, priority 0\n"
    assert call(["runner", "set", "1", "--poll-hold", "default", "--priority", "3", "--output", "json"]) == 0
    changed = json.loads(capsys.readouterr().out)
    assert (changed["poll_hold_seconds"], changed["priority"]) == (None, 3)
    with pytest.raises(BadInputError, match="nothing to change"):
        call(["runner", "set", "1"])
    with pytest.raises(BadInputError, match="a number of seconds"):
        call(["runner", "set", "1", "--poll-hold", "-3"])
    with pytest.raises(RefusedError, match="from 0 to 3600"):
        call(["runner", "set", "1", "--poll-hold", "3601"])


def test_a_user_sees_the_runners_that_they_manage(
    cell: ServedCell, runner: ScriptedRunner, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    user = cell.api("POST", "/users", {"username": "ann", "name": "Ann", "email": "ann@example.com"}).json()["id"]
    token = cell.api("POST", f"/users/{user}/personal_access_tokens", {"name": "own", "scopes": ["api"]}).json()
    cell.api("POST", "/projects/1/members", {"user_id": user, "access_level": 40})
    body = {"runner_type": "project_type", "project_id": 1, "description": "hers"}
    assert cell.api("POST", "/user/runners", body).status == 201
    monkeypatch.setenv("REMUDA_TOKEN", token["token"])
    assert call(["runner", "list", "--output", "json"]) == 0
    assert [row["description"] for row in json.loads(capsys.readouterr().out)] == ["hers"]
