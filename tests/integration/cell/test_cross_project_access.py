"""git by level and scope, and what pipelines may reach in the name of whoever started them."""

from pathlib import Path

import pytest
from tests.support.cells.people import Person, a_group, a_member, a_person, a_project_in, an_organization
from tests.support.cells.served_cell import ScriptedRunner, ServedCell
from tests.support.git_client import Clone

from remuda.testing.waiting import wait_until

PIPELINE = "job: {script: [echo]}\n"


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    made = Clone(tmp_path / "clone")
    made.run("init", "--quiet", "-b", "main")
    return made


@pytest.fixture
def shop(cell: ServedCell) -> int:
    return a_project_in(cell, a_group(cell, "acme"), "shop", PIPELINE)


def a_developer(cell: ServedCell, level: int, name: str = "ada") -> Person:
    person = a_person(cell, name)
    a_member(cell, "projects/acme%2Fshop", person, level)
    return person


@pytest.mark.usefixtures("shop")
def test_git_by_level(cell: ServedCell, clone: Clone) -> None:
    people = {level: a_developer(cell, level, f"p{level}") for level in (10, 20, 30, 40)}
    stranger = a_person(cell, "stranger")
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
    newest = [cell.api("GET", f"{root}/{one['id']}").json() for one in pipelines[:2]]
    assert {one["ref"]: one["user"]["username"] for one in newest} == {"side": "p30", "main": "p40"}
    assert [one["ref"] for one in cell.api("GET", f"{root}?username=p30").json()] == ["side"]


@pytest.mark.usefixtures("shop")
def test_git_by_scope(cell: ServedCell, clone: Clone) -> None:
    ada = a_developer(cell, 30)
    clone.commit(file="x")
    assert "403" in clone.run("fetch", ada.with_scopes("read_api").address("acme/shop"), ok=False).stderr
    reader = ada.with_scopes("read_repository")
    clone.run("fetch", reader.address("acme/shop"), "main")
    assert "403" in clone.run("push", reader.address("acme/shop"), "HEAD:side", ok=False).stderr
    clone.run("push", ada.with_scopes("write_repository").address("acme/shop"), "HEAD:side")


def test_refs_are_put_as_by_a_push(cell: ServedCell, shop: int) -> None:
    people = {level: a_developer(cell, level, f"p{level}") for level in (20, 30, 40)}
    root = f"/api/remuda/v1/projects/{shop}/refs"
    sha = cell.api("GET", f"/projects/{shop}/repository/branches/main").json()["commit"]["id"]

    def put(person: Person, **refs: str) -> int:
        body = {"refs": {f"refs/heads/{name}": to for name, to in refs.items()}}
        return cell.send("PUT", root, body, PRIVATE_TOKEN=person.token).status

    assert put(a_person(cell, "stranger"), side=sha) == 404
    assert put(people[20], side=sha) == 403
    assert put(people[30].with_scopes("read_repository"), side=sha) == 403
    assert put(people[30], main=sha, side=sha) == 403
    assert put(people[30], side="0" * 39 + "1") == 400
    assert put(people[30].with_scopes("write_repository"), side=sha) == 204
    assert put(people[40], main=sha, other=sha) == 204
    pipelines = cell.until_pipelines(3, "acme/shop")
    found = [cell.api("GET", f"/projects/{shop}/pipelines/{one['id']}").json() for one in pipelines[:2]]
    assert {one["ref"]: one["user"]["username"] for one in found} == {"side": "p30", "other": "p40"}


def test_a_push_makes_a_project_only_where_one_may(cell: ServedCell, clone: Clone) -> None:
    a_group(cell, "acme")
    ada = a_person(cell, "ada")
    clone.commit(file="x")
    for path in ("acme/new", "nowhere/new", "root/new"):
        assert "There is no project" in clone.run("push", ada.address(path), "HEAD:main", ok=False).stderr, path
    clone.run("push", ada.address("ada/new"), "HEAD:main")
    assert ada.api("GET", "/projects/ada%2Fnew").json()["creator_id"] == ada.id


