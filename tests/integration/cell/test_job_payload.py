"""The job payload of a pipeline file that uses most keywords of a job."""

import json

from tests.support.cells.served_cell import ScriptedRunner, ServedCell

PIPELINE = """
variables:
  GLOBAL: file
  PLAIN: {value: '$GLOBAL', expand: false}
workflow:
  rules: [{if: '$CI_PIPELINE_SOURCE == "api"', variables: {GLOBAL: workflow}}, {when: always}]
everything:
  image: {name: 'ruby:3', entrypoint: [''], docker: {platform: linux/arm64}}
  services: [{name: 'postgres:16', alias: db, variables: {POSTGRES_DB: test}}]
  before_script: [echo before]
  script: [echo script]
  after_script: [echo after]
  hooks: {pre_get_sources_script: [date]}
  cache: [{key: gems, paths: [vendor], fallback_keys: [main], unprotect: true}, {key: other, paths: [x]}]
  artifacts: {paths: [out], reports: {junit: out.xml}}
  variables: {JOB: job, GIT_DEPTH: 3}
  rules: [{when: manual, variables: {RULE: rule}}]
  secrets: {PASSWORD: {vault: production/db/password@ops, token: $ID}}
  id_tokens: {ID: {aud: https://vault.example}}
steps:
  run: [{name: hello, script: echo hi}]
"""


def test_everything(cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("app", PIPELINE)
    cell.api("POST", f"/projects/{project}/variables", {"key": "VAULT_SERVER_URL", "value": "https://vault.example"})
    steps = runner.take()
    runner.put(steps, "success")
    variables = [{"key": "GIVEN", "value": "x"}, {"key": "CONFIG", "value": "y", "variable_type": "file"}]
    started = cell.api("POST", f"/projects/{project}/pipeline", {"ref": "main", "variables": variables})
    jobs = cell.api("GET", f"/projects/{project}/pipelines/{started.json()['id']}/jobs").json()
    manual = next(job["id"] for job in jobs if job["name"] == "everything")
    body = {"job_variables_attributes": [{"key": "GIVEN", "value": "played"}]}
    assert cell.api("POST", f"/projects/{project}/jobs/{manual}/play", body).status == 200
    taken = {job["job_info"]["name"]: job for job in (runner.take(), runner.take())}
    job = taken["everything"]

    assert json.loads(steps["run"]) == [{"name": "hello", "script": "echo hi"}]
    assert (steps["steps"], "run" in job) == ([], False)
    assert job["image"] == {
        "name": "ruby:3",
        "entrypoint": [""],
        "executor_opts": {"docker": {"platform": "linux/arm64"}},
    }
    assert job["services"] == [
        {"name": "postgres:16", "alias": "db", "variables": [{"key": "POSTGRES_DB", "value": "test"}]}
    ]
    assert [(step["name"], step["script"]) for step in job["steps"]] == [
        ("script", ["echo before", "echo script"]),
        ("after_script", ["echo after"]),
    ]
    assert job["hooks"] == [{"name": "pre_get_sources_script", "script": ["date"]}]
    assert [(cache["key"], cache["fallback_keys"]) for cache in job["cache"]] == [
        ("gems-non_protected", ["main-non_protected"]),
        ("other-protected", []),
    ]
    assert all("unprotect" not in cache for cache in job["cache"])
    assert [upload["artifact_type"] for upload in job["artifacts"]] == ["archive", "junit"]
    assert job["git_info"]["depth"] == 3
    password = job["secrets"]["PASSWORD"]
    assert (password["file"], password["vault"]["field"]) == (True, "password")
    assert password["vault"]["server"]["url"] == "https://vault.example"
    assert password["vault"]["server"]["auth"]["data"] == {"jwt": "$ID"}
    sent = {variable["key"]: variable for variable in job["variables"]}
    expected = {
        "GLOBAL": "workflow",
        "PLAIN": "$GLOBAL",
        "JOB": "job",
        "RULE": "rule",
        "GIVEN": "played",
        "CONFIG": "y",
    }
    assert {key: sent[key]["value"] for key in expected} == expected
    assert (sent["PLAIN"]["raw"], sent["JOB"]["raw"], sent["CONFIG"]["file"]) == (True, False, True)
    assert sent["ID"]["masked"]
