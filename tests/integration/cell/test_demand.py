"""The demand endpoint: how many jobs wait and run by tags, for administrators and for a single runner."""

from typing import Any

import pytest
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

FILE = """
stages: [build, deploy]
build:
  stage: build
  parallel: 4
  script: make
gpu:
  stage: build
  tags: [gpu]
  script: make gpu
deploy:
  stage: deploy
  script: make deploy
"""


@pytest.fixture(autouse=True)
def _pipeline(cell: ServedCell) -> None:
    cell.new_project("app", FILE)
    cell.until_pipelines(1)


def demand(cell: ServedCell, **headers: str) -> Answer:
    return cell.send("GET", "/api/remuda/v1/demand?system_id=s_0123456789ab", **headers)


def keys_by_tags(answer: Answer) -> dict[tuple[str, ...], dict[str, Any]]:
    assert answer.status == 200, answer
    return {tuple(key["tags"]): key for key in answer.json()["keys"]}


def test_an_administrator_sees_all(cell: ServedCell, runner: ScriptedRunner) -> None:
    job = runner.take(info={"config": {"capacity": 8}})
    second = cell.new_runner()
    assert second.take(system_id="s_another")["id"] != job["id"]
    demand_by_tags = keys_by_tags(demand(cell, PRIVATE_TOKEN=cell.token))
    plain = demand_by_tags[()]
    assert (plain["running"], plain["ready"], plain["created"]) == (2, 2, {"next": 1, "later": 0, "held": 0})
    assert [share["running"] for share in plain["shares"]] == [1, 1]
    assert sum(share["ready"] for share in plain["shares"]) == 2
    assert demand_by_tags["gpu",]["unserved"] == 1
    assert demand_by_tags["gpu",]["shares"] == []


def test_a_runner_sees_only_its_own_demand(cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_runner(tag_list=["gpu"], run_untagged=False).ask(system_id="s_another")
    demand_by_tags = keys_by_tags(demand(cell, RUNNER_TOKEN=runner.token))
    assert set(demand_by_tags) == {()}
    [share] = demand_by_tags[()]["shares"]
    assert (share["system_id"], share["ready"]) == ("s_0123456789ab", 4)


def test_other_callers_are_refused(cell: ServedCell) -> None:
    assert demand(cell).status == 401
    assert demand(cell, PRIVATE_TOKEN="glpat-wrong").status == 401
    assert demand(cell, RUNNER_TOKEN="glrt-wrong").status == 403
