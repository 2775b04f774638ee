"""Access rights over HTTP: levels of members, scopes of tokens, organizations, and personal tokens."""

from typing import Any

import gitlab
import pytest
from tests.support.cells.people import (
    Person,
    add_member,
    create_group,
    create_group_project,
    create_organization,
    create_person,
)
from tests.support.cells.served_cell import ADMIN_TOKEN, FEATURES, ScriptedRunner, ServedCell

from remuda.cell.http.edge.access import Kind
from remuda.cell.http.edge.app import ENDPOINTS

PIPELINE = "job: {script: [echo]}\n"
LEVELS = {"guest": 10, "reporter": 20, "developer": 30, "maintainer": 40, "owner": 50}

MATRIX: list[tuple[str, str, Any, str]] = [
    # The last item is the lowest level that may make the call; all higher levels may, too.
    ("GET", "", None, "guest"),
    ("GET", "/releases", None, "guest"),
    ("GET", "/members", None, "guest"),
    ("GET", "/repository/commits", None, "reporter"),
    ("GET", "/repository/files/.gitlab-ci.yml/raw", None, "reporter"),
    ("GET", "/pipelines", None, "reporter"),
    ("GET", "/pipelines/latest", None, "reporter"),
    ("GET", "/jobs", None, "reporter"),
    ("GET", "/jobs/{job}", None, "reporter"),
    ("GET", "/jobs/{job}/trace", None, "reporter"),
    ("GET", "/ci/lint", None, "reporter"),
    ("POST", "/ci/lint", {"content": PIPELINE}, "developer"),
    ("GET", "/pipeline_schedules", None, "developer"),
    ("POST", "/jobs/{job}/cancel", None, "maintainer"),
    ("POST", "/jobs/{job}/cancel", {"force": True}, "maintainer"),
    ("GET", "/variables", None, "maintainer"),
    ("GET", "/triggers", None, "maintainer"),
    ("GET", "/runners", None, "maintainer"),
    ("POST", "/runners/reset_registration_token", None, "maintainer"),
    ("PUT", "", {"description": "new"}, "maintainer"),
    ("DELETE", "/members/1", None, "nobody"),
]
GROUP_MATRIX: list[tuple[str, str, Any, str]] = [
    ("GET", "", None, "guest"),
    ("GET", "/projects", None, "guest"),
    ("GET", "/members/all", None, "guest"),
    ("GET", "/runners", None, "maintainer"),
    ("GET", "/variables", None, "owner"),
    ("PUT", "", {"description": "new"}, "owner"),
    ("POST", "/runners/reset_registration_token", None, "owner"),
]


@pytest.fixture
def team(cell: ServedCell) -> dict[str, Person]:
    """One person of each level in the group `acme`, with a project that has a pipeline; and a stranger."""
    group = create_group(cell, "acme")
    create_group_project(cell, group, "shop", PIPELINE)
    people = {name: create_person(cell, name) for name in (*LEVELS, "stranger")}
    for name, level in LEVELS.items():
        add_member(cell, f"groups/{group}", people[name], level)
    return people


def test_levels(cell: ServedCell, team: dict[str, Person]) -> None:
    [job] = cell.api("GET", "/projects/acme%2Fshop/jobs").json()
    order = list(LEVELS)
    wrong = []
    for root, matrix in (("/projects/acme%2Fshop", MATRIX), ("/groups/acme", GROUP_MATRIX)):
        for method, path, body, least in matrix:
            for name, person in team.items():
                answer = person.api(method, root + path.format(job=job["id"]), body)
                may = name in order and least in order and order.index(name) >= order.index(least)
                expected = "2xx" if may else "404" if name == "stranger" else "403"
                if least == "nobody" and name != "stranger":
                    expected = "404"
                actual = "2xx" if answer.status < 300 else str(answer.status)
                if actual != expected:
                    wrong.append((name, method, path, answer))
    assert not wrong
    # The default branch is protected: only maintainers start pipelines on it.
    refused = team["developer"].api("POST", "/projects/acme%2Fshop/pipeline", {"ref": "main"})
    assert (refused.status, "permission" in refused.json()["message"]["base"][0]) == (400, True)
    assert team["maintainer"].api("POST", "/projects/acme%2Fshop/pipeline", {"ref": "main"}).status == 201
    # A job of a protected branch gets protected variables, so only maintainers retry it.
    assert team["developer"].api("POST", f"/projects/acme%2Fshop/jobs/{job['id']}/retry").status == 403
    assert team["maintainer"].api("POST", f"/projects/acme%2Fshop/jobs/{job['id']}/retry").status == 201
    assert team["maintainer"].api("DELETE", "/projects/acme%2Fshop").status == 403
    assert team["owner"].api("DELETE", "/projects/acme%2Fshop").status == 202
    assert team["owner"].api("GET", "/projects/acme%2Fshop").status == 404


