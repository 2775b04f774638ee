"""Jobs reach other projects only where these let them in, whatever the person may who started the pipeline."""

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.people import a_group, a_member, a_person, a_project_in, an_organization
from tests.support.cells.served_cell import Answer, ServedCell
from tests.support.git_client import Clone

from remuda.testing.waiting import wait_until

JOB = "job: {script: [echo]}\n"
MADE = "make: {script: [make], artifacts: {paths: [out]}}\n"
NEEDS = "use: {script: [use], needs: [{project: acme/lib, job: make, ref: main, artifacts: true}]}\n"
TRIGGER = "start: {trigger: acme/lib}\n"
LIB = "/projects/acme%2Flib"
SCOPE = f"{LIB}/job_token_scope"


class World:
    """A private project, and another one whose jobs want something of it; an administrator starts them."""

    def __init__(self, cell: ServedCell, folder: Path) -> None:
        self.cell = cell
        self.group = a_group(cell, "acme")
        self.lib = a_project_in(cell, self.group, "lib", MADE)
        self.runner = cell.new_runner()
        self.shops = a_group(cell, "shops")
        inner = a_group(cell, "inner", parent_id=self.shops)
        self.shop = a_project_in(cell, inner, "shop")
        self.clone = Clone(folder)

    def commit(self, text: str) -> None:
        action = {"action": "create", "file_path": ".gitlab-ci.yml", "content": text}
        body = {"branch": "main", "commit_message": "x", "actions": [action]}
        assert self.cell.api("POST", f"/projects/{self.shop}/repository/commits", body).status == 201

    def again(self) -> int:
        """The same pipeline once more."""
        made = self.cell.api("POST", f"/projects/{self.shop}/pipeline", {"ref": "main"})
        assert made.status == 201, made
        return int(made.json()["id"])

    def newest(self, kind: str) -> dict[str, Any]:
        [pipeline, *_] = self.cell.api("GET", f"/projects/{self.shop}/pipelines").json()
        [found] = self.cell.api("GET", f"/projects/{self.shop}/pipelines/{pipeline['id']}/{kind}").json()
        return dict(found)

    def allow(self) -> Answer:
        return self.cell.api("POST", f"{SCOPE}/allowlist", {"target_project_id": self.shop})

    def forbid(self) -> Answer:
        return self.cell.api("DELETE", f"{SCOPE}/allowlist/{self.shop}")

    def make(self) -> None:
        """Let a job of the other project leave artifacts."""
        job = self.runner.take()
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("out", "made")
        assert self.runner.upload(job, archive.getvalue()).status == 201
        assert self.runner.put(job, "success").status == 200

    def why(self, kind: str) -> str:
        """What a person is told of the newest job."""
        job = self.newest(kind)
        answer = self.cell.send("GET", f"/api/remuda/v1/jobs/{job['id']}/why", PRIVATE_TOKEN=self.cell.token)
        return answer.body.decode()


@pytest.fixture
def world(cell: ServedCell, tmp_path: Path) -> World:
    return World(cell, tmp_path / "clone")


def says_what_to_do(text: str, world: World) -> bool:
    return all(
        part in text for part in ("acme/lib", "shops/inner/shop", "allow list", f"target_project_id={world.shop}")
    )


def test_git(world: World, cell: ServedCell) -> None:
    world.make()
    world.commit(JOB)
    token = world.runner.take()["token"]
    address = f"{cell.url.replace('://', f'://gitlab-ci-token:{token}@')}/acme/lib.git"

    def fetch(*, ok: bool) -> str:
        return world.clone.run("ls-remote", address, ok=ok).stderr

    refused = fetch(ok=False)
    assert says_what_to_do(refused, world), refused
    assert world.allow().status == 201
    fetch(ok=True)
    assert world.forbid().status == 204
    fetch(ok=False)
    # A group stands for all projects in it and in the groups in it.
    assert cell.api("POST", f"{SCOPE}/groups_allowlist", {"target_group_id": world.shops}).status == 201
    fetch(ok=True)
    assert cell.api("DELETE", f"{SCOPE}/groups_allowlist/{world.shops}").status == 204
    fetch(ok=False)
    assert cell.api("PATCH", SCOPE, {"enabled": False}).status == 204
    fetch(ok=True)
    assert cell.api("PATCH", SCOPE, {"enabled": True}).status == 204
    fetch(ok=False)
    # What everybody of the organization may read needs no list.
    assert cell.api("PUT", LIB, {"visibility": "internal"}).status == 200
    fetch(ok=True)


