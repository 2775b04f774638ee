"""Webhooks: their API, and the requests that a receiver gets for pushes, tags, pipelines and jobs."""

import gzip
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gitlab
import msgspec
import pytest
from tests.support.cells.people import add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import ServedCell, commit_file
from tests.support.servers.hook_receiver import Receiver

from remuda.cell.values.hooks import HookDelivery
from remuda.testing.waiting import wait_until

PIPELINE = "job: {script: [echo]}\n"


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[ServedCell]:
    with ServedCell(tmp_path / "cell", hook_local_addresses=True) as served:
        yield served


@pytest.fixture
def shop(cell: ServedCell) -> str:
    return f"/projects/{create_group_project(cell, create_group(cell, 'acme'), 'shop')}"


def create(cell: ServedCell, place: str, url: str, **fields: Any) -> dict[str, Any]:
    created = cell.api("POST", f"{place}/hooks", {"url": url, **fields})
    assert created.status == 201, created
    hook: dict[str, Any] = created.json()
    return hook


def push(cell: ServedCell, project: str, branch: str = "main", **more: str) -> None:
    content = more.pop("content", PIPELINE)
    commit_file(cell, int(project.rpartition("/")[2]), content, branch=branch, commit_message="First", **more)


def test_pushes_pipelines_and_jobs_are_delivered(cell: ServedCell, shop: str, receiver: Receiver) -> None:
    create(cell, shop, receiver.url, token="s3cret", pipeline_events=True, job_events=True, tag_push_events=True)
    push(cell, shop)
    runner = cell.new_runner()
    job = runner.take()
    assert runner.put(job, "success").status == 200
    wait_until(lambda: "success" in [e["object_attributes"]["status"] for e in receiver.events("pipeline")])
    wait_until(lambda: "success" in [event["build_status"] for event in receiver.events("build")])
    [event] = receiver.events("push")
    assert (event["ref"], event["before"]) == ("refs/heads/main", "0" * 40)
    assert event["project"]["path_with_namespace"] == "acme/shop"
    assert [commit["title"] for commit in event["commits"]] == ["First"]
    assert event["user_username"] == "root"
    headers = next(headers for _, headers, body in receiver.requests if json.loads(body)["object_kind"] == "pipeline")
    assert headers["X-Gitlab-Event"] == "Pipeline Hook"
    assert headers["X-Gitlab-Token"] == "s3cret"
    assert headers["X-Gitlab-Event-UUID"] == headers["Idempotency-Key"]
    pipeline = receiver.events("pipeline")[-1]
    assert [build["name"] for build in pipeline["builds"]] == ["job"]
    assert cell.api("POST", f"{shop}/repository/tags", {"tag_name": "v1", "ref": "main"}).status == 201
    wait_until(lambda: [event["ref"] for event in receiver.events("tag_push")] == ["refs/tags/v1"])
    ids = [headers["X-Gitlab-Event-UUID"] for _, headers, _ in receiver.requests]
    assert len(ids) == len(set(ids)), "no event was sent twice"


def test_filters_and_groups(cell: ServedCell, receiver: Receiver) -> None:
    group = create_group(cell, "acme")
    shop = f"/projects/{create_group_project(cell, group, 'shop')}"
    other = f"/projects/{create_group_project(cell, create_group(cell, 'beta'), 'other')}"
    create(cell, f"/groups/{group}", receiver.url, push_events_branch_filter="release/*")
    push(cell, other, content="x: 1\n", path="a.yml")
    push(cell, shop, content="x: 1\n", path="a.yml")
    assert cell.api("POST", f"{shop}/repository/branches", {"branch": "release/1", "ref": "main"}).status == 201
    wait_until(lambda: bool(receiver.requests))
    assert [event["ref"] for event in receiver.events("push")] == ["refs/heads/release/1"]
    assert cell.api("DELETE", f"{shop}/repository/branches/release%2F1").status == 204
    wait_until(lambda: len(receiver.requests) == 2)
    assert receiver.events("push")[-1]["after"] == "0" * 40


def test_a_template_headers_and_url_variables(cell: ServedCell, shop: str, receiver: Receiver) -> None:
    hook = create(
        cell,
        shop,
        f"{receiver.url}/{{key}}",
        url_variables=[{"key": "key", "value": "abc"}],
        custom_headers=[{"key": "X-Own", "value": "1"}],
        custom_webhook_template='{"object_kind": "mine", "ref": "{{ref}}"}',
    )
    assert (hook["url_variables"], hook["custom_headers"]) == ([{"key": "key"}], [{"key": "X-Own"}])
    push(cell, shop)
    wait_until(lambda: bool(receiver.requests))
    path, headers, body = receiver.requests[0]
    assert (path, headers["X-Own"]) == ("/hook/abc", "1")
    assert json.loads(body) == {"object_kind": "mine", "ref": "refs/heads/main"}
    assert cell.api("PUT", f"{shop}/hooks/{hook['id']}/custom_headers/X-New", {"value": "2"}).status == 204
    assert cell.api("DELETE", f"{shop}/hooks/{hook['id']}/custom_headers/X-Own").status == 204
    assert cell.api("DELETE", f"{shop}/hooks/{hook['id']}/custom_headers/X-Own").status == 404
    assert cell.api("GET", f"{shop}/hooks/{hook['id']}").json()["custom_headers"] == [{"key": "X-New"}]