def test_endpoints_require_a_token(cell: ServedCell) -> None:
    numbers = {"id": "1", "job_id": "1", "pipeline_id": "1", "runner_id": "1"}
    for endpoint in ENDPOINTS:
        if endpoint.access.kind in (Kind.OPEN, Kind.RUNNER, Kind.JOB, Kind.TRIGGER):
            continue
        path = endpoint.path.replace(":path}", "}")
        for part in path.split("/"):
            if part.startswith("{"):
                path = path.replace(part, numbers.get(part[1:-1], "x"), 1)
        for headers in ({}, {"PRIVATE_TOKEN": "glpat-wrong"}, {"Authorization": "Bearer wrong"}):
            answer = cell.send(endpoint.method, path, **headers)
            assert answer.status == 401, (endpoint.method, path, answer)


def test_users_of_one_organization_never_see_another(cell: ServedCell) -> None:
    far = create_organization(cell, "far")
    here, there = create_person(cell, "ann"), create_person(cell, "zoe", organization_id=far)
    group = int(here.api("POST", "/groups", {"name": "g", "path": "g", "visibility": "public"}).json()["id"])
    created = here.api("POST", "/projects", {"name": "p", "namespace_id": group, "visibility": "public"})
    project = int(created.json()["id"])
    assert created.json()["organization_id"] == 1
    runner = here.api("POST", "/user/runners", {"runner_type": "project_type", "project_id": project}).json()["id"]
    for path in (
        f"/projects/{project}",
        f"/projects/{project}/pipelines",
        f"/groups/{group}",
        f"/groups/{group}/members",
        f"/namespaces/{group}",
        f"/users/{here.id}",
        f"/runners/{runner}",
        "/organizations/1",
    ):
        assert here.api("GET", path).status == 200, path
        assert there.api("GET", path).status == 404, path
    for path in ("/projects", "/groups", "/runners", "/users?username=ann", "/users?search=ann"):
        assert there.api("GET", path).json() == [], path
    assert [organization["id"] for organization in there.api("GET", "/organizations").json()] == [far]
    assert there.api("POST", "/groups", {"name": "x", "path": "x", "parent_id": group}).status == 404
    assert there.api("POST", "/groups", {"name": "x", "path": "x", "organization_id": 1}).status == 404
    assert there.api("POST", "/projects", {"name": "x", "namespace_id": group}).status == 400
    # Nobody can make a user of another organization a member.
    assert cell.api("POST", f"/groups/{group}/members", {"user_id": there.id, "access_level": 50}).status == 404
    assert there.api("POST", "/user/runners", {"runner_type": "project_type", "project_id": project}).status == 404
    mine = there.api("POST", "/projects", {"name": "mine"})
    assert (mine.status, mine.json()["organization_id"], mine.json()["path_with_namespace"]) == (201, far, "zoe/mine")
    assert cell.api("GET", f"/projects/{mine.json()['id']}").status == 200


