"""The job token allow list: jobs reach other projects only if those allow it, whatever rights their user has."""

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.people import (
    Person,
    add_member,
    create_group,
    create_group_project,
    create_organization,
    create_person,
)
from tests.support.cells.served_cell import Answer, ServedCell, commit_file
from tests.support.git_client import Clone

from remuda.testing.waiting import wait_until

JOB = "job: {script: [echo]}\n"
MADE = "make: {script: [make], artifacts: {paths: [out]}}\n"
NEEDS = "use: {script: [use], needs: [{project: acme/lib, job: make, ref: main, artifacts: true}]}\n"
TRIGGER = "start: {trigger: acme/lib}\n"
LIB = "/projects/acme%2Flib"
SCOPE = f"{LIB}/job_token_scope"


class World:
    """A private project `lib`, and a project `shop` whose jobs use it; an administrator starts the jobs."""

    def __init__(self, cell: ServedCell, folder: Path) -> None:
        self.cell = cell
        self.group = create_group(cell, "acme")
        self.lib = create_group_project(cell, self.group, "lib", MADE)
        self.runner = cell.new_runner()
        self.shops = create_group(cell, "shops")
        inner = create_group(cell, "inner", parent_id=self.shops)
        self.shop = create_group_project(cell, inner, "shop")
        self.clone = Clone(folder)

    def commit(self, text: str, author: Person | None = None) -> None:
        """Commit a pipeline file to `shop`; without an author as administrator."""
        commit_file(author or self.cell, self.shop, text)

    def start_pipeline(self) -> int:
        """Run the pipeline again."""
        created = self.cell.api("POST", f"/projects/{self.shop}/pipeline", {"ref": "main"})
        assert created.status == 201, created
        return int(created.json()["id"])

    def newest(self, kind: str) -> dict[str, Any]:
        [pipeline, *_] = self.cell.api("GET", f"/projects/{self.shop}/pipelines").json()
        [row] = self.cell.api("GET", f"/projects/{self.shop}/pipelines/{pipeline['id']}/{kind}").json()
        return dict(row)

    def allow(self) -> Answer:
        return self.cell.api("POST", f"{SCOPE}/allowlist", {"target_project_id": self.shop})

    def forbid(self) -> Answer:
        return self.cell.api("DELETE", f"{SCOPE}/allowlist/{self.shop}")

    def build_lib(self) -> None:
        """Run the job of `lib`, which uploads artifacts."""
        job = self.runner.take()
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("out", "made")
        assert self.runner.upload(job, archive.getvalue()).status == 201
        assert self.runner.put(job, "success").status == 200

    def why(self, kind: str) -> str:
        """Return the explanation of the newest job."""
        job = self.newest(kind)
        answer = self.cell.send("GET", f"/api/remuda/v1/jobs/{job['id']}/why", PRIVATE_TOKEN=self.cell.token)
        return answer.body.decode()


@pytest.fixture
def world(cell: ServedCell, tmp_path: Path) -> World:
    return World(cell, tmp_path / "clone")


def explains_the_allow_list(text: str, world: World) -> bool:
    return all(
        part in text for part in ("acme/lib", "shops/inner/shop", "allow list", f"target_project_id={world.shop}")
    )


def test_git(world: World, cell: ServedCell) -> None:
    world.build_lib()
    world.commit(JOB)
    token = world.runner.take()["token"]
    address = f"{cell.url.replace('://', f'://gitlab-ci-token:{token}@')}/acme/lib.git"

    def fetch(*, ok: bool) -> str:
        return world.clone.run("ls-remote", address, ok=ok).stderr

    refused = fetch(ok=False)
    assert explains_the_allow_list(refused, world), refused
    assert world.allow().status == 201
    fetch(ok=True)
    assert world.forbid().status == 204
    fetch(ok=False)
    # A group allows all projects in it and in its subgroups.
    assert cell.api("POST", f"{SCOPE}/groups_allowlist", {"target_group_id": world.shops}).status == 201
    fetch(ok=True)
    assert cell.api("DELETE", f"{SCOPE}/groups_allowlist/{world.shops}").status == 204
    fetch(ok=False)
    assert cell.api("PATCH", SCOPE, {"enabled": False}).status == 204
    fetch(ok=True)
    assert cell.api("PATCH", SCOPE, {"enabled": True}).status == 204
    fetch(ok=False)
    # An internal project needs no entry: everybody in the organization may read it.
    assert cell.api("PUT", LIB, {"visibility": "internal"}).status == 200
    fetch(ok=True)


def test_starting_pipelines(world: World, cell: ServedCell) -> None:
    world.build_lib()
    world.commit(JOB)
    call = {"token": world.runner.take()["token"], "ref": "main"}
    # The right to read a project does not include the right to start its pipelines.
    assert cell.api("PUT", LIB, {"visibility": "internal"}).status == 200
    refused = cell.send("POST", f"/api/v4{LIB}/trigger/pipeline", call)
    assert refused.status == 403
    assert explains_the_allow_list(refused.body.decode(), world), refused
    assert cell.send("POST", f"/api/v4/projects/{world.shop}/trigger/pipeline", call).status == 201, (
        "a job may start pipelines of its own project"
    )
    assert world.allow().status == 201
    started = cell.send("POST", f"/api/v4{LIB}/trigger/pipeline", call)
    assert (started.status, started.json()["source"]) == (201, "pipeline")


def test_trigger_jobs_start_pipelines_by_the_rights_of_their_user(world: World, cell: ServedCell) -> None:
    """They use no job token, so the list does not apply; the rights of the user do."""
    world.commit(TRIGGER)
    wait_until(lambda: world.newest("bridges")["status"] == "success", "the trigger job starts it")


