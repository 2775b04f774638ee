"""Runners of organizations, groups and projects: which jobs they get, their registration, tokens and settings."""

from datetime import UTC, datetime
from pathlib import Path
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
from tests.support.cells.served_cell import ScriptedRunner, ServedCell, commit_file

from remuda.lib.clock import SystemClock
from remuda.wire.routable_token import decode

PIPELINE = "job: {script: [echo]}\n"


@pytest.fixture
def places(cell: ServedCell) -> dict[str, int]:
    """acme/tools/saw, acme/shop, root/own, and a project of another organization; each with a pending job."""
    acme = create_group(cell, "acme")
    tools = create_group(cell, "tools", parent_id=acme)
    far = create_organization(cell, "far")
    elsewhere = create_group(cell, "elsewhere", organization_id=far)
    return {
        "acme": acme,
        "tools": tools,
        "far": far,
        "saw": create_group_project(cell, tools, "saw", PIPELINE),
        "shop": create_group_project(cell, acme, "shop", PIPELINE),
        "own": cell.new_project("own", PIPELINE),
        "alien": create_group_project(cell, elsewhere, "alien", PIPELINE),
    }


class LaterClock(SystemClock):
    """A clock that a test can advance."""

    later = 0.0

    def now(self) -> float:
        return super().now() + self.later

    def wall(self) -> float:
        return super().wall() + self.later


def a_runner(cell: ServedCell, kind: str, **more: object) -> ScriptedRunner:
    created = cell.api("POST", "/user/runners", {"runner_type": kind, **more})
    assert created.status == 201, created
    return ScriptedRunner(cell, created.json()["token"])


def run_all_jobs(runner: ScriptedRunner) -> list[str]:
    """Run all jobs that the runner gets; return the names of their projects."""
    names = []
    while (answer := runner.ask()).status == 201:
        job = answer.json()
        names.append(job["job_info"]["project_name"])
        assert runner.put(job, "success").status == 200
    assert answer.status == 204
    return sorted(names)


def runner_id(runner: ScriptedRunner) -> int:
    verified = runner.cell.send("POST", "/api/v4/runners/verify", {"token": runner.token})
    assert verified.status == 200, verified
    return int(verified.json()["id"])


class TestWhichJobsTheyGet:
    @pytest.mark.usefixtures("places")
    def test_an_instance_runner_serves_all_organizations_of_the_cell(self, cell: ServedCell) -> None:
        assert run_all_jobs(a_runner(cell, "instance_type")) == ["alien", "own", "saw", "shop"]

    @pytest.mark.usefixtures("places")
    def test_a_registered_instance_runner_serves_all_organizations(self, cell: ServedCell) -> None:
        token = cell.send("GET", "/api/remuda/v1/registration_token", PRIVATE_TOKEN=cell.token).json()["token"]
        created = cell.send("POST", "/api/v4/runners", {"token": token})
        assert run_all_jobs(ScriptedRunner(cell, created.json()["token"])) == ["alien", "own", "saw", "shop"]

    def test_an_instance_runner_restricted_to_organizations(self, cell: ServedCell, places: dict[str, int]) -> None:
        assert run_all_jobs(a_runner(cell, "instance_type", organization_ids=[places["far"]])) == ["alien"]
        runner = a_runner(cell, "instance_type", organization_id=1)
        number = runner_id(runner)
        assert run_all_jobs(runner) == ["own", "saw", "shop"]
        assert cell.api("GET", f"/runners/{number}").json()["organization_ids"] == [1]
        for project in ("own", "alien"):
            assert cell.api("POST", f"/projects/{places[project]}/pipeline", {"ref": "main"}).status == 201
        assert run_all_jobs(runner) == ["own"]
        # Its tokens do not change, and it serves the whole cell from the next request on.
        changed = cell.api("PUT", f"/runners/{number}", {"organization_ids": []})
        assert (changed.status, changed.json()["organization_ids"]) == (200, [])
        assert run_all_jobs(runner) == ["alien"]

    def test_a_group_runner_serves_the_group_and_its_subgroups(self, cell: ServedCell, places: dict[str, int]) -> None:
        assert run_all_jobs(a_runner(cell, "group_type", group_id=places["tools"])) == ["saw"]
        assert run_all_jobs(a_runner(cell, "group_type", group_id=places["acme"])) == ["shop"]

    def test_a_project_runner_serves_its_projects(self, cell: ServedCell, places: dict[str, int]) -> None:
        runner = a_runner(cell, "project_type", project_id=places["shop"])
        number = runner_id(runner)
        assert run_all_jobs(runner) == ["shop"]
        client = gitlab.Gitlab(cell.url, private_token=cell.token)
        own = client.projects.get(places["own"])
        own.runners.create({"runner_id": number})
        assert run_all_jobs(runner) == ["own"]
        assert [project["id"] for project in client.runners.get(number).projects] == [places["shop"], places["own"]]
        own.runners.delete(number)
        own.pipelines.create({"ref": "main"})
        assert run_all_jobs(runner) == []
        # The last project cannot be removed, and one of another organization cannot be added.
        assert cell.api("DELETE", f"/projects/{places['shop']}/runners/{number}").status == 403
        assert cell.api("POST", f"/projects/{places['alien']}/runners", {"runner_id": number}).status == 404
        assert cell.api("POST", f"/projects/{places['shop']}/runners", {"runner_id": number}).status == 400

    def test_runners_that_cannot_be_assigned_to_a_project(self, cell: ServedCell, places: dict[str, int]) -> None:
        locked = runner_id(a_runner(cell, "project_type", project_id=places["shop"], locked=True))
        group = runner_id(a_runner(cell, "group_type", group_id=places["acme"]))
        for number in (locked, group):
            assert cell.api("POST", f"/projects/{places['own']}/runners", {"runner_id": number}).status == 403
        assert cell.api("DELETE", f"/projects/{places['own']}/runners/{locked}").status == 404
        assert cell.api("POST", f"/projects/{places['own']}/runners", {"runner_id": 999}).status == 404

    def test_a_runner_for_protected_refs(self, cell: ServedCell, places: dict[str, int]) -> None:
        commit_file(cell, places["own"], "x", path="x", branch="side", start_branch="main")
        picky = a_runner(cell, "project_type", project_id=places["own"], access_level="ref_protected")
        assert run_all_jobs(picky) == ["own"]  # that of main
        assert run_all_jobs(a_runner(cell, "project_type", project_id=places["own"])) == ["own"]