def test_only_developers_read_the_log_of_a_traced_job(
    cell: ServedCell, team: dict[str, Person], runner: ScriptedRunner
) -> None:
    job = runner.take()
    assert runner.patch(job, 0, b"plain\n").status == 202
    paths = f"/projects/acme%2Fshop/jobs/{job['id']}/trace", f"/api/remuda/v1/jobs/{job['id']}/trace"

    def read(name: str) -> list[int]:
        token = team[name].token
        return [team[name].api("GET", paths[0]).status, cell.send("GET", paths[1], PRIVATE_TOKEN=token).status]

    assert read("reporter") == [200, 200]
    assert runner.patch(job, 6, b"traced\n", is_traced=True).status == 202
    # A manager that found its job again without a journal does not know that the job is traced.
    assert runner.patch(job, 13, b"more\n").status == 202
    assert runner.put(job, "failed").status == 200
    assert read("reporter") == [403, 403]
    assert "CI_DEBUG_TRACE" in team["reporter"].api("GET", paths[0]).json()["message"]
    assert read("developer") == [200, 200]
    assert read("guest") == [403, 403]
    assert read("stranger") == [404, 404]
    # A retry is traced only if its own runner says so.
    retry = team["maintainer"].api("POST", f"/projects/acme%2Fshop/jobs/{job['id']}/retry").json()
    assert team["reporter"].api("GET", f"/projects/acme%2Fshop/jobs/{retry['id']}/trace").status == 200


def test_members_with_python_gitlab(cell: ServedCell, team: dict[str, Person]) -> None:
    group = team["owner"].client().groups.get("acme")
    guest = group.members.get(team["guest"].id)
    assert (guest.username, guest.access_level) == ("guest", 10)
    guest.access_level = 30
    guest.save()
    stranger = team["stranger"].client()
    with pytest.raises(gitlab.GitlabGetError):
        stranger.projects.get("acme/shop")
    project = team["maintainer"].client().projects.get("acme/shop")
    added = project.members.create({"user_id": team["stranger"].id, "access_level": gitlab.const.AccessLevel.REPORTER})
    assert stranger.projects.get("acme/shop").id == project.id
    assert {member.username for member in project.members_all.list(get_all=True)} >= {"root", "owner", "stranger"}
    with pytest.raises(gitlab.GitlabCreateError) as refused:  # nobody can grant a higher level than their own
        project.members.create({"user_id": team["reporter"].id, "access_level": 50})
    assert refused.value.response_code == 403
    with pytest.raises(gitlab.GitlabCreateError) as twice:
        project.members.create({"user_id": team["stranger"].id, "access_level": 20})
    assert twice.value.response_code == 409
    added.delete()
    with pytest.raises(gitlab.GitlabGetError):
        stranger.projects.get("acme/shop")
    # Everybody may leave, but the last owner of a group stays.
    assert team["guest"].api("DELETE", f"/groups/acme/members/{team['guest'].id}").status == 204
    assert team["owner"].api("DELETE", "/groups/acme/members/1").status == 204
    assert team["owner"].api("DELETE", f"/groups/acme/members/{team['owner'].id}").status == 403


def test_groups_with_python_gitlab(cell: ServedCell) -> None:
    ada = create_person(cell, "ada")
    client = ada.client()
    acme = client.groups.create({"name": "Acme", "path": "acme", "visibility": "internal"})
    tools = client.groups.create({"name": "Tools", "path": "tools", "parent_id": acme.id})
    assert (tools.full_path, tools.parent_id) == ("acme/tools", acme.id)
    project = client.projects.create({"name": "Saw", "namespace_id": tools.id})
    assert project.path_with_namespace == "acme/tools/Saw"
    assert project.namespace["id"] == tools.id
    assert [row.id for row in acme.subgroups.list(get_all=True)] == [tools.id]
    assert acme.projects.list(get_all=True) == []
    assert [row.id for row in acme.projects.list(include_subgroups=True, get_all=True)] == [project.id]
    assert {row.full_path for row in client.namespaces.list(get_all=True)} == {"acme", "acme/tools", "ada"}
    acme.description = "changed"
    acme.save()
    assert client.groups.get("acme").description == "changed"
    for wrong in ({"name": "x", "path": "ACME"}, {"name": "x", "path": "a b"}, {"name": "x", "path": "ada"}):
        with pytest.raises(gitlab.GitlabCreateError) as refused:
            client.groups.create(wrong)
        assert refused.value.response_code == 400
    acme.delete()
    assert client.groups.list(get_all=True) == []
    with pytest.raises(gitlab.GitlabGetError):
        client.projects.get(project.id)
    client.groups.create({"name": "Acme", "path": "acme"})  # its path is free