def test_starting_pipelines(world: World, cell: ServedCell) -> None:
    world.make()
    world.commit(JOB)
    call = {"token": world.runner.take()["token"], "ref": "main"}
    # To read is not to start.
    assert cell.api("PUT", LIB, {"visibility": "internal"}).status == 200
    refused = cell.send("POST", f"/api/v4{LIB}/trigger/pipeline", call)
    assert refused.status == 403
    assert says_what_to_do(refused.body.decode(), world), refused
    assert cell.send("POST", f"/api/v4/projects/{world.shop}/trigger/pipeline", call).status == 201, "its own"
    assert world.allow().status == 201
    started = cell.send("POST", f"/api/v4{LIB}/trigger/pipeline", call)
    assert (started.status, started.json()["source"]) == (201, "pipeline")


def test_trigger_jobs_start_pipelines_by_the_rights_of_their_user(world: World, cell: ServedCell) -> None:
    """No token of a job is used, so the list does not count; what the person may do still does."""
    world.commit(TRIGGER)
    wait_until(lambda: world.newest("bridges")["status"] == "success", "the trigger job starts it")


def test_needs_of_another_project(world: World, cell: ServedCell) -> None:
    world.make()
    world.commit(NEEDS)
    assert world.runner.ask().status == 204
    assert world.newest("jobs")["failure_reason"] == "missing_dependency_failure"
    assert says_what_to_do(world.why("jobs"), world), world.why("jobs")
    assert '"advice":[]' in world.why("jobs"), "no other advice, which would not help"
    assert world.allow().status == 201
    world.again()
    assert [one["name"] for one in world.runner.take()["dependencies"]] == ["make"]


def test_artifacts_of_another_project_by_the_rights_when_fetched(world: World, cell: ServedCell) -> None:
    world.make()
    ada = a_person(cell, "ada")
    a_member(cell, f"projects/{world.shop}", ada, 40)
    a_member(cell, LIB.removeprefix("/"), ada, 20)
    assert world.allow().status == 201
    action = {"action": "create", "file_path": ".gitlab-ci.yml", "content": NEEDS}
    body = {"branch": "main", "commit_message": "x", "actions": [action]}
    assert ada.api("POST", f"/projects/{world.shop}/repository/commits", body).status == 201
    job = world.runner.take()
    [made] = job["dependencies"]

    def fetch() -> Answer:
        return cell.send("GET", f"/api/v4/jobs/{made['id']}/artifacts", JOB_TOKEN=job["token"])

    assert fetch().status == 200
    assert world.forbid().status == 204
    assert (fetch().status, says_what_to_do(fetch().body.decode(), world)) == (403, True)
    assert world.allow().status == 201
    assert fetch().status == 200
    assert cell.api("DELETE", f"{LIB}/members/{ada.id}").status == 204
    assert fetch().status == 403
    a_member(cell, LIB.removeprefix("/"), ada, 20)
    assert fetch().status == 200
    assert cell.api("DELETE", LIB).status == 202
    assert fetch().status in (403, 404)


def test_the_list_adds_nothing_to_what_a_person_may(world: World, cell: ServedCell) -> None:
    """A developer of the one project only: the list of the other one lets its jobs in, but not this person's."""
    world.make()
    ada = a_person(cell, "ada")
    a_member(cell, f"projects/{world.shop}", ada, 40)
    assert world.allow().status == 201
    action = {"action": "create", "file_path": ".gitlab-ci.yml", "content": JOB}
    body = {"branch": "main", "commit_message": "x", "actions": [action]}
    assert ada.api("POST", f"/projects/{world.shop}/repository/commits", body).status == 201
    token = world.runner.take()["token"]
    address = f"{cell.url.replace('://', f'://gitlab-ci-token:{token}@')}/acme/lib.git"
    assert "There is no such project" in world.clone.run("ls-remote", address, ok=False).stderr
    call = {"token": token, "ref": "main"}
    assert cell.send("POST", f"/api/v4{LIB}/trigger/pipeline", call).status == 404