def test_another_address_does_not_get_the_secrets_of_the_old_one(
    cell: ServedCell, shop: str, receiver: Receiver
) -> None:
    push(cell, shop)
    secrets = {"token": "s3cret", "custom_headers": [{"key": "X-Own", "value": "own"}]}
    path = f"{shop}/hooks/{create(cell, shop, 'https://ci.example/{key}', **secrets)['id']}"
    assert cell.api("PUT", f"{path}/url_variables/key", {"value": "v4lue"}).status == 204
    changed = cell.api("PUT", path, {"url": f"{receiver.url}/{{key}}"}).json()
    assert (changed["custom_headers"], changed["url_variables"]) == ([], [])
    assert cell.api("POST", f"{path}/test/push_events").status == 201
    address, headers, _ = receiver.requests[-1]
    assert "v4lue" not in address
    assert not {"X-Gitlab-Token", "X-Own"} & set(headers)
    assert cell.api("PUT", path, {"url": receiver.url, "token": "new"}).status == 200
    assert cell.api("PUT", path, {"url": receiver.url, "name": "same address"}).status == 200
    assert cell.api("POST", f"{path}/test/push_events").status == 201
    assert receiver.requests[-1][1]["X-Gitlab-Token"] == "new"


def test_the_error_of_a_test_does_not_show_url_variables(cell: ServedCell, shop: str) -> None:
    push(cell, shop)
    variables = [{"key": "host", "value": "s3cret.invalid"}]
    path = f"{shop}/hooks/{create(cell, shop, 'http://{host}/hook', url_variables=variables)['id']}"
    failed = cell.api("POST", f"{path}/test/push_events")
    assert failed.status == 422
    assert b"s3cret" not in failed.body
    assert b"s3cret" not in cell.api("GET", f"{path}/events").body


def test_a_variable_for_the_server_drops_the_token(cell: ServedCell, shop: str, receiver: Receiver) -> None:
    push(cell, shop)
    old = [{"key": "host", "value": "ci.example"}]
    path = f"{shop}/hooks/{create(cell, shop, 'http://{host}/hook', token='s3cret', url_variables=old)['id']}"
    host = receiver.url.split("/")[2]
    assert cell.api("PUT", f"{path}/url_variables/host", {"value": host}).status == 204
    assert cell.api("POST", f"{path}/test/push_events").status == 201
    assert "X-Gitlab-Token" not in receiver.requests[-1][1]


def test_the_api(cell: ServedCell, shop: str, receiver: Receiver) -> None:
    answer = cell.api("POST", f"{shop}/hooks", {"url": receiver.url, "token": "t", "issues_events": True})
    assert answer.headers["X-Remuda-Ignored"] == "issues_events"
    hook = answer.json()
    assert (hook["push_events"], hook["pipeline_events"], hook["issues_events"]) == (True, False, False)
    assert "token" not in hook
    path = f"{shop}/hooks/{hook['id']}"
    changed = cell.api("PUT", path, {"push_events": False, "pipeline_events": True, "name": "CI"}).json()
    assert (changed["push_events"], changed["pipeline_events"], changed["name"]) == (False, True, "CI")
    assert [row["id"] for row in cell.api("GET", f"{shop}/hooks").json()] == [hook["id"]]
    assert cell.api("DELETE", path).status == 204
    assert cell.api("GET", path).status == 404
    for fields in (
        {},
        {"url": "ftp://x.org"},
        {"url": "https://user:pw@x.org/"},
        {"url": receiver.url, "token": "a\nb"},
        {"url": receiver.url, "custom_headers": [{"key": "a b", "value": ""}]},
        {"url": receiver.url, "branch_filter_strategy": "regex"},
    ):
        assert cell.api("POST", f"{shop}/hooks", fields).status == 400, fields
    ada = create_person(cell, "ada")
    add_member(cell, shop.lstrip("/"), ada, 30)
    assert ada.api("GET", f"{shop}/hooks").status == 403