def test_change_project(cell: ServedCell) -> None:
    project_id = cell.new_project("app", PIPELINE)
    client = gitlab.Gitlab(cell.url, private_token=cell.token)
    project = client.projects.get(project_id)
    actions = [{"action": "create", "file_path": "x", "content": "x"}]
    body = {"branch": "next", "start_branch": "main", "commit_message": "x", "actions": actions}
    assert cell.api("POST", f"/projects/{project_id}/repository/commits", body).status == 201
    project.default_branch, project.build_timeout, project.path = "next", 1200, "shop"
    project.visibility = "internal"
    project.save()
    again = client.projects.get("root/shop")
    assert (again.default_branch, again.build_timeout, again.visibility) == ("next", 1200, "internal")
    for wrong in (
        {"default_branch": "missing"},
        {"build_timeout": 5},
        {"path": "a/b"},
        {"visibility": "secret"},
        {"name": ""},
    ):
        assert cell.api("PUT", f"/projects/{project_id}", wrong).status == 400, wrong


def test_deleting_a_project_ends_its_jobs(cell: ServedCell) -> None:
    project_id = cell.new_project("app", PIPELINE)
    runner = cell.new_runner()
    taken = runner.take()
    assert runner.put(taken, "running").status == 200
    own = cell.api("POST", "/user/runners", {"runner_type": "project_type", "project_id": project_id}).json()["id"]
    assert cell.api("DELETE", f"/projects/{project_id}").status == 202
    assert cell.api("GET", f"/runners/{own}").status == 404
    assert cell.api("DELETE", f"/projects/{project_id}").status == 404
    assert runner.put(taken, "success").status == 403
    assert runner.ask().status == 204
    assert cell.new_project("app", PIPELINE) != project_id
    assert cell.api("GET", "/projects").json()[0]["path_with_namespace"] == "root/app"


def test_a_job_that_outlives_its_project_is_not_shown(cell: ServedCell) -> None:
    project_id = cell.new_project("app", PIPELINE)
    runner = cell.new_runner()
    job = runner.take(info={"features": FEATURES | {"cancel_gracefully": True}})
    assert runner.put(job, "running").status == 200
    assert cell.api("DELETE", f"/projects/{project_id}").status == 202
    assert runner.patch(job, 0, b"still here\n").headers["Job-Status"] == "canceling"
    response = cell.send("GET", "/api/v4/job", JOB_TOKEN=job["token"])
    assert (response.status, response.json()) == (404, {"message": "404 Job Not Found"})


def test_tokens(cell: ServedCell) -> None:
    ada, bob = create_person(cell, "ada"), create_person(cell, "bob")
    client = ada.client()
    [own] = client.personal_access_tokens.list(get_all=True)
    assert (own.user_id, own.scopes, own.active) == (ada.id, ["api"], True)
    assert own.last_used_at is not None
    assert bob.api("GET", f"/personal_access_tokens/{own.id}").status == 404
    assert bob.api("GET", f"/personal_access_tokens?user_id={ada.id}").status == 403
    for scopes in (["api", "everything"], ["sudo"], []):
        body = {"name": "x", "scopes": scopes}
        assert cell.api("POST", f"/users/{ada.id}/personal_access_tokens", body).status == 400
    assert ada.api("POST", f"/users/{bob.id}/personal_access_tokens", {"name": "x", "scopes": ["api"]}).status == 403
    past = {"name": "x", "scopes": ["api"], "expires_at": "2020-01-01"}
    assert ada.api("POST", "/user/personal_access_tokens", past).status == 400

    rotated = ada.api("POST", "/personal_access_tokens/self/rotate").json()
    assert rotated["token"].startswith("glpat-")
    assert ada.api("GET", "/user").status == 401
    new = Person(cell, ada.id, "ada", rotated["token"])
    assert new.api("GET", "/user").json()["username"] == "ada"
    again = cell.api("POST", f"/personal_access_tokens/{rotated['id']}/rotate", {"expires_at": "2099-01-01"}).json()
    assert again["expires_at"] == "2099-01-01"
    assert new.api("GET", "/user").status == 401
    newest = Person(cell, ada.id, "ada", again["token"])
    assert newest.api("DELETE", "/personal_access_tokens/self").status == 204
    assert newest.api("GET", "/user").status == 401
    assert cell.api("POST", f"/personal_access_tokens/{again['id']}/rotate").status == 400