class TestRunnersThatAProjectDoesNotUse:
    def disable(self, cell: ServedCell, project: int, *names: str) -> None:
        changed = cell.api("PUT", f"/projects/{project}", dict.fromkeys(names, False))
        assert changed.status == 200, changed
        assert [changed.json()[name] for name in names] == [False] * len(names)
        assert cell.api("POST", f"/projects/{project}/pipeline", {"ref": "main"}).status == 201

    def test_instance_runners(self, cell: ServedCell, places: dict[str, int]) -> None:
        instance = a_runner(cell, "instance_type")
        restricted = a_runner(cell, "instance_type", organization_ids=[1])
        run_all_jobs(instance)
        self.disable(cell, places["shop"], "shared_runners_enabled")
        assert (run_all_jobs(instance), run_all_jobs(restricted)) == ([], [])
        [job] = cell.api("GET", f"/projects/{places['shop']}/jobs?scope=pending").json()
        why = cell.send("GET", f"/api/remuda/v1/jobs/{job['id']}/why", PRIVATE_TOKEN=cell.token).json()
        assert f"remuda project set {places['shop']} --instance-runners" in str(why)
        assert run_all_jobs(a_runner(cell, "group_type", group_id=places["acme"])) == ["shop"]

    def test_group_runners(self, cell: ServedCell, places: dict[str, int]) -> None:
        group = a_runner(cell, "group_type", group_id=places["acme"])
        run_all_jobs(group)
        self.disable(cell, places["shop"], "group_runners_enabled")
        assert run_all_jobs(group) == []
        assert run_all_jobs(a_runner(cell, "project_type", project_id=places["shop"])) == ["shop"]

    def test_a_new_project_without_them(self, cell: ServedCell) -> None:
        created = cell.api("POST", "/projects", {"name": "alone", "shared_runners_enabled": False})
        assert (created.status, created.json()["shared_runners_enabled"]) == (201, False)
        commit_file(cell, created.json()["id"], PIPELINE)
        assert run_all_jobs(a_runner(cell, "instance_type")) == []
        assert run_all_jobs(a_runner(cell, "project_type", project_id=created.json()["id"])) == ["alone"]


