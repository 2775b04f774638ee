"""The audit log: who did what, when and from where; events are stored before the response, without secrets."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ADMIN_TOKEN, ServedCell

SECRET = "hunter2hunter2"


def events(cell: ServedCell, query: str = "") -> list[dict[str, Any]]:
    answer = cell.api("GET", f"/audit_events?per_page=100{query}")
    assert answer.status == 200, answer
    rows: list[dict[str, Any]] = answer.json()
    return rows


def last_event(cell: ServedCell, action: str) -> dict[str, Any]:
    matching = events(cell, f"&action={action}")
    assert matching, f"no event {action}"
    return matching[0]


def test_actions_are_in_the_log_with_everything_but_secrets(cell: ServedCell) -> None:
    project = cell.new_project("app", "build:\n  script: make\n")
    path = f"/projects/{project}/variables"
    created = cell.api("POST", path, {"key": "TOKEN", "value": SECRET, "masked": True}, X_Request_Id="request-7")
    assert created.status == 201
    event = last_event(cell, "variable_created")
    assert event["author_id"] == 1
    assert (event["entity_type"], event["entity_id"]) == ("Project", project)
    details = event["details"]
    assert details["author_name"] == "root"
    assert details["target_details"] == "TOKEN"
    assert details["entity_path"] == "root/app"
    assert details["ip_address"] == "127.0.0.1"
    assert details["masked"] is True
    assert details["request_id"] == "request-7"
    assert details["sent"] == ["key", "masked", "value"]
    assert cell.api("GET", f"/audit_events/{event['id']}").json() == event

    assert cell.api("PUT", f"{path}/TOKEN", {"value": f"{SECRET}-2"}).status == 200
    assert last_event(cell, "variable_changed")["details"]["sent"] == ["value"]
    assert cell.api("DELETE", f"{path}/TOKEN").status == 204
    assert last_event(cell, "variable_deleted")["details"]["target_details"] == "TOKEN"

    user = cell.api("POST", "/users", {"username": "ada", "name": "Ada", "email": "ada@example.com"}).json()["id"]
    assert last_event(cell, "user_created")["entity_id"] == user
    member = {"user_id": user, "access_level": 30}
    assert cell.api("POST", f"/projects/{project}/members", member).status == 201
    assert last_event(cell, "member_added")["details"]["access_level"] == 30
    assert cell.api("PUT", f"/projects/{project}/members/{user}", {"access_level": 40}).status == 200
    changed = last_event(cell, "member_changed")
    assert changed["details"]["access_level"] == 40
    assert changed["details"]["target_details"] == str(user)

    token = cell.api("POST", f"/users/{user}/personal_access_tokens", {"name": "laptop", "scopes": ["api"]}).json()
    event = last_event(cell, "personal_access_token_created")
    assert (event["entity_type"], event["entity_id"]) == ("User", user)
    assert event["details"]["name"] == "laptop"
    assert cell.api("DELETE", f"/personal_access_tokens/{token['id']}").status == 204
    assert last_event(cell, "personal_access_token_revoked")["details"]["target_details"] == str(token["id"])

    assert cell.api("PUT", f"/projects/{project}", {"visibility": "public"}).status == 200
    assert last_event(cell, "project_changed")["details"]["visibility"] == "public"
    assert cell.api("DELETE", f"/projects/{project}").status in (202, 204)
    event = last_event(cell, "project_deleted")
    assert event["details"]["entity_path"] == "root/app"
    everything = str(events(cell))
    assert SECRET not in everything
    assert token["token"] not in everything
    assert ADMIN_TOKEN not in everything


def test_runners(cell: ServedCell) -> None:
    runner = cell.new_runner(description="big one")
    created = last_event(cell, "runner_created")
    runner_id = created["entity_id"]
    assert (created["entity_type"], created["author_id"]) == ("Runner", 1)
    assert cell.api("PUT", f"/runners/{runner_id}", {"paused": True}).status == 200
    assert last_event(cell, "runner_changed")["details"]["paused"] is True
    reset = cell.api("POST", f"/runners/{runner_id}/reset_authentication_token")
    assert reset.status == 201
    assert last_event(cell, "runner_token_reset")["details"]["entity_path"] == "big one"
    assert runner.ask().status == 403
    deleted = cell.send("DELETE", "/api/v4/runners", {"token": reset.json()["token"]})
    assert deleted.status == 204
    event = last_event(cell, "runner_unregistered")
    assert (event["entity_id"], event["author_id"]) == (runner_id, 0)
    assert event["details"]["author_name"] == f"runner {runner_id}"
    assert reset.json()["token"] not in str(events(cell))


def test_refused_requests_are_logged_up_to_a_limit(cell: ServedCell) -> None:
    for number in range(40):
        answer = cell.api("GET", "/audit_events", PRIVATE_TOKEN=f"glpat-wrong-{number}")
        assert answer.status == 401
    denied = events(cell, "&action=access_denied")
    assert len(denied) == 10
    assert denied[0]["details"]["status"] == 401
    assert denied[0]["details"]["target_details"] == "GET /api/v4/audit_events"
    assert "glpat-wrong" not in str(denied)


def test_who_may_read_the_log(cell: ServedCell) -> None:
    project = cell.new_project("app")
    user = cell.api("POST", "/users", {"username": "ada", "name": "Ada", "email": "ada@example.com"}).json()["id"]
    body = {"name": "laptop", "scopes": ["api"]}
    token = cell.api("POST", f"/users/{user}/personal_access_tokens", body).json()["token"]
    assert cell.api("GET", "/audit_events", PRIVATE_TOKEN=token).status == 403
    assert last_event(cell, "access_denied")["details"]["author_name"] == "ada"
    assert cell.api("GET", f"/projects/{project}/audit_events", PRIVATE_TOKEN=token).status == 404
    member = {"user_id": user, "access_level": 40}
    assert cell.api("POST", f"/projects/{project}/members", member).status == 201
    response = cell.api("GET", f"/projects/{project}/audit_events", PRIVATE_TOKEN=token)
    assert [event["event_name"] for event in response.json()] == ["member_added", "project_created"]
    group = cell.api("POST", "/groups", {"name": "team", "path": "team"}).json()["id"]
    names = [event["event_name"] for event in cell.api("GET", f"/groups/{group}/audit_events").json()]
    assert names == ["group_created"]


def test_filters_and_pages(cell: ServedCell) -> None:
    for number in range(5):
        cell.new_project(f"app{number}")
    first = cell.send("GET", "/api/remuda/v1/audit_events?per_page=2&action=project_created", PRIVATE_TOKEN=ADMIN_TOKEN)
    assert [event["details"]["target_details"] for event in first.json()] == ["app4", "app3"]
    assert first.headers["X-Total"] == "5"
    assert len(events(cell, "&created_after=2000-01-01T00:00:00Z&entity_type=Project")) == 5
    assert events(cell, "&created_before=2000-01-01T00:00:00Z") == []
    assert events(cell, "&author_id=99") == []
    for wrong in ("entity_type=Planet", "entity_id=x", "created_after=yesterday", "author_id=" + "9" * 50):
        assert cell.api("GET", f"/audit_events?{wrong}").status == 400
    assert cell.api("GET", "/audit_events/999999").status == 404


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_log_survives_a_restart(tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    database = request.getfixturevalue("database") if kind == "postgres" else ""
    with ServedCell(tmp_path / "cell", database=database) as cell:
        cell.new_project("app")
    with ServedCell(tmp_path / "cell", database=database) as cell:
        assert last_event(cell, "project_created")["details"]["entity_path"] == "root/app"
        assert last_event(cell, "personal_access_token_created")["details"]["author_name"] == "start of the cell"


def test_the_audit_command(cell: ServedCell) -> None:
    cell.new_project("app")

    def remuda(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "remuda", "cell", "audit", "--data", str(cell.settings.data), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    printed = remuda("--action", "project_created", "--since", "1 day")
    assert "  root from 127.0.0.1: project_created app (Project root/app)\n" in printed.stdout, printed
    rows = json.loads(remuda("--output", "json", "--limit", "2").stdout)
    assert [event["action"] for event in rows] == ["project_created", "personal_access_token_created"]
    assert remuda("--since", "never").returncode == 2
    assert remuda("--limit", "0").returncode == 2
    config = cell.settings.data.parent / "other.toml"
    config.write_text(f'data = "{cell.settings.data}"')
    command = [sys.executable, "-m", "remuda", "cell"]
    for arguments in (["audit"], ["encryption", "list"]):
        done = subprocess.run(
            [*command, *arguments, "--config", str(config)], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout != "") == (0, True), done