def test_scopes(cell: ServedCell) -> None:
    ada = create_person(cell, "ada")
    project = ada.api("POST", "/projects", {"name": "app"}).json()["id"]
    reader, user_only = ada.with_scopes("read_api"), ada.with_scopes("read_user")
    assert reader.api("GET", f"/projects/{project}").status == 200
    refused = reader.api("PUT", f"/projects/{project}", {"description": "x"})
    assert (refused.status, refused.json()["error"]) == (403, "insufficient_scope")
    assert user_only.api("GET", "/user").status == 200
    assert user_only.api("GET", f"/projects/{project}").status == 403
    creator = ada.with_scopes("create_runner")
    body = {"runner_type": "project_type", "project_id": project}
    created = creator.api("POST", "/user/runners", body)
    assert created.status == 201
    assert reader.api("POST", "/user/runners", body).status == 403
    manager = ada.with_scopes("manage_runner")
    assert manager.api("PUT", f"/runners/{created.json()['id']}", {"paused": True}).status == 200
    assert creator.api("PUT", f"/runners/{created.json()['id']}", {"paused": False}).status == 403
    rotator = ada.with_scopes("self_rotate")
    other = ada.api("GET", "/personal_access_tokens").json()[0]["id"]
    assert rotator.api("POST", f"/personal_access_tokens/{other}/rotate").status == 403
    assert rotator.api("POST", "/personal_access_tokens/self/rotate").status == 200


def test_blocked_users_get_nothing(cell: ServedCell) -> None:
    ada = create_person(cell, "ada")
    admin = gitlab.Gitlab(cell.url, private_token=cell.token)
    admin.users.get(ada.id).block()
    assert ada.api("GET", "/user").status == 403
    admin.users.get(ada.id).unblock()
    assert ada.api("GET", "/user").status == 200
    assert cell.api("POST", "/users/1/block").status == 403
    assert ada.api("POST", "/users", {"username": "x", "name": "x", "email": "x@x.org"}).status == 403


def test_an_administrator_has_access_to_all_organizations(cell: ServedCell) -> None:
    far = create_organization(cell, "far")
    chief = create_person(cell, "chief", organization_id=far, admin=True)
    project = cell.new_project("app")
    assert chief.api("GET", f"/projects/{project}").status == 200
    duplicate = cell.api("POST", "/users", {"username": "CHIEF", "name": "x", "email": "x@x.org"})
    assert duplicate.status == 409


def test_an_expired_member_can_be_added_again(cell: ServedCell) -> None:
    group, ada = create_group(cell, "acme"), create_person(cell, "ada")
    root = f"/groups/{group}/members"
    expired = {"user_id": ada.id, "access_level": 50, "expires_at": "2020-01-01"}
    assert cell.api("POST", root, expired).status == 201
    assert [member["id"] for member in cell.api("GET", root).json()] == [1]
    assert cell.api("GET", f"{root}/{ada.id}").status == 404
    # An expired owner does not count, so the last owner cannot be removed.
    assert cell.api("DELETE", f"{root}/1").status == 403
    assert cell.api("POST", root, {"user_id": ada.id, "access_level": 30}).status == 201
    assert cell.api("GET", f"{root}/{ada.id}").json()["access_level"] == 30


