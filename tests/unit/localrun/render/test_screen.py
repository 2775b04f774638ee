import io

import pytest
from rich.console import Console
from tests.support.local_runs import MakeJob, MakeRun

from remuda.localrun.render.live_tree import LiveScreen, row_text
from remuda.localrun.render.screen import PlainScreen, columns, event_line
from remuda.localrun.render.step_events import StepView
from remuda.localrun.render.tree_rows import Row
from remuda.localrun.report import Outcome
from remuda.localrun.view import Event, RunView

NOW = 1_750_000_000.0


@pytest.fixture
def failed_run(a_job: MakeJob, a_run: MakeRun) -> RunView:
    step = StepView(name="script", status="failure", started_at=NOW - 3, finished_at=NOW - 1, exit_code=3)
    return a_run(
        a_job("lint", "failed", id=4, steps=(step,), exit_code=3, failure_reason="script_failure", waiting_seconds=0.1),
        a_job("build", "success", id=5),
        status="failed",
    )


def test_an_event_is_one_line() -> None:
    event = Event(at=NOW, job="lint", status="failed", seconds=1.25, note="script_failure")
    line = event_line(event, 6)
    assert line[2] == line[5] == ":"
    assert line[8:] == "  lint    failed 1.2s (script_failure)"


def test_plain_output_prints_each_change_once_then_tails_and_summary(failed_run: RunView) -> None:
    out = io.StringIO()
    screen = PlainScreen(out)
    screen.show(failed_run)
    screen.show(failed_run)
    screen.finish(Outcome(view=failed_run, tails={4: ["\x1b[32;1m$ false\x1b[0;m"]}))
    text = out.getvalue()
    assert text.count("lint   running") == 1
    assert "lint   failed 2.0s (script_failure, exit code 3)" in text
    assert "end of the log of lint (job 4):\n  $ false\n" in text
    assert "pipeline failed" in text
    assert "where the time went: script 2.0s" in text


def test_the_summary_is_aligned(failed_run: RunView) -> None:
    heading, *lines = columns(failed_run)
    assert heading.index("status") == lines[0].index("failed") == lines[1].index("success")


def test_a_row_shows_its_depth_mark_and_time() -> None:
    row = Row(depth=1, status="success", name="build", seconds=1.5, note="fine")
    assert row_text(row, NOW).plain == "  ✔ build  1.5s  fine"
    assert row_text(row, NOW, ascii_only=True).plain == "  + build  1.5s  fine"


def test_the_spinner_turns_with_time() -> None:
    row = Row(depth=0, status="running", name="build")
    assert row_text(row, 0.0).plain != row_text(row, 0.15).plain


def test_a_failed_job_without_a_log_has_no_log_tail(failed_run: RunView) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, height=30, color_system=None, legacy_windows=False)
    with LiveScreen(console) as screen:
        screen.finish(Outcome(view=failed_run, tails={4: []}))
    assert "pipeline failed in" in out.getvalue()
    assert "end of the log" not in out.getvalue()


def test_a_terminal_gets_the_tree_and_then_the_summary(failed_run: RunView) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, height=30, color_system=None, legacy_windows=False)
    with LiveScreen(console) as screen:
        screen.show(failed_run)
        screen.finish(Outcome(view=failed_run, tails={4: ["boom"]}))
    text = out.getvalue()
    assert "✘ lint" in text
    assert "✔ build" in text
    assert text.index("✘ lint") < text.index("end of the log of lint (job 4)") < text.index("pipeline failed in")