def test_the_list_by_python_gitlab(world: World, cell: ServedCell) -> None:
    mai, eve = a_person(cell, "mai"), a_person(cell, "eve")
    a_member(cell, f"projects/{world.lib}", mai, 40)
    a_member(cell, f"projects/{world.shop}", mai, 10)
    a_member(cell, f"groups/{world.group}", mai, 10)
    a_member(cell, f"projects/{world.lib}", eve, 30)
    project = mai.client().projects.get("acme/lib")
    scope = project.job_token_scope.get()
    assert (scope.inbound_enabled, scope.outbound_enabled) == (True, False)
    assert [one.id for one in scope.allowlist.list(get_all=True)] == [world.lib], "the project itself is always in it"
    made = scope.allowlist.create({"target_project_id": world.shop})
    assert (made.source_project_id, made.target_project_id) == (world.lib, world.shop)
    assert [one.get_id() for one in scope.allowlist.list(get_all=True)] == [world.lib, world.shop]
    scope.allowlist.delete(world.shop)
    scope.groups_allowlist.create({"target_group_id": world.group})
    [group] = scope.groups_allowlist.list(get_all=True)
    assert (group.get_id(), group.full_path) == (world.group, "acme")
    scope.groups_allowlist.delete(world.group)
    scope.enabled = False
    scope.save()
    scope.refresh()
    assert scope.inbound_enabled is False

    events = mai.api("GET", f"{LIB}/audit_events").json()
    assert [
        (one["event_name"], one["details"].get("enabled")) for one in events if "token_scope" in one["event_name"]
    ] == [
        ("job_token_scope_changed", False),
        ("job_token_scope_group_removed", None),
        ("job_token_scope_group_added", None),
        ("job_token_scope_project_removed", None),
        ("job_token_scope_project_added", None),
    ]
    for method, path, body in (
        ("GET", "", None),
        ("PATCH", "", {"enabled": False}),
        ("GET", "/allowlist", None),
        ("POST", "/allowlist", {"target_project_id": world.shop}),
        ("DELETE", f"/allowlist/{world.shop}", None),
        ("GET", "/groups_allowlist", None),
        ("POST", "/groups_allowlist", {"target_group_id": world.group}),
        ("DELETE", f"/groups_allowlist/{world.group}", None),
    ):
        assert eve.api(method, SCOPE + path, body).status == 403, path


def test_what_cannot_be_in_the_list(world: World, cell: ServedCell) -> None:
    far = an_organization(cell, "far")
    elsewhere = a_group(cell, "elsewhere", organization_id=far)
    foreign = a_project_in(cell, elsewhere, "foreign")
    mai = a_person(cell, "mai")
    a_member(cell, f"projects/{world.lib}", mai, 40)
    projects, groups = f"{SCOPE}/allowlist", f"{SCOPE}/groups_allowlist"
    for person in (mai, cell):
        assert person.api("POST", projects, {"target_project_id": foreign}).status == 404
        for number in (2**40, 2**63, 10**30, 0, -1):
            assert person.api("POST", projects, {"target_project_id": number}).status in (400, 404), number
            assert person.api("POST", groups, {"target_group_id": number}).status in (400, 404), number
        assert person.api("POST", groups, {"target_group_id": elsewhere}).status == 404
        assert person.api("DELETE", f"{projects}/{world.shop}").status == 404
        assert person.api("DELETE", f"{groups}/{world.shops}").status == 404
        assert person.api("POST", projects, {"target_project_id": world.lib}).status == 400
        assert person.api("DELETE", f"{projects}/{world.lib}").status == 400
        assert person.api("PATCH", SCOPE, {}).status == 400
    # What one does not see is not there.
    assert mai.api("POST", projects, {"target_project_id": world.shop}).status == 404
    assert mai.api("POST", groups, {"target_group_id": world.shops}).status == 404
    assert world.allow().status == 201
    assert world.allow().status == 400
    assert cell.api("DELETE", f"/projects/{world.shop}").status == 202
    assert [one["id"] for one in cell.api("GET", projects).json()] == [world.lib]


def test_a_project_from_before_has_its_list_switched_on(tmp_path: Path) -> None:
    """What a store of an older release holds of a project says nothing of a list."""
    from remuda.cell.store.row_bodies import decode
    from remuda.cell.values import Project

    old = decode(Project, b'{"id": 1, "path": "acme/lib", "name": "lib", "created_at": 1.0}')
    assert (old.job_token_scope_enabled, old.job_token_projects, old.allow_force_push) == (True, (), False)
