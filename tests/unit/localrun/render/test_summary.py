import pytest
from tests.support.local_runs import MakeJob, MakeRun

from remuda.localrun.render.columns import width
from remuda.localrun.render.step_events import StepView
from remuda.localrun.render.summary import output_columns, summary_lines, times_lines
from remuda.localrun.view import RunView

NOW = 1_750_000_000.0
LONG = "integration: [postgresql, python3.12, on a large machine]"
CAUSE = "runner_system_failure, the machine " + "was lost and " * 12 + "did not come back"


@pytest.fixture
def wide_run(a_job: MakeJob, a_run: MakeRun) -> RunView:
    steps = tuple(
        StepView(name=f"step_with_a_name_{number}", status="success", started_at=NOW - 3, finished_at=NOW - 1)
        for number in range(5)
    )
    return a_run(
        a_job(LONG, "failed", steps=steps, failure_reason=CAUSE, waiting_seconds=61.0),
        a_job("構築", "success", steps=steps, waiting_seconds=0.1),
        a_job("deploy", "manual"),
        status="failed",
    )


def test_a_narrow_summary_is_a_table(a_job: MakeJob, a_run: MakeRun) -> None:
    view = a_run(a_job("lint", "failed", failure_reason="script_failure", exit_code=3), a_job("build", "success"))
    heading, *lines = summary_lines(view, 80)
    assert heading.text.index("status") == lines[0].position == lines[1].position
    assert [(line.status, line.text[line.position :].split()[0]) for line in lines] == [
        ("failed", "failed"),
        ("success", "success"),
    ]
    assert lines[0].text.endswith("script_failure, exit code 3")


@pytest.mark.parametrize("columns", [40, 60, 80, 81, 120])
def test_every_line_fits_and_explanations_are_complete(wide_run: RunView, columns: int) -> None:
    lines = summary_lines(wide_run, columns)
    assert max(width(line.text) for line in lines) <= columns
    assert all(width(line) <= columns for line in times_lines(wide_run, columns))
    below = " ".join(line.text.strip() for line in lines if line.text.startswith("    "))
    assert CAUSE in below
    assert "--manual 'deploy' starts it" in below


def test_a_long_name_keeps_its_end(wide_run: RunView) -> None:
    line = summary_lines(wide_run, 80)[1]
    assert line.text.startswith("integration: [")
    assert "machine]  failed" in line.text
    assert line.text[line.position :].startswith("failed")


def test_the_width_is_that_of_the_terminal_and_else_80(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "132")
    assert output_columns() == 132
    monkeypatch.setenv("COLUMNS", "7")
    assert output_columns() == 40