def test_needs_of_another_project(world: World, cell: ServedCell) -> None:
    world.build_lib()
    world.commit(NEEDS)
    assert world.runner.ask().status == 204
    assert world.newest("jobs")["failure_reason"] == "missing_dependency_failure"
    assert explains_the_allow_list(world.why("jobs"), world), world.why("jobs")
    assert '"advice":[]' in world.why("jobs"), "no other advice, which would not help"
    assert world.allow().status == 201
    world.start_pipeline()
    assert [source["name"] for source in world.runner.take()["dependencies"]] == ["make"]


def test_artifacts_of_another_project_by_the_rights_when_fetched(world: World, cell: ServedCell) -> None:
    world.build_lib()
    ada = create_person(cell, "ada")
    add_member(cell, f"projects/{world.shop}", ada, 40)
    add_member(cell, LIB.removeprefix("/"), ada, 20)
    assert world.allow().status == 201
    world.commit(NEEDS, ada)
    job = world.runner.take()
    [source] = job["dependencies"]

    def fetch() -> Answer:
        return cell.send("GET", f"/api/v4/jobs/{source['id']}/artifacts", JOB_TOKEN=job["token"])

    assert fetch().status == 200
    assert world.forbid().status == 204
    assert (fetch().status, explains_the_allow_list(fetch().body.decode(), world)) == (403, True)
    assert world.allow().status == 201
    assert fetch().status == 200
    assert cell.api("DELETE", f"{LIB}/members/{ada.id}").status == 204
    assert fetch().status == 403
    add_member(cell, LIB.removeprefix("/"), ada, 20)
    assert fetch().status == 200
    assert cell.api("DELETE", LIB).status == 202
    assert fetch().status in (403, 404)


def test_the_list_does_not_extend_the_rights_of_a_user(world: World, cell: ServedCell) -> None:
    """The list of the other project lets the jobs in, but their user has no access to that project."""
    world.build_lib()
    ada = create_person(cell, "ada")
    add_member(cell, f"projects/{world.shop}", ada, 40)
    assert world.allow().status == 201
    world.commit(JOB, ada)
    token = world.runner.take()["token"]
    address = f"{cell.url.replace('://', f'://gitlab-ci-token:{token}@')}/acme/lib.git"
    assert "There is no such project" in world.clone.run("ls-remote", address, ok=False).stderr
    call = {"token": token, "ref": "main"}
    assert cell.send("POST", f"/api/v4{LIB}/trigger/pipeline", call).status == 404


def test_the_list_by_python_gitlab(world: World, cell: ServedCell) -> None:
    mai, eve = create_person(cell, "mai"), create_person(cell, "eve")
    add_member(cell, f"projects/{world.lib}", mai, 40)
    add_member(cell, f"projects/{world.shop}", mai, 10)
    add_member(cell, f"groups/{world.group}", mai, 10)
    add_member(cell, f"projects/{world.lib}", eve, 30)
    project = mai.client().projects.get("acme/lib")
    scope = project.job_token_scope.get()
    assert (scope.inbound_enabled, scope.outbound_enabled) == (True, False)
    assert [row.id for row in scope.allowlist.list(get_all=True)] == [world.lib], "the project itself is always in it"
    entry = scope.allowlist.create({"target_project_id": world.shop})
    assert (entry.source_project_id, entry.target_project_id) == (world.lib, world.shop)
    assert [row.get_id() for row in scope.allowlist.list(get_all=True)] == [world.lib, world.shop]
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
        (row["event_name"], row["details"].get("enabled")) for row in events if "token_scope" in row["event_name"]
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


def test_invalid_entries(world: World, cell: ServedCell) -> None:
    far = create_organization(cell, "far")
    elsewhere = create_group(cell, "elsewhere", organization_id=far)
    foreign = create_group_project(cell, elsewhere, "foreign")
    mai = create_person(cell, "mai")
    add_member(cell, f"projects/{world.lib}", mai, 40)
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
    # Projects and groups that a user cannot see are reported as missing.
    assert mai.api("POST", projects, {"target_project_id": world.shop}).status == 404
    assert mai.api("POST", groups, {"target_group_id": world.shops}).status == 404
    assert world.allow().status == 201
    assert world.allow().status == 400
    assert cell.api("DELETE", f"/projects/{world.shop}").status == 202
    assert [row["id"] for row in cell.api("GET", projects).json()] == [world.lib]


def test_a_project_of_an_older_release_has_its_list_switched_on(tmp_path: Path) -> None:
    """The row of such a project has no fields for the list."""
    from remuda.cell.store.row_bodies import decode
    from remuda.cell.values import Project

    old = decode(Project, b'{"id": 1, "path": "acme/lib", "name": "lib", "created_at": 1.0}')
    assert (old.job_token_scope_enabled, old.job_token_projects, old.allow_force_push) == (True, (), False)


@pytest.mark.parametrize("entry", [{"default_permissions": False}, {"job_token_policies": ["READ_JOBS"]}])
@pytest.mark.parametrize("kind", ["project", "group"])
def test_an_entry_with_fewer_rights_is_refused(world: World, kind: str, entry: dict[str, Any]) -> None:
    path = f"{SCOPE}/allowlist" if kind == "project" else f"{SCOPE}/groups_allowlist"
    target = {f"target_{kind}_id": world.shop if kind == "project" else world.shops}
    refused = world.cell.api("POST", path, target | entry)
    assert (refused.status, refused.json()["error"].split()[0]) == (400, next(iter(entry)))
    added = world.cell.api("POST", path, target | {"default_permissions": True, "job_token_policies": []})
    assert (added.status, added.headers["X-Remuda-Ignored"]) == (201, None)