class TestWhoCreatesThem:
    def test_levels(self, cell: ServedCell, places: dict[str, int]) -> None:
        people = {level: create_person(cell, f"p{level}") for level in (30, 40, 50)}
        for level, person in people.items():
            add_member(cell, f"groups/{places['acme']}", person, level)
        cases = {
            "instance_type": ({}, None),
            "group_type": ({"group_id": places["tools"]}, 50),
            "project_type": ({"project_id": places["saw"]}, 40),
        }
        for kind, (target, least) in cases.items():
            for level, person in people.items():
                answer = person.api("POST", "/user/runners", {"runner_type": kind, **target})
                assert answer.status == (201 if least is not None and level >= least else 403), (kind, level, answer)
        own = people[40].api("GET", "/runners").json()
        assert {row["runner_type"] for row in own} == {"project_type"}
        assert {row["runner_type"] for row in people[50].api("GET", "/runners").json()} == {
            "project_type",
            "group_type",
        }
        assert people[30].api("GET", "/runners").json() == []
        assert people[50].api("GET", "/runners/all").status == 403
        a_group_runner = people[50].api("GET", "/runners?type=group_type").json()[0]["id"]
        assert people[30].api("GET", f"/runners/{a_group_runner}").status == 404
        assert people[40].api("GET", f"/runners/{a_group_runner}").status == 200
        assert people[40].api("PUT", f"/runners/{a_group_runner}", {"paused": True}).status == 403
        assert people[50].api("PUT", f"/runners/{a_group_runner}", {"paused": True}).status == 200

    def test_an_instance_runner_is_seen_by_its_organization(self, cell: ServedCell, places: dict[str, int]) -> None:
        number = runner_id(a_runner(cell, "instance_type", organization_ids=[1]))
        ada, zoe = create_person(cell, "ada"), create_person(cell, "zoe", organization_id=places["far"])
        assert ada.api("GET", f"/runners/{number}").status == 200
        assert ada.api("DELETE", f"/runners/{number}").status == 403
        assert zoe.api("GET", f"/runners/{number}").status == 404

    def test_an_instance_runner_of_the_whole_cell_is_seen_by_everybody(
        self, cell: ServedCell, places: dict[str, int]
    ) -> None:
        number = runner_id(a_runner(cell, "instance_type"))
        zoe = create_person(cell, "zoe", organization_id=places["far"])
        assert zoe.api("GET", f"/runners/{number}").status == 200
        assert zoe.api("PUT", f"/runners/{number}", {"paused": True}).status == 403

    def test_only_instance_runners_can_be_restricted_to_organizations(
        self, cell: ServedCell, places: dict[str, int]
    ) -> None:
        number = runner_id(a_runner(cell, "group_type", group_id=places["acme"]))
        assert cell.api("PUT", f"/runners/{number}", {"organization_ids": [1]}).status == 400
        instance = runner_id(a_runner(cell, "instance_type"))
        assert cell.api("PUT", f"/runners/{instance}", {"organization_ids": [99]}).status == 404
        assert cell.api("PUT", f"/runners/{instance}", {"organization_ids": [1] * 2000}).status == 400

    def test_invalid_requests(self, cell: ServedCell) -> None:
        for body, status in (
            ({"runner_type": "group_type"}, 400),
            ({"runner_type": "project_type"}, 400),
            ({"runner_type": "some_type"}, 400),
            ({"runner_type": "group_type", "group_id": 99}, 404),
            ({"runner_type": "project_type", "project_id": 99}, 404),
            ({"runner_type": "group_type", "group_id": 1}, 404),  # a user's own namespace
            ({"runner_type": "instance_type", "organization_id": 99}, 404),
            ({"runner_type": "instance_type", "organization_ids": [1, 99]}, 404),
            ({"runner_type": "project_type", "project_id": 1, "organization_ids": [1]}, 400),
            ({"runner_type": "instance_type", "token_expires_at": "2001-01-01T00:00:00Z"}, 400),
        ):
            assert cell.api("POST", "/user/runners", body).status == status, body