def test_users_list_the_jobs_of_their_own_projects(cell: ServedCell, team: dict[str, Person]) -> None:
    other = create_group(cell, "other")
    create_group_project(cell, other, "shop", PIPELINE)

    def list_projects(token: str) -> set[str]:
        answer = cell.send("GET", "/api/remuda/v1/jobs", PRIVATE_TOKEN=token)
        assert answer.status == 200
        assert answer.headers["x-total"] == str(len(answer.json()))
        return {job["web_url"].split("/-/")[0].removeprefix(f"{cell.url}/") for job in answer.json()}

    assert list_projects(team["stranger"].token) == set()
    assert list_projects(team["guest"].token) == set()
    assert list_projects(team["reporter"].token) == {"acme/shop"}
    assert list_projects(ADMIN_TOKEN) == {"acme/shop", "other/shop"}


def test_only_an_owner_makes_a_project_public(cell: ServedCell, team: dict[str, Person]) -> None:
    path, public = "/projects/acme%2Fshop", {"visibility": "public"}
    assert team["maintainer"].api("PUT", path, {"visibility": "private", "description": "as it was"}).status == 200
    assert team["maintainer"].api("PUT", path, public).status == 403
    assert team["stranger"].api("GET", path).status == 404
    assert team["owner"].api("PUT", path, public).status == 200
    assert team["stranger"].api("GET", path).status == 200


JOB = """
build: {script: [make], artifacts: {paths: [out]}}
later: {script: [make], when: delayed, start_in: 1 day}
"""


def test_who_acts_on_jobs_of_protected_refs(cell: ServedCell, team: dict[str, Person], runner: ScriptedRunner) -> None:
    """Developers act on jobs of other refs only, and erase only those whose pipeline they started."""
    root, ada, mia = "/projects/acme%2Fshop", team["developer"], team["maintainer"]
    assert runner.put(runner.take(), "success").status == 200
    action = {"action": "update", "file_path": ".gitlab-ci.yml", "content": JOB}
    for person, branch in ((mia, "main"), (ada, "of-ada"), (mia, "of-mia")):
        start = {} if branch == "main" else {"start_branch": "main"}
        actions = [action] if branch == "main" else [{"action": "create", "file_path": branch, "content": ""}]
        body = {"branch": branch, "commit_message": branch, "actions": actions, **start}
        assert person.api("POST", f"{root}/repository/commits", body).status == 201
        job = runner.take()
        assert runner.patch(job, 0, b"hello\n").status == 202
        assert runner.upload(job, b"archive").status == 201
        assert runner.put(job, "success").status == 200
        [pipeline] = cell.api("GET", f"{root}/pipelines?ref={branch}").json()[:1]
        jobs = cell.api("GET", f"{root}/pipelines/{pipeline['id']}/jobs").json()
        later = next(row["id"] for row in jobs if row["name"] == "later")
        calls: list[tuple[str, str, Any, int]] = [
            ("POST", f"jobs/{job['id']}/artifacts/keep", None, 200),
            ("POST", f"jobs/{later}/unschedule", None, 200),
            ("PUT", f"pipelines/{pipeline['id']}/metadata", {"name": "x"}, 200),
            ("POST", f"jobs/{later}/cancel", None, 201),
            ("POST", f"pipelines/{pipeline['id']}/cancel", None, 200),
            ("POST", f"jobs/{job['id']}/erase", None, 201),
        ]
        for method, path, body, status in calls:
            expected = 403 if branch == "main" or (path.endswith("erase") and person is not ada) else status
            answer = ada.api(method, f"{root}/{path}", body)
            assert answer.status == expected, (branch, path, answer)
            if expected == 403:
                assert mia.api(method, f"{root}/{path}", body).status == status, (branch, path)


def test_pipelines_stay_protected_when_the_default_branch_changes(cell: ServedCell, team: dict[str, Person]) -> None:
    root = "/projects/acme%2Fshop"
    [pipeline] = cell.until_pipelines(1, "acme/shop")
    assert cell.api("POST", f"{root}/repository/branches", {"branch": "next", "ref": "main"}).status == 201
    assert team["maintainer"].api("PUT", root, {"default_branch": "next"}).status == 200
    assert cell.api("POST", f"{root}/pipelines/{pipeline['id']}/cancel").status == 200
    assert team["developer"].api("POST", f"{root}/pipelines/{pipeline['id']}/retry").status == 403
    assert team["maintainer"].api("POST", f"{root}/pipelines/{pipeline['id']}/retry").status == 201