def test_a_pipeline_reaches_what_its_starter_may(cell: ServedCell, shop: int) -> None:
    """Includes, trigger jobs and calls with the job's token: for a stranger the other project is not there."""
    ada = a_person(cell, "ada")
    cell.let_in_all_jobs(shop)
    content = """
ask: {script: [echo]}
start:
  trigger: acme/shop
"""
    own = ada.api("POST", "/projects", {"name": "own"}).json()["id"]
    actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": content}]
    body = {"branch": "main", "commit_message": "x", "actions": actions}
    assert ada.api("POST", f"/projects/{own}/repository/commits", body).status == 201
    lint = {"content": "include: [{project: acme/shop, file: .gitlab-ci.yml}]"}
    assert not ada.api("POST", f"/projects/{own}/ci/lint", lint).json()["valid"]

    def bridge() -> dict[str, str]:
        [pipeline, *_] = cell.api("GET", f"/projects/{own}/pipelines").json()
        found: dict[str, str] = cell.api("GET", f"/projects/{own}/pipelines/{pipeline['id']}/bridges").json()[0]
        return found

    wait_until(lambda: bridge()["status"] == "failed", "the trigger job fails")
    made = cell.api("POST", "/user/runners", {"runner_type": "project_type", "project_id": own}).json()
    job = ScriptedRunner(cell, made["token"]).take()
    assert {one["key"]: one["value"] for one in job["variables"]}["GITLAB_USER_LOGIN"] == "ada"
    assert job["job_info"]["user_id"] == ada.id
    call = {"token": job["token"], "ref": "main"}
    assert cell.send("POST", f"/api/v4/projects/{shop}/trigger/pipeline", call).status == 404

    a_member(cell, f"projects/{shop}", ada, 30)
    assert cell.send("POST", f"/api/v4/projects/{shop}/trigger/pipeline", call).status == 400  # main is protected
    assert ada.api("POST", f"/projects/{own}/ci/lint", lint).json()["valid"]
    changed = cell.api("PUT", f"/projects/{shop}/members/{ada.id}", {"access_level": 40})
    assert changed.status == 200
    assert cell.send("POST", f"/api/v4/projects/{shop}/trigger/pipeline", call).status == 201
    assert ada.api("POST", f"/projects/{own}/pipeline", {"ref": "main"}).status == 201
    wait_until(lambda: bridge()["status"] == "success", "the trigger job starts it")


def test_nothing_reaches_another_organization(cell: ServedCell) -> None:
    far = an_organization(cell, "far")
    a_project_in(cell, a_group(cell, "elsewhere", organization_id=far, visibility="public"), "open", PIPELINE)
    ada = a_person(cell, "ada")
    own = ada.api("POST", "/projects", {"name": "own"}).json()["id"]
    actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": "start: {trigger: elsewhere/open}\n"}]
    body = {"branch": "main", "commit_message": "x", "actions": actions}
    assert cell.api("POST", f"/projects/{own}/repository/commits", body).status == 201
    # Not even in the name of an administrator, who may everywhere: the file may be somebody else's.
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
    made = ada.api("POST", root, body).json()
    assert made["owner"]["username"] == "ada"
    assert bob.api("PUT", f"{root}/{made['id']}", {"description": "mine"}).status == 403
    variable = {"key": "K", "value": "v"}
    assert bob.api("POST", f"{root}/{made['id']}/variables", variable).status == 403
    assert bob.api("POST", f"{root}/{made['id']}/take_ownership").status == 403
    # What runs there is ada's, and so are its secrets.
    assert ada.api("POST", f"{root}/{made['id']}/variables", variable).status == 201
    assert bob.api("GET", f"{root}/{made['id']}/variables/K").status == 403
    assert (bob.api("GET", f"{root}/{made['id']}").json()["variables"], bob.api("GET", root).status) == ([], 200)
    assert bob.api("POST", f"{root}/{made['id']}/play").status == 400  # a play is by whoever plays
    eve = a_developer(cell, 40, "eve")
    assert eve.api("GET", f"{root}/{made['id']}/variables/K").status == 200
    # What runs in ada's name is changed by ada, or by who has made it theirs.
    assert eve.api("PUT", f"{root}/{made['id']}", {"ref": "side"}).status == 403
    assert eve.api("PUT", f"{root}/{made['id']}/variables/K", {"value": "w"}).status == 403
    assert eve.api("POST", f"{root}/{made['id']}/variables", {"key": "L", "value": "w"}).status == 403
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
    assert cell.api("POST", f"{root}/{made['id']}/take_ownership").json()["owner"]["username"] == "root"
    assert cell.api("POST", f"{root}/{made['id']}/play").status == 201
    newest = cell.api("GET", "/projects/acme%2Fshop/pipelines?source=schedule").json()[0]["id"]
    assert cell.api("GET", f"/projects/acme%2Fshop/pipelines/{newest}").json()["user"]["username"] == "root"


def test_nobody_passes_for_a_trigger_job(cell: ServedCell, shop: int) -> None:
    """A child is admitted as a part of its parent; who only says that it is one is not."""
    root = f"/api/remuda/v1/projects/{shop}/pipelines"
    body = {"ref": "refs/heads/main", "source": "parent_pipeline", "text": "steal: {script: [env]}\n"}
    refused = cell.send("POST", root, body, PRIVATE_TOKEN=a_developer(cell, 30).token)
    assert (refused.status, "permission" in refused.json()["message"]) == (400, True)