class TestRegistration:
    def test_with_the_token_of_a_group_or_project(self, cell: ServedCell, places: dict[str, int]) -> None:
        for place, kind, expected in (
            ("groups/acme", "group_type", ["saw", "shop"]),
            ("projects/root%2Fown", "project_type", ["own"]),
        ):
            token = cell.api("POST", f"/{place}/runners/reset_registration_token").json()["token"]
            created = cell.send("POST", "/api/v4/runners", {"token": token, "description": "x"})
            assert created.status == 201, created
            assert created.json()["token"].startswith("glrtr-")
            details = cell.api("GET", f"/runners/{created.json()['id']}").json()
            assert details["runner_type"] == kind
            assert run_all_jobs(ScriptedRunner(cell, created.json()["token"])) == expected
            assert cell.api("POST", f"/{place}/runners/reset_registration_token").status == 201
            assert cell.send("POST", "/api/v4/runners", {"token": token}).status == 403

    @pytest.mark.parametrize("configured", ["", "given-by-hand"])
    def test_a_configured_token_replaces_the_generated_one(self, tmp_path: Path, configured: str) -> None:
        with ServedCell(tmp_path / "cell") as cell:
            generated = cell.send("GET", "/api/remuda/v1/registration_token", PRIVATE_TOKEN=cell.token).json()["token"]
        with ServedCell(tmp_path / "cell", registration_token=configured) as cell:
            assert cell.send("POST", "/api/v4/runners", {"token": generated}).status == 403
            assert cell.send("POST", "/api/v4/runners", {"token": configured}).status == (201 if configured else 400)

    def test_it_can_be_switched_off(self, cell: ServedCell) -> None:
        token = cell.send("GET", "/api/remuda/v1/registration_token", PRIVATE_TOKEN=cell.token).json()["token"]
        client = gitlab.Gitlab(cell.url, private_token=cell.token)
        settings = client.settings.get()
        settings.allow_runner_registration_token = False
        settings.save()
        refused = cell.send("POST", "/api/v4/runners", {"token": token})
        assert (refused.status, refused.json()["message"][:8]) == (410, "410 Gone")
        settings.allow_runner_registration_token = True
        settings.save()
        assert cell.send("POST", "/api/v4/runners", {"token": token}).status == 201
        assert cell.api("POST", "/runners/reset_registration_token").status == 201
        assert cell.send("POST", "/api/v4/runners", {"token": token}).status == 403


class TestTokens:
    def test_routing(self, cell: ServedCell, places: dict[str, int]) -> None:
        group = decode(a_runner(cell, "group_type", group_id=places["tools"]).token)
        assert dict(group.routing) == {"c": 1, "g": places["tools"], "o": 1, "t": 2, "u": 1}
        project = decode(a_runner(cell, "project_type", project_id=places["alien"]).token)
        assert dict(project.routing) == {"c": 1, "o": places["far"], "p": places["alien"], "t": 3, "u": 1}

    def test_a_reset_invalidates_the_old_token_at_once(self, cell: ServedCell) -> None:
        runner = cell.new_runner()
        number = runner_id(runner)
        renewed = cell.send("POST", "/api/v4/runners/reset_authentication_token", {"token": runner.token})
        assert (renewed.status, renewed.json()["token_expires_at"]) == (201, None)
        assert runner.ask().status == 403
        assert cell.send("POST", "/api/v4/runners/reset_authentication_token", {"token": runner.token}).status == 403
        second = ScriptedRunner(cell, renewed.json()["token"])
        assert (runner_id(second), second.ask().status) == (number, 204)
        third = cell.api("POST", f"/runners/{number}/reset_authentication_token")
        assert third.status == 201
        assert second.ask().status == 403
        assert runner_id(ScriptedRunner(cell, third.json()["token"])) == number
        # Changes of the runner's settings do not change its token.
        assert cell.api("PUT", f"/runners/{number}", {"description": "new"}).status == 200
        assert ScriptedRunner(cell, third.json()["token"]).ask().status == 204

    def test_a_runner_cannot_extend_the_expiry_of_its_token(self, cell: ServedCell) -> None:
        body = {"runner_type": "instance_type", "token_expires_at": "2099-01-31T08:00:00Z"}
        created = cell.api("POST", "/user/runners", body).json()
        renewed = cell.send("POST", "/api/v4/runners/reset_authentication_token", {"token": created["token"]}).json()
        assert renewed["token_expires_at"] == created["token_expires_at"]
        by_user = cell.api("POST", f"/runners/{created['id']}/reset_authentication_token").json()
        assert by_user["token_expires_at"] is None

    def test_an_expired_token_is_refused(self, tmp_path: Path) -> None:
        clock = LaterClock()
        with ServedCell(tmp_path / "timed", clock) as cell:
            assert cell.api("PUT", "/application/settings", {"runner_token_expiration_interval": 3600}).status == 200
            created = cell.api("POST", "/user/runners", {"runner_type": "instance_type"}).json()
            assert datetime.fromisoformat(created["token_expires_at"]) > datetime.now(UTC)
            runner = ScriptedRunner(cell, created["token"])
            assert runner.ask().status == 204
            clock.later = 3601
            assert runner.ask().status == 403
            for call in ("verify", "reset_authentication_token"):
                assert cell.send("POST", f"/api/v4/runners/{call}", {"token": runner.token}).status == 403
            renewed = cell.api("POST", f"/runners/{created['id']}/reset_authentication_token").json()
            assert ScriptedRunner(cell, renewed["token"]).ask().status == 204


