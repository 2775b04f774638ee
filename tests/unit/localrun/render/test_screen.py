import io
from typing import Any

import pytest
from rich.console import Console
from tests.support.local_runs import MakeJob, MakeRun

from remuda.localrun.render.live_tree import LiveScreen, row_text
from remuda.localrun.render.screen import PlainScreen, event_line, screen_for
from remuda.localrun.render.step_events import StepView
from remuda.localrun.render.tree_rows import Row, rows
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


@pytest.fixture
def running(a_job: MakeJob, a_run: MakeRun) -> RunView:
    return a_run(a_job("build", "running", id=5), a_job("unit tests", "running", id=6), status="running")


def test_lines_of_logs_stand_between_start_and_end_with_the_name_of_their_job(
    running: RunView, failed_run: RunView
) -> None:
    out = io.StringIO()
    screen = PlainScreen(out, streams=True)
    screen.show(running, {5: ["one", "\x1b[31mtwo\x1b[0m", ""]})
    screen.show(failed_run, {5: ["three"]})
    shown = [line.partition("  ")[2] if line[2:3] == ":" else line for line in out.getvalue().splitlines()]
    assert shown == [
        "build       running",
        "unit tests  running",
        "build      | one",
        "build      | two",
        "build      |",
        "lint   running",
        "build | three",
        "lint   failed 2.0s (script_failure, exit code 3)",
        "build  success 2.0s",
    ]


def test_an_attempt_that_was_retried_keeps_its_name_and_ends_before_the_next(a_job: MakeJob, a_run: MakeRun) -> None:
    out = io.StringIO()
    screen = PlainScreen(out, streams=True)
    first, second = (a_run(a_job("flaky", "running", id=number), a_job("測試", "created", id=2)) for number in (1, 5))
    screen.show(first, {1: ["one"]})
    screen.show(second, {5: ["three"], 1: ["two"]})
    screen.show(second, {1: ["late"]})
    shown = [line.partition("  ")[2] if line[2:3] == ":" else line for line in out.getvalue().splitlines()]
    assert shown == [
        "flaky  running",
        "flaky | one",
        "flaky | two",
        "flaky  retrying (as job 5)",
        "flaky  running",
        "flaky | three",
        "flaky | late",
    ]


def test_events_are_aligned_by_the_width_of_names() -> None:
    lines = [event_line(Event(at=NOW, job=name, status="running"), 6) for name in ("測試", "lint")]
    assert [line[8:] for line in lines] == ["  測試    running", "  lint    running"]


def test_names_have_different_colours_and_lines_keep_theirs(running: RunView) -> None:
    out = io.StringIO()
    screen = PlainScreen(out, streams=True, has_colours=True)
    screen.show(running, {5: ["one"], 6: ["\x1b[31mtwo"]})
    screen.show(running, {5: ["three"]})
    assert out.getvalue().splitlines()[2:] == [
        "\x1b[36mbuild      | \x1b[0mone",
        "\x1b[33munit tests | \x1b[0m\x1b[31mtwo\x1b[0m",
        "\x1b[36mbuild      | \x1b[0mthree",
    ]


def test_the_log_of_the_only_job_has_no_name_and_is_not_repeated(a_job: MakeJob, a_run: MakeRun) -> None:
    job = a_job("only", "failed", id=4, exit_code=1)
    for has_whole_logs, count in ((False, 1), (True, 2)):
        out = io.StringIO()
        screen = PlainScreen(out, streams=True, has_one_job=True)
        view = a_run(job, status="failed")
        screen.show(view, {4: ["boom"]})
        screen.finish(Outcome(view=view, tails={4: ["boom"]}, has_whole_logs=has_whole_logs))
        assert "\nboom\n" in out.getvalue()
        assert out.getvalue().count("boom") == count


def test_logs_that_were_streamed_are_not_repeated_at_the_end(a_job: MakeJob, a_run: MakeRun) -> None:
    shown = a_job("lint", "failed", id=4, exit_code=1, failure_reason="script_failure")
    # No line of this one came before the end.
    other = a_job("unit", "failed", id=5, failure_reason="runner_configuration_error")
    view = a_run(shown, other, status="failed")
    for has_whole_logs, count in ((False, 1), (True, 2)):
        out = io.StringIO()
        screen = PlainScreen(out, streams=True)
        screen.show(view, {4: ["boom"]})
        screen.finish(Outcome(view=view, tails={4: ["boom"], 5: ["no engine"]}, has_whole_logs=has_whole_logs))
        text = out.getvalue()
        assert (text.count("boom"), text.count("no engine")) == (count, 1)
        assert ("\nlint (job 4) failed: script_failure, exit code 1; its log is above\n" in text) != has_whole_logs


@pytest.mark.parametrize(
    ("is_terminal", "environ", "options", "expected"),
    [
        (True, {"TERM": "xterm"}, {}, "tree"),
        (True, {"TERM": "xterm"}, {"follows": True}, "colours"),
        (True, {"TERM": "xterm"}, {"has_one_job": True}, "colours"),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, {"follows": True}, "lines"),
        (True, {"TERM": "dumb"}, {}, "lines"),
        (True, {}, {}, "lines"),
        (False, {"TERM": "xterm"}, {}, "lines"),
        (True, {"TERM": "xterm"}, {"output": "json"}, "events"),
        (False, {}, {"output": "json", "follows": True}, "lines"),
    ],
)
def test_the_terminal_and_the_options_decide_about_the_screen(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, environ: dict[str, str], options: dict[str, Any], expected: str
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    chosen: dict[str, Any] = {"output": "text", "follows": False, "has_one_job": False} | options
    screen = screen_for(**chosen, environ=environ)
    if expected == "tree":
        assert isinstance(screen, LiveScreen)
        return
    assert isinstance(screen, PlainScreen)
    assert (screen.streams, screen.has_colours) == (expected != "events", expected == "colours")


def test_a_row_shows_the_last_line_of_the_log(a_job: MakeJob, a_run: MakeRun) -> None:
    log = ("configuring", "\x1b[31mcompiling\x1b[0m")
    view = a_run(a_job("build", "running", last_lines=log), a_job("lint", "running"), status="running")
    row = rows(view, 20)[1]
    assert row_text(row, NOW).plain.endswith("build  3.0s  compiling")


def test_a_line_of_the_log_keeps_its_colours() -> None:
    text = row_text(Row(depth=2, status="", name="\x1b[31mcompiling\x1b[0m now", kind="log"), NOW)
    assert text.plain == "    compiling now"
    assert [str(span.style) for span in text.spans] == ["color(1)"]


def test_an_ignored_image_looks_like_a_warning(a_job: MakeJob, a_run: MakeRun) -> None:
    view = a_run(a_job("build", "success", warnings=("image python:3.12 ignored",), coverage=50.0))
    text = row_text(rows(view, 20)[1], NOW)
    [span] = [span for span in text.spans if span.style == "yellow"]
    assert text.plain[span.start : span.end] == "image python:3.12 ignored"
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system="standard", legacy_windows=False)
    with LiveScreen(console) as screen:
        screen.finish(Outcome(view=view))
    assert "\x1b[33mimage python:3.12 ignored\x1b[0m" in out.getvalue()


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
