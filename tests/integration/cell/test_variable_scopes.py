"""Variables of the cell, of groups and of projects: which value a job gets, and what the API accepts."""

import gitlab
import pytest
from tests.support.cells.people import create_group, create_group_project
from tests.support.cells.served_cell import ServedCell, commit_file

PIPELINE = """
plain: {script: [echo]}
review:
  script: [echo]
  environment: review/$CI_COMMIT_REF_SLUG
live:
  script: [echo]
  environment: production
guarded:
  script: [echo]
  rules:
    - if: $FROM == "nowhere"
"""


def test_the_nearest_and_most_specific_value_wins(cell: ServedCell, client: gitlab.Gitlab) -> None:
    acme = create_group(cell, "acme")
    tools = create_group(cell, "tools", parent_id=acme)
    project_id = create_group_project(cell, tools, "saw")
    project, outer, near = client.projects.get(project_id), client.groups.get(acme), client.groups.get(tools)
    for name in ("FROM", "CELL"):
        client.variables.create({"key": name, "value": "cell"})
    for name in ("FROM", "OUTER"):
        outer.variables.create({"key": name, "value": "outer"})
    for name in ("FROM", "NEAR"):
        near.variables.create({"key": name, "value": "near"})
    near.variables.create({"key": "NEAR", "value": "near in production", "environment_scope": "production"})
    project.variables.create({"key": "OWN", "value": "own"})
    project.variables.create({"key": "OWN", "value": "own in reviews", "environment_scope": "review/*"})
    project.variables.create({"key": "OWN", "value": "own in main's review", "environment_scope": "review/main"})
    project.variables.create({"key": "LIVE", "value": "only there", "environment_scope": "production"})
    commit_file(cell, project_id, PIPELINE)
    runner = cell.new_runner()
    seen = {}
    while (answer := runner.ask()).status == 201:
        job = answer.json()
        values = {variable["key"]: variable["value"] for variable in job["variables"]}
        names = ("FROM", "CELL", "OUTER", "NEAR", "OWN", "LIVE")
        seen[job["job_info"]["name"]] = [values.get(name) for name in names]
        runner.put(job, "success")
    shared = ["near", "cell", "outer"]
    assert seen == {
        "plain": [*shared, "near", "own", None],
        "review": [*shared, "near", "own in main's review", None],
        "live": [*shared, "near in production", "own", "only there"],
    }


def test_variables_are_identified_by_key_and_scope(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("app"))
    for scope in ("*", "prod", "review/*"):
        project.variables.create({"key": "K", "value": scope, "environment_scope": scope})
    with pytest.raises(gitlab.GitlabCreateError):
        project.variables.create({"key": "K", "value": "again", "environment_scope": "prod"})
    with pytest.raises(gitlab.GitlabGetError) as several:
        project.variables.get("K")
    assert several.value.response_code == 409
    assert project.variables.get("K", filter={"environment_scope": "prod"}).value == "prod"
    project.variables.update("K", {"value": "new", "filter": {"environment_scope": "prod"}})
    assert project.variables.get("K", filter={"environment_scope": "prod"}).value == "new"
    project.variables.update("K", {"environment_scope": "live", "filter": {"environment_scope": "prod"}})
    assert {variable.environment_scope for variable in project.variables.list(get_all=True)} == {
        "*",
        "live",
        "review/*",
    }
    project.variables.delete("K", filter={"environment_scope": "review/*"})
    assert {variable.environment_scope for variable in project.variables.list(get_all=True)} == {"*", "live"}
    for scope in ("", "what?", "x" * 256):
        body = {"key": "S", "value": "v", "environment_scope": scope}
        assert cell.api("POST", f"/projects/{project.id}/variables", body).status == 400, scope


def test_a_hidden_variable_is_never_shown(cell: ServedCell) -> None:
    project = cell.new_project("app", "job: {script: [echo]}\n")
    root = f"/projects/{project}/variables"
    created = cell.api("POST", root, {"key": "K", "value": "0123456789", "masked_and_hidden": True})
    assert created.status == 201
    assert (created.json()["value"], created.json()["masked"], created.json()["hidden"]) == (None, True, True)
    assert cell.api("GET", f"{root}/K").json()["value"] is None
    assert cell.api("PUT", f"{root}/K", {"masked": False}).status == 400
    assert cell.api("POST", root, {"key": "L", "value": "short", "masked_and_hidden": True}).status == 400
    assert cell.api("PUT", f"{root}/K", {"value": "9876543210"}).status == 200
    job = cell.new_runner().take()
    [sent] = [variable for variable in job["variables"] if variable["key"] == "K"]
    assert (sent["value"], sent["masked"]) == ("9876543210", True)


def test_variables_of_the_cell_have_no_scope(cell: ServedCell) -> None:
    body = {"key": "K", "value": "v", "environment_scope": "prod"}
    assert cell.api("POST", "/admin/ci/variables", body).status == 400
    assert cell.api("POST", "/admin/ci/variables", {"key": "K", "value": "v"}).status == 201
    assert cell.api("PUT", "/admin/ci/variables/K", {"environment_scope": "prod"}).status == 400
    assert cell.api("PUT", "/admin/ci/variables/K", {"value": "w"}).json()["value"] == "w"
    assert cell.api("DELETE", "/admin/ci/variables/K").status == 204
    assert cell.api("GET", "/admin/ci/variables").json() == []