class TestSettings:
    @pytest.mark.parametrize("field", ["description", "maintenance_note"])
    def test_the_refusal_of_a_too_long_text_names_the_field(self, cell: ServedCell, field: str) -> None:
        runner = a_runner(cell, "instance_type")
        answer = cell.api("PUT", f"/runners/{runner_id(runner)}", {field: "x" * 1025})
        assert (answer.status, list(answer.json()["message"])) == (400, [field])

    def test_changed_settings_apply_to_the_next_job(self, cell: ServedCell) -> None:
        cell.new_project("app", PIPELINE + "tagged: {tags: [gpu], script: [echo]}\n")
        runner = a_runner(cell, "instance_type", maintenance_note="in the cellar", maximum_timeout=900)
        path = f"/runners/{runner_id(runner)}"
        details = cell.api("GET", path).json()
        assert (details["maintenance_note"], details["maximum_timeout"]) == ("in the cellar", 900)
        assert runner.take()["runner_info"]["timeout"] == 900
        assert runner.ask().status == 204
        assert cell.api("PUT", path, {"tag_list": ["gpu"], "run_untagged": False, "maximum_timeout": 0}).status == 200
        assert cell.api("PUT", path, {"paused": True, "maintenance_note": "", "locked": True}).status == 200
        details = cell.api("GET", path).json()
        assert (details["paused"], details["locked"], details["run_untagged"]) == (True, True, False)
        assert (details["maintenance_note"], details["maximum_timeout"]) == ("", None)
        assert runner.ask().status == 204, "a paused runner gets 204, not 403"
        assert cell.api("PUT", path, {"paused": False}).status == 200
        assert runner.take()["runner_info"]["timeout"] == 3600
        cell.api("POST", "/projects/root%2Fapp/pipeline", {"ref": "main"})
        assert runner.take()["job_info"]["name"] == "tagged"
        assert runner.ask().status == 204
        refused: dict[str, Any] = {
            "maximum_timeout": 599,
            "tag_list": [],
            "access_level": "x",
            "description": "x" * 1025,
        }
        for wrong in ({name: value} for name, value in refused.items()):
            assert cell.api("PUT", path, wrong).status == 400, wrong

    def test_a_runner_is_online_then_offline_then_stale(self, tmp_path: Path) -> None:
        clock = LaterClock()
        with ServedCell(tmp_path / "timed", clock) as cell:
            created = cell.api("POST", "/user/runners", {"runner_type": "instance_type"}).json()
            runner, path = ScriptedRunner(cell, created["token"]), f"/runners/{created['id']}"
            assert cell.api("GET", path).json()["status"] == "never_contacted"
            assert runner.ask().status == 204
            for later, status in ((0, "online"), (7199, "online"), (7201, "offline"), (7 * 86400 + 1, "stale")):
                clock.later = later
                details = cell.api("GET", path).json()
                assert (details["status"], details["online"]) == (status, status == "online")
                [manager] = cell.api("GET", f"{path}/managers").json()
                assert (manager["system_id"], manager["status"]) == ("s_0123456789ab", status)
            assert runner.ask().status == 204
            assert cell.api("GET", path).json()["status"] == "online"

    def test_managers_are_added_and_removed_by_their_system_ids(self, cell: ServedCell) -> None:
        runner = a_runner(cell, "instance_type")
        path = f"/runners/{runner_id(runner)}"
        for system_id in ("s_000000000001", "r_000000000002", "s" * 100):
            assert runner.ask(system_id=system_id).status == 204
        for system_id in ("s_000000000001", "s" * 100):
            body = {"token": runner.token, "system_id": system_id}
            assert cell.send("DELETE", "/api/v4/runners/managers", body).status == 204
            assert cell.send("DELETE", "/api/v4/runners/managers", body).status == 404
        assert cell.send("DELETE", "/api/v4/runners/managers", {"token": runner.token}).status == 400
        system_ids = {manager["system_id"] for manager in cell.api("GET", f"{path}/managers").json()}
        assert system_ids == {"<legacy>", "r_000000000002"}
        assert cell.send("DELETE", "/api/v4/runners", {"token": runner.token}).status == 204
        assert cell.api("GET", path).status == 404
        assert runner.ask().status == 403

    def test_a_project_runner_is_removed_with_its_last_project(self, cell: ServedCell, places: dict[str, int]) -> None:
        runner = a_runner(cell, "project_type", project_id=places["shop"])
        number = runner_id(runner)
        assert cell.api("POST", f"/projects/{places['own']}/runners", {"runner_id": number}).status == 201
        assert cell.api("DELETE", f"/projects/{places['shop']}").status == 202
        assert [project["id"] for project in cell.api("GET", f"/runners/{number}").json()["projects"]] == [
            places["own"]
        ]
        assert cell.api("DELETE", f"/projects/{places['own']}").status == 202
        assert runner.ask().status == 403