def test_tests_events_and_resending(cell: ServedCell, shop: str, receiver: Receiver) -> None:
    hook = create(cell, shop, receiver.url, token="s3cret")
    path = f"{shop}/hooks/{hook['id']}"
    assert cell.api("POST", f"{path}/test/push_events").status == 422, "nothing to test with"
    push(cell, shop)
    wait_until(lambda: len(receiver.requests) == 1)
    for trigger in ("push_events", "tag_push_events", "pipeline_events", "job_events"):
        assert cell.api("POST", f"{path}/test/{trigger}").status == 201
    assert cell.api("POST", f"{path}/test/issues_events").status == 400
    receiver.status = 500
    assert cell.api("POST", f"{path}/test/push_events").status == 422
    failed, *others = cell.api("GET", f"{path}/events").json()
    assert (failed["response_status"], failed["response_body"], failed["next_try_at"]) == ("500", "thanks", None)
    assert failed["request_headers"]["X-Gitlab-Token"] == "[REDACTED]"
    assert [event["response_status"] for event in others] == ["200"] * 5
    receiver.status = 200
    assert cell.api("POST", f"{path}/events/{failed['id']}/resend").json() == {"response_status": "200"}


def test_a_compressed_answer_is_not_decompressed(cell: ServedCell, shop: str, receiver: Receiver) -> None:
    path = f"{shop}/hooks/{create(cell, shop, receiver.url)['id']}"
    receiver.headers = {"Content-Encoding": "gzip"}
    receiver.answer = gzip.compress(b"thanks")
    push(cell, shop)
    wait_until(lambda: bool(receiver.requests))
    assert receiver.requests[0][1]["Accept-Encoding"] == "identity"
    [event] = wait_until(lambda: [row for row in cell.api("GET", f"{path}/events").json() if row["response_status"]])
    assert event["response_body"] == receiver.answer.decode(errors="replace")


def test_a_failed_delivery_is_sent_again_after_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    receiver.status = 500
    with ServedCell(tmp_path / "other", hook_local_addresses=True) as cell:
        shop = f"/projects/{create_group_project(cell, create_group(cell, 'acme'), 'shop')}"
        hook = create(cell, shop, receiver.url)
        push(cell, shop)
        wait_until(lambda: len(receiver.requests) == 1)
        path = f"{shop}/hooks/{hook['id']}/events"
        wait_until(lambda: cell.api("GET", path).json()[0]["tries"] == 1)
        assert cell.api("GET", path).json()[0]["next_try_at"] is not None
    receiver.status = 200
    with ServedCell(tmp_path / "other", hook_local_addresses=True) as cell:
        wait_until(lambda: len(receiver.requests) == 2, seconds=40)
        wait_until(lambda: cell.api("GET", path).json()[0]["response_status"] == "200")
    first, second = [headers["X-Gitlab-Event-UUID"] for _, headers, _ in receiver.requests]
    assert first == second, "the receiver recognizes the repetition"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "0x7f000001", "2130706433"])
def test_local_addresses_are_refused(tmp_path: Path, receiver: Receiver, host: str) -> None:
    with ServedCell(tmp_path / "other") as cell:
        shop = f"/projects/{create_group_project(cell, create_group(cell, 'acme'), 'shop', PIPELINE)}"
        hook = create(cell, shop, f"http://{host}:{receiver.server_port}/")
        assert cell.api("POST", f"{shop}/hooks/{hook['id']}/test/push_events").status == 422
        [event] = cell.api("GET", f"{shop}/hooks/{hook['id']}/events").json()
        assert "local network" in event["error"]
    assert receiver.requests == []


def test_python_gitlab(cell: ServedCell, shop: str, receiver: Receiver) -> None:
    project = gitlab.Gitlab(cell.url, private_token=cell.token).projects.get(int(shop.rpartition("/")[2]))
    hook = project.hooks.create({"url": receiver.url, "push_events": 1, "enable_ssl_verification": False})
    hook.pipeline_events = True
    hook.save()
    assert [row.pipeline_events for row in project.hooks.list()] == [True]
    hook.delete()


def test_deliveries_of_a_removed_hook_are_removed(tmp_path: Path, receiver: Receiver) -> None:
    with ServedCell(tmp_path / "old", hook_local_addresses=True) as cell:
        cell.new_project("app")
    with sqlite3.connect(tmp_path / "old" / "cell.sqlite") as rows:
        now = time.time()
        delivery = HookDelivery(id=1, hook_id=7, uuid="u", event="push_events", body=b"{}", created_at=now, due_at=now)
        values = (1, 7, "u", now, now, msgspec.json.encode(delivery))
        rows.execute("INSERT INTO hook_deliveries VALUES (?, ?, ?, ?, ?, ?)", values)
    rows.close()

    def count() -> int:
        with closing(sqlite3.connect(tmp_path / "old" / "cell.sqlite")) as rows:
            [(number,)] = rows.execute("SELECT count(*) FROM hook_deliveries")
        return int(number)

    assert count() == 1
    with ServedCell(tmp_path / "old", hook_local_addresses=True):
        wait_until(lambda: count() == 0, "the delivery without a hook is removed")
