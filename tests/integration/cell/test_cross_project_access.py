"""Access by git by level and scope, and what pipelines can access with the rights of the user who started them."""

from pathlib import Path

import pytest
from tests.support.cells.people import (
    Person,
    add_member,
    create_group,
    create_group_project,
    create_organization,
    create_person,
)
from tests.support.cells.served_cell import ScriptedRunner, ServedCell, commit_file
from tests.support.git_client import Clone

from remuda.testing.waiting import wait_until

PIPELINE = "job: {script: [echo]}\n"


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    working_copy = Clone(tmp_path / "clone")
    working_copy.run("init", "--quiet", "-b", "main")
    return working_copy


@pytest.fixture
def shop(cell: ServedCell) -> int:
    return create_group_project(cell, create_group(cell, "acme"), "shop", PIPELINE)


def a_developer(cell: ServedCell, level: int, name: str = "ada") -> Person:
    person = create_person(cell, name)
    add_member(cell, "projects/acme%2Fshop", person, level)
    return person


@pytest.mark.usefixtures("shop")
def test_git_by_level(cell: ServedCell, clone: Clone) -> None:
    people = {level: a_developer(cell, level, f"p{level}") for level in (10, 20, 30, 40)}
    stranger = create_person(cell, "stranger")
    assert "There is no project" in clone.run("fetch", stranger.address("acme/shop"), ok=False).stderr
    assert "403" in clone.run("fetch", people[10].address("acme/shop"), ok=False).stderr
    clone.run("fetch", people[20].address("acme/shop"), "main")
    clone.run("reset", "--hard", "FETCH_HEAD")
    clone.commit(file="x")
    assert "403" in clone.run("push", people[20].address("acme/shop"), "HEAD:side", ok=False).stderr
    clone.run("push", people[30].address("acme/shop"), "HEAD:side")
    refused = clone.run("push", people[30].address("acme/shop"), "HEAD:main", ok=False)
    assert "protected" in refused.stderr
    clone.run("push", people[40].address("acme/shop"), "HEAD:main")
    pipelines = cell.until_pipelines(3, "acme/shop")
    root = "/projects/acme%2Fshop/pipelines"
    newest = [cell.api("GET", f"{root}/{pipeline['id']}").json() for pipeline in pipelines[:2]]
    assert {pipeline["ref"]: pipeline["user"]["username"] for pipeline in newest} == {"side": "p30", "main": "p40"}
    assert [pipeline["ref"] for pipeline in cell.api("GET", f"{root}?username=p30").json()] == ["side"]


@pytest.mark.usefixtures("shop")
def test_git_by_scope(cell: ServedCell, clone: Clone) -> None:
    ada = a_developer(cell, 30)
    clone.commit(file="x")
    assert "403" in clone.run("fetch", ada.with_scopes("read_api").address("acme/shop"), ok=False).stderr
    reader = ada.with_scopes("read_repository")
    clone.run("fetch", reader.address("acme/shop"), "main")
    assert "403" in clone.run("push", reader.address("acme/shop"), "HEAD:side", ok=False).stderr
    clone.run("push", ada.with_scopes("write_repository").address("acme/shop"), "HEAD:side")


def test_the_refs_endpoint_follows_the_rules_of_a_push(cell: ServedCell, shop: int) -> None:
    people = {level: a_developer(cell, level, f"p{level}") for level in (20, 30, 40)}
    root = f"/api/remuda/v1/projects/{shop}/refs"
    sha = cell.api("GET", f"/projects/{shop}/repository/branches/main").json()["commit"]["id"]

    def put(person: Person, **refs: str) -> int:
        body = {"refs": {f"refs/heads/{name}": target for name, target in refs.items()}}
        return cell.send("PUT", root, body, PRIVATE_TOKEN=person.token).status

    assert put(create_person(cell, "stranger"), side=sha) == 404
    assert put(people[20], side=sha) == 403
    assert put(people[30].with_scopes("read_repository"), side=sha) == 403
    assert put(people[30], main=sha, side=sha) == 403
    assert put(people[30], side="0" * 39 + "1") == 400
    assert put(people[30].with_scopes("write_repository"), side=sha) == 204
    assert put(people[40], main=sha, other=sha) == 204
    pipelines = cell.until_pipelines(3, "acme/shop")
    details = [cell.api("GET", f"/projects/{shop}/pipelines/{pipeline['id']}").json() for pipeline in pipelines[:2]]
    assert {pipeline["ref"]: pipeline["user"]["username"] for pipeline in details} == {"side": "p30", "other": "p40"}