def test_lists_and_filters(cell: ServedCell, places: dict[str, int]) -> None:
    tagged = a_runner(cell, "instance_type", tag_list=["linux", "arm"])
    group = runner_id(a_runner(cell, "group_type", group_id=places["acme"], paused=True))
    silent = cell.api("POST", "/user/runners", {"runner_type": "project_type", "project_id": places["saw"]}).json()[
        "id"
    ]
    alien = runner_id(a_runner(cell, "instance_type", organization_id=places["far"]))
    number = runner_id(tagged)
    client = gitlab.Gitlab(cell.url, private_token=cell.token)

    def ids(**filters: Any) -> set[int]:
        return {row.id for row in client.runners_all.list(get_all=True, **filters)}

    assert ids() == {number, group, silent, alien}
    assert ids(type="group_type") == {group}
    assert ids(paused=True) == {group}
    assert ids(status="never_contacted") == {silent}
    assert ids(status="online", tag_list=["linux"]) == {number}
    assert ids(status="stale") == set()
    project = client.projects.get(places["saw"])
    assert {row.id for row in project.runners.list(get_all=True)} == {number, group, silent}
    acme = client.groups.get(places["acme"])
    assert {row.id for row in acme.runners.list(get_all=True)} == {number, group}
    assert cell.api("GET", "/runners/all?status=odd").status == 400
    assert cell.api("GET", "/runners/all?type=odd").status == 400
    tagged.ask()
    managers = cell.api("GET", f"/runners/{number}/managers").json()
    assert {row["system_id"]: row["status"] for row in managers} == {"<legacy>": "online", "s_0123456789ab": "online"}


def test_the_jobs_of_a_runner(cell: ServedCell, places: dict[str, int]) -> None:
    runner = a_runner(cell, "project_type", project_id=places["shop"])
    number = runner_id(runner)
    assert cell.api("POST", f"/projects/{places['own']}/runners", {"runner_id": number}).status == 201
    assert run_all_jobs(runner) == ["own", "shop"]
    client = gitlab.Gitlab(cell.url, private_token=cell.token)
    jobs = client.runners.get(number).jobs.list(get_all=True)
    assert {job.status for job in jobs} == {"success"}
    assert len(jobs) == 2
    maintainer: Person = create_person(cell, "ada")
    add_member(cell, f"projects/{places['shop']}", maintainer, 40)
    seen = maintainer.api("GET", f"/runners/{number}/jobs").json()
    assert [row["pipeline"]["project_id"] for row in seen] == [places["shop"]]
    assert [row["id"] for row in maintainer.api("GET", f"/runners/{number}").json()["projects"]] == [places["shop"]]


def test_the_group_of_a_runner_is_shown_to_users_with_access_only(cell: ServedCell, places: dict[str, int]) -> None:
    a_runner(cell, "group_type", group_id=places["acme"])
    inside, outside = create_person(cell, "ada"), create_person(cell, "bob")
    add_member(cell, f"groups/{places['acme']}", inside, 40)
    add_member(cell, f"projects/{places['shop']}", outside, 40)
    for person, groups in ((inside, [places["acme"]]), (outside, [])):
        [row] = person.api("GET", f"/projects/{places['shop']}/runners?type=group_type").json()
        assert [group["id"] for group in row["groups"]] == groups
