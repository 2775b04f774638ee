"""`remuda runner` against a cell in its own process."""

import json
from typing import Any

from tests.support.cells.cell_process import CellProcess


def create(remuda: Any, *options: str) -> Any:
    return json.loads(remuda("runner", "create", *options, "-o", "json").out)


def test_create_prints_the_token_and_the_next_command(remuda: Any, cell: CellProcess) -> None:
    result = remuda("runner", "create", "--description", "builder", "--tags", "linux, docker")
    assert result.out.startswith("runner ")
    token = result.out.splitlines()[0].rpartition(" ")[2]
    assert f"remuda manager register --url {cell.url} --token {token}" in result.out
    assert cell.send("POST", "/api/v4/runners/verify", {"token": token}).status == 200
    listed = json.loads(remuda("runner", "list", "-o", "json").out)
    [mine] = [runner for runner in listed if runner["description"] == "builder"]
    assert (mine["tag_list"], mine["run_untagged"]) == (["linux", "docker"], False)


def test_create_for_a_project(remuda: Any, shop: Any) -> None:
    project = shop()
    number = create(remuda, "-p", project)["id"]
    listed = json.loads(remuda("runner", "list", "-o", "json").out)
    [mine] = [runner for runner in listed if runner["id"] == number]
    assert (mine["runner_type"], mine["projects"][0]["path_with_namespace"]) == ("project_type", project)
    missing = remuda("runner", "create", "-g", "nowhere")
    assert (missing.code, missing.err.startswith("there is no group nowhere")) == (2, True)


def test_pause_resume_and_tags(remuda: Any) -> None:
    number = create(remuda)["id"]
    assert remuda("runner", "pause", number).out.startswith(f"runner {number} is paused")
    assert remuda("runner", "resume", number).out == f"runner {number} takes jobs\n"
    assert remuda("runner", "tags", number).out == f"runner {number} has no tags; it takes also jobs without tags\n"
    assert remuda("runner", "tags", number, "linux", "docker").out.startswith(
        f"runner {number} has 2 tags: linux, docker"
    )
    changed = remuda("runner", "tags", number, "--add", "gpu", "--remove", "docker", "--no-untagged")
    assert changed.out == f"runner {number} has 2 tags: linux, gpu; it takes no jobs without tags\n"
    wrong = remuda("runner", "tags", number, "--remove", "windows")
    assert (wrong.code, "its tags: linux, gpu" in wrong.err) == (2, True)
    none = remuda("runner", "tags", number, "--clear")
    assert (none.code, none.err) == (2, "tags list can not be empty when runner is not allowed to pick untagged jobs")
    assert remuda("runner", "tags", number, "--clear", "--untagged").code == 0


def test_a_blocked_runner_is_listed_as_such(remuda: Any, cell: CellProcess) -> None:
    created = create(remuda, "-d", "engineless")
    report = {"token": created["token"], "system_id": "s_1", "problem": "no engine answers"}
    assert cell.send("POST", "/api/remuda/v1/runners/problem", report).status == 204
    heading, *lines = remuda("runner", "list").out.splitlines()
    assert heading.split()[-1] == "problem"
    [line] = [line for line in lines if "engineless" in line]
    assert "online, blocked" in line
    assert line.endswith("  no engine answers")
    [listed] = [each for each in json.loads(remuda("runner", "list", "-o", "json").out) if each["id"] == created["id"]]
    assert (listed["status"], listed["problem"]) == ("online", "no engine answers")
    remuda("runner", "remove", created["id"], "-y")
    assert "problem" not in remuda("runner", "list").out


def test_rotate_and_remove_ask_first(remuda: Any, cell: CellProcess) -> None:
    created = create(remuda, "-d", "old")
    number = created["id"]
    assert remuda("runner", "rotate", number).code == 2
    assert remuda("runner", "remove", number).code == 2
    assert cell.send("POST", "/api/v4/runners/verify", {"token": created["token"]}).status == 200
    new = remuda("runner", "rotate", number, "--yes").out.rpartition(" ")[2].strip()
    assert cell.send("POST", "/api/v4/runners/verify", {"token": created["token"]}).status == 403
    assert cell.send("POST", "/api/v4/runners/verify", {"token": new}).status == 200
    assert remuda("runner", "remove", number, "-y").out == f"runner {number} (old) is removed\n"
    gone = remuda("runner", "pause", number)
    assert gone.err.startswith(f"there is no runner {number} on the cell")