def test_a_push_creates_a_project_only_with_sufficient_rights(cell: ServedCell, clone: Clone) -> None:
    create_group(cell, "acme")
    ada = create_person(cell, "ada")
    clone.commit(file="x")
    for path in ("acme/new", "nowhere/new", "root/new"):
        assert "There is no project" in clone.run("push", ada.address(path), "HEAD:main", ok=False).stderr, path
    clone.run("push", ada.address("ada/new"), "HEAD:main")
    assert ada.api("GET", "/projects/ada%2Fnew").json()["creator_id"] == ada.id


def test_a_pipeline_has_the_rights_of_its_user(cell: ServedCell, shop: int) -> None:
    """Includes, trigger jobs and calls with the job token: without access the other project is reported as missing."""
    ada = create_person(cell, "ada")
    cell.disable_job_token_allowlist(shop)
    content = """
ask: {script: [echo]}
start:
  trigger: acme/shop
"""
    own = ada.api("POST", "/projects", {"name": "own"}).json()["id"]
    commit_file(ada, own, content)
    lint = {"content": "include: [{project: acme/shop, file: .gitlab-ci.yml}]"}
    assert not ada.api("POST", f"/projects/{own}/ci/lint", lint).json()["valid"]

    def bridge() -> dict[str, str]:
        [pipeline, *_] = cell.api("GET", f"/projects/{own}/pipelines").json()
        row: dict[str, str] = cell.api("GET", f"/projects/{own}/pipelines/{pipeline['id']}/bridges").json()[0]
        return row

    wait_until(lambda: bridge()["status"] == "failed", "the trigger job fails")
    created = cell.api("POST", "/user/runners", {"runner_type": "project_type", "project_id": own}).json()
    job = ScriptedRunner(cell, created["token"]).take()
    assert {variable["key"]: variable["value"] for variable in job["variables"]}["GITLAB_USER_LOGIN"] == "ada"
    assert job["job_info"]["user_id"] == ada.id
    call = {"token": job["token"], "ref": "main"}
    assert cell.send("POST", f"/api/v4/projects/{shop}/trigger/pipeline", call).status == 404

    add_member(cell, f"projects/{shop}", ada, 30)
    assert cell.send("POST", f"/api/v4/projects/{shop}/trigger/pipeline", call).status == 400  # main is protected
    assert ada.api("POST", f"/projects/{own}/ci/lint", lint).json()["valid"]
    changed = cell.api("PUT", f"/projects/{shop}/members/{ada.id}", {"access_level": 40})
    assert changed.status == 200
    assert cell.send("POST", f"/api/v4/projects/{shop}/trigger/pipeline", call).status == 201
    assert ada.api("POST", f"/projects/{own}/pipeline", {"ref": "main"}).status == 201
    wait_until(lambda: bridge()["status"] == "success", "the trigger job starts it")


def test_nothing_reaches_another_organization(cell: ServedCell) -> None:
    far = create_organization(cell, "far")
    create_group_project(
        cell, create_group(cell, "elsewhere", organization_id=far, visibility="public"), "open", PIPELINE
    )
    ada = create_person(cell, "ada")
    own = ada.api("POST", "/projects", {"name": "own"}).json()["id"]
    commit_file(cell, own, "start: {trigger: elsewhere/open}\n")
    # Not even with the rights of an administrator: somebody else may have written the file.
    lint = {"content": "include: [{project: elsewhere/open, file: .gitlab-ci.yml}]"}
    for answer in (person.api("POST", f"/projects/{own}/ci/lint", lint) for person in (ada, cell)):
        assert answer.json()["valid"] is False, answer
    [pipeline] = cell.until_pipelines(1, "ada/own")
    root = f"/projects/{own}/pipelines/{pipeline['id']}"
    wait_until(lambda: cell.api("GET", root).json()["status"] in ("failed", "success"), "the trigger job ends")
    [bridge] = cell.api("GET", f"{root}/bridges").json()
    assert (bridge["status"], bridge["failure_reason"]) == ("failed", "downstream_bridge_project_not_found")


