"""Schedules through python-gitlab: made, changed, run by hand and by the clock of a real cell."""

from datetime import datetime
from pathlib import Path
from typing import Any

import gitlab
import pytest
from gitlab.v4.objects import Project
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.lib.clock import SystemClock
from remuda.testing.waiting import wait_until

PIPELINE = """
nightly:
  script: [env]
  rules:
    - if: $CI_PIPELINE_SOURCE == "schedule"
"""


@pytest.fixture
def project(cell: ServedCell) -> Project:
    client = gitlab.Gitlab(cell.url, private_token=cell.token)
    return client.projects.get(cell.new_project("app", PIPELINE))


def made(project: Project, **given: Any) -> Any:
    return project.pipelineschedules.create({"description": "Nightly", "ref": "main", "cron": "0 4 * * *", **given})


def test_made_changed_and_removed(project: Project) -> None:
    schedule = made(project, cron_timezone="Europe/Berlin")
    assert (schedule.cron, schedule.cron_timezone, schedule.active) == ("0 4 * * *", "Europe/Berlin", True)
    assert schedule.owner["username"] == "root"
    before = datetime.fromisoformat(schedule.next_run_at)
    assert before.minute == 0
    schedule.cron = "30 4 * * *"
    schedule.description = "Later"
    schedule.save()
    schedule = project.pipelineschedules.get(schedule.id)
    assert (schedule.description, datetime.fromisoformat(schedule.next_run_at).minute) == ("Later", 30)
    schedule.take_ownership()
    other = made(project, description="Resting", active=False)
    assert [one.id for one in project.pipelineschedules.list(get_all=True)] == [schedule.id, other.id]
    assert [one.id for one in project.pipelineschedules.list(get_all=True, scope="inactive")] == [other.id]
    schedule.delete()
    with pytest.raises(gitlab.GitlabGetError, match="404 Pipeline Schedule Not Found"):
        project.pipelineschedules.get(schedule.id)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"cron": "every day"}, "cron"),
        ({"cron": "* * * * * *"}, "cron"),
        ({"cron_timezone": "Mars/Olympus"}, "cron_timezone"),
        ({"description": ""}, "description"),
        ({"ref": "--all"}, "ref"),
        ({"active": "perhaps"}, "active"),
    ],
)
def test_what_cannot_be(project: Project, given: dict[str, Any], named: str) -> None:
    with pytest.raises(gitlab.GitlabCreateError, match=named) as refused:
        made(project, **given)
    assert refused.value.response_code == 400
    schedule = made(project)
    with pytest.raises(gitlab.GitlabUpdateError, match=named):
        project.pipelineschedules.update(schedule.id, given)
    assert project.pipelineschedules.get(schedule.id).cron == "0 4 * * *"


def test_variables(project: Project) -> None:
    schedule = made(project)
    variable = schedule.variables.create({"key": "COLOUR", "value": "red"})
    schedule.variables.create({"key": "SHAPE", "value": "round", "variable_type": "file"})
    with pytest.raises(gitlab.GitlabCreateError, match="already been taken"):
        schedule.variables.create({"key": "COLOUR", "value": "blue"})
    with pytest.raises(gitlab.GitlabCreateError, match="letters, digits"):
        schedule.variables.create({"key": "no-name", "value": "x"})
    variable.value = "green"
    variable.save()
    seen = project.pipelineschedules.get(schedule.id).variables
    assert [(one["key"], one["value"], one["variable_type"]) for one in schedule_variables(project, schedule.id)] == [
        ("COLOUR", "green", "env_var"),
        ("SHAPE", "round", "file"),
    ]
    seen.delete("SHAPE")
    with pytest.raises(gitlab.GitlabDeleteError):
        seen.delete("SHAPE")
    assert [one["key"] for one in schedule_variables(project, schedule.id)] == ["COLOUR"]


def schedule_variables(project: Project, schedule_id: int) -> list[dict[str, str]]:
    found: list[dict[str, str]] = project.pipelineschedules.get(schedule_id).attributes["variables"]
    return found


def test_run_by_hand(project: Project, runner: ScriptedRunner) -> None:
    schedule = made(project, active=False)
    schedule.variables.create({"key": "COLOUR", "value": "red"})
    schedule.play()
    [pipeline] = schedule.pipelines.list(get_all=True)
    assert (pipeline.source, pipeline.ref) == ("schedule", "main")
    again = project.pipelineschedules.get(schedule.id)
    assert again.last_pipeline["id"] == pipeline.id
    assert again.next_run_at == schedule.next_run_at
    job = runner.take()
    sent = {one["key"]: one["value"] for one in job["variables"]}
    assert (sent["COLOUR"], sent["CI_PIPELINE_SOURCE"]) == ("red", "schedule")
    assert sent["CI_PIPELINE_SCHEDULE_DESCRIPTION"] == "Nightly"
    assert [one.id for one in project.pipelines.list(get_all=True, source="schedule")] == [pipeline.id]


def test_a_run_by_hand_that_has_nothing_to_run(project: Project) -> None:
    with pytest.raises(gitlab.GitlabPipelinePlayError, match="no branch or tag 'gone'"):
        made(project, ref="gone").play()


class Tomorrow(SystemClock):
    """The same time a day later."""

    def now(self) -> float:
        return super().now() + 86400

    def wall(self) -> float:
        return super().wall() + 86400


def test_run_by_the_clock(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell") as cell:
        project = gitlab.Gitlab(cell.url, private_token=cell.token).projects.get(cell.new_project("app", PIPELINE))
        schedule, lost = made(project, cron="@hourly"), made(project, cron="@hourly", ref="gone")
    for _ in range(2):
        with ServedCell(tmp_path / "cell", Tomorrow()) as cell:
            project = gitlab.Gitlab(cell.url, private_token=cell.token).projects.get("root/app")
            [pipeline] = cell.until_pipelines(1)
            assert pipeline["source"] == "schedule"
            wait_until(lambda: bool(project.pipelineschedules.get(lost.id).last_error), "the reason")  # noqa: B023
            assert "no branch or tag 'gone'" in project.pipelineschedules.get(lost.id).last_error
            assert project.pipelineschedules.get(schedule.id).last_pipeline["id"] == pipeline["id"]
