"""Schedules with python-gitlab: created, changed, run by hand and by the clock of a real cell."""

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
def project(cell: ServedCell, client: gitlab.Gitlab) -> Project:
    return client.projects.get(cell.new_project("app", PIPELINE))


def create_schedule(project: Project, **changes: Any) -> Any:
    return project.pipelineschedules.create({"description": "Nightly", "ref": "main", "cron": "0 4 * * *", **changes})


def test_create_change_and_delete(project: Project) -> None:
    schedule = create_schedule(project, cron_timezone="Europe/Berlin")
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
    other = create_schedule(project, description="Resting", active=False)
    assert [row.id for row in project.pipelineschedules.list(get_all=True)] == [schedule.id, other.id]
    assert [row.id for row in project.pipelineschedules.list(get_all=True, scope="inactive")] == [other.id]
    schedule.delete()
    with pytest.raises(gitlab.GitlabGetError, match="404 Pipeline Schedule Not Found"):
        project.pipelineschedules.get(schedule.id)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cron": "every day"}, "cron"),
        ({"cron": "* * * * * *"}, "cron"),
        ({"cron_timezone": "Mars/Olympus"}, "cron_timezone"),
        ({"description": ""}, "description"),
        ({"ref": "--all"}, "ref"),
        ({"active": "perhaps"}, "active"),
    ],
)
def test_invalid_values(project: Project, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(gitlab.GitlabCreateError, match=field) as refused:
        create_schedule(project, **changes)
    assert refused.value.response_code == 400
    schedule = create_schedule(project)
    with pytest.raises(gitlab.GitlabUpdateError, match=field):
        project.pipelineschedules.update(schedule.id, changes)
    assert project.pipelineschedules.get(schedule.id).cron == "0 4 * * *"


def test_variables(project: Project) -> None:
    schedule = create_schedule(project)
    variable = schedule.variables.create({"key": "COLOUR", "value": "red"})
    schedule.variables.create({"key": "SHAPE", "value": "round", "variable_type": "file"})
    with pytest.raises(gitlab.GitlabCreateError, match="already been taken"):
        schedule.variables.create({"key": "COLOUR", "value": "blue"})
    with pytest.raises(gitlab.GitlabCreateError, match="letters, digits"):
        schedule.variables.create({"key": "no-name", "value": "x"})
    variable.value = "green"
    variable.save()
    seen = project.pipelineschedules.get(schedule.id).variables
    assert [(row["key"], row["value"], row["variable_type"]) for row in schedule_variables(project, schedule.id)] == [
        ("COLOUR", "green", "env_var"),
        ("SHAPE", "round", "file"),
    ]
    seen.delete("SHAPE")
    with pytest.raises(gitlab.GitlabDeleteError):
        seen.delete("SHAPE")
    assert [row["key"] for row in schedule_variables(project, schedule.id)] == ["COLOUR"]


def schedule_variables(project: Project, schedule_id: int) -> list[dict[str, str]]:
    variables: list[dict[str, str]] = project.pipelineschedules.get(schedule_id).attributes["variables"]
    return variables


def test_run_by_hand(project: Project, runner: ScriptedRunner) -> None:
    schedule = create_schedule(project, active=False)
    schedule.variables.create({"key": "COLOUR", "value": "red"})
    schedule.play()
    [pipeline] = schedule.pipelines.list(get_all=True)
    assert (pipeline.source, pipeline.ref) == ("schedule", "main")
    again = project.pipelineschedules.get(schedule.id)
    assert again.last_pipeline["id"] == pipeline.id
    assert again.next_run_at == schedule.next_run_at
    job = runner.take()
    sent = {row["key"]: row["value"] for row in job["variables"]}
    assert (sent["COLOUR"], sent["CI_PIPELINE_SOURCE"]) == ("red", "schedule")
    assert sent["CI_PIPELINE_SCHEDULE_DESCRIPTION"] == "Nightly"
    assert [row.id for row in project.pipelines.list(get_all=True, source="schedule")] == [pipeline.id]


def test_a_run_by_hand_of_a_missing_ref(project: Project) -> None:
    with pytest.raises(gitlab.GitlabPipelinePlayError, match="no branch or tag 'gone'"):
        create_schedule(project, ref="gone").play()


class TomorrowClock(SystemClock):
    """A clock that is one day ahead."""

    def now(self) -> float:
        return super().now() + 86400

    def wall(self) -> float:
        return super().wall() + 86400


def test_run_by_the_clock(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell") as cell:
        project = gitlab.Gitlab(cell.url, private_token=cell.token).projects.get(cell.new_project("app", PIPELINE))
        schedule, failing = (
            create_schedule(project, cron="@hourly"),
            create_schedule(project, cron="@hourly", ref="gone"),
        )
    for _ in range(2):
        with ServedCell(tmp_path / "cell", TomorrowClock()) as cell:
            project = gitlab.Gitlab(cell.url, private_token=cell.token).projects.get("root/app")
            [pipeline] = cell.until_pipelines(1)
            assert pipeline["source"] == "schedule"
            wait_until(lambda: bool(project.pipelineschedules.get(failing.id).last_error), "the error is stored")  # noqa: B023
            assert "no branch or tag 'gone'" in project.pipelineschedules.get(failing.id).last_error
            assert project.pipelineschedules.get(schedule.id).last_pipeline["id"] == pipeline["id"]