@pytest.mark.usefixtures("shop")
def test_schedules_and_triggers_run_in_their_owners_name(cell: ServedCell) -> None:
    ada, bob = a_developer(cell, 40), a_developer(cell, 30, "bob")
    root = "/projects/acme%2Fshop/pipeline_schedules"
    body = {"description": "nightly", "ref": "main", "cron": "0 4 * * *"}
    assert bob.api("POST", root, body).status == 403  # main is protected
    schedule = ada.api("POST", root, body).json()
    assert schedule["owner"]["username"] == "ada"
    assert bob.api("PUT", f"{root}/{schedule['id']}", {"description": "mine"}).status == 403
    variable = {"key": "K", "value": "v"}
    assert bob.api("POST", f"{root}/{schedule['id']}/variables", variable).status == 403
    assert bob.api("POST", f"{root}/{schedule['id']}/take_ownership").status == 403
    # The pipelines run in ada's name, and the variables are hers.
    assert ada.api("POST", f"{root}/{schedule['id']}/variables", variable).status == 201
    assert bob.api("GET", f"{root}/{schedule['id']}/variables/K").status == 403
    assert (bob.api("GET", f"{root}/{schedule['id']}").json()["variables"], bob.api("GET", root).status) == ([], 200)
    assert bob.api("POST", f"{root}/{schedule['id']}/play").status == 400  # play runs with the rights of the caller
    eve = a_developer(cell, 40, "eve")
    assert eve.api("GET", f"{root}/{schedule['id']}/variables/K").status == 200
    # Only ada can change what runs in her name, or somebody who has taken the ownership.
    assert eve.api("PUT", f"{root}/{schedule['id']}", {"ref": "side"}).status == 403
    assert eve.api("PUT", f"{root}/{schedule['id']}/variables/K", {"value": "w"}).status == 403
    assert eve.api("POST", f"{root}/{schedule['id']}/variables", {"key": "L", "value": "w"}).status == 403
    other = ada.api("POST", root, body).json()["id"]
    assert eve.api("POST", f"{root}/{other}/take_ownership").status == 201
    assert eve.api("PUT", f"{root}/{other}", {"description": "hers"}).status == 200
    assert ada.api("DELETE", f"{root}/{other}").status == 204
    token = ada.api("POST", "/projects/acme%2Fshop/triggers", {"description": "x"}).json()
    assert token["owner"]["username"] == "ada"
    call = {"token": token["token"], "ref": "main"}
    started = cell.send("POST", "/api/v4/projects/acme%2Fshop/trigger/pipeline", call)
    assert (started.status, started.json()["user"]["username"]) == (201, "ada")
    assert cell.api("DELETE", f"/projects/acme%2Fshop/members/{ada.id}").status == 204
    assert cell.send("POST", "/api/v4/projects/acme%2Fshop/trigger/pipeline", call).status == 404
    assert cell.api("POST", f"{root}/{schedule['id']}/take_ownership").json()["owner"]["username"] == "root"
    assert cell.api("POST", f"{root}/{schedule['id']}/play").status == 201
    newest = cell.api("GET", "/projects/acme%2Fshop/pipelines?source=schedule").json()[0]["id"]
    assert cell.api("GET", f"/projects/acme%2Fshop/pipelines/{newest}").json()["user"]["username"] == "root"


def test_a_user_cannot_pretend_to_be_a_trigger_job(cell: ServedCell, shop: int) -> None:
    """A child is accepted as part of its parent; a request that only names the source of a child is not."""
    root = f"/api/remuda/v1/projects/{shop}/pipelines"
    body = {"ref": "refs/heads/main", "source": "parent_pipeline", "text": "steal: {script: [env]}\n"}
    refused = cell.send("POST", root, body, PRIVATE_TOKEN=a_developer(cell, 30).token)
    assert (refused.status, "permission" in refused.json()["message"]) == (400, True)
