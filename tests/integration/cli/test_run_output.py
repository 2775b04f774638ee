"""What `remuda run` shows while jobs run: on a terminal, in a pipe, and with `--follow`."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.conftest import World
from tests.support.user_terminal import UserTerminal

MakePipeline = Callable[[str], Path]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def two_jobs(world: World) -> str:
    """Two jobs that end when the test makes a file."""
    wait = f"until test -e {world.folder}/go; do sleep 0.1; done"
    return f"""
variables: {{WHO: first, COLOUR: red}}
first: {{script: ['echo "$WHO begins"; {wait}', 'echo "$WHO ends"']}}
second: {{script: ['printf "\\033[31m$COLOUR\\033[0m\\n"; {wait}']}}
"""


@pytest.fixture
def on_terminal(world: World) -> Iterator[Callable[..., UserTerminal]]:
    terminals = []

    def start(*words: str | Path, term: str = "xterm", columns: int = 90, **variables: str) -> UserTerminal:
        env = world.environment(**variables)
        terminals.append(UserTerminal(*map(str, words), env=env, size=(columns, 33), term=term))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


def read_all(terminal: UserTerminal, *texts: str) -> str:
    """Read until all texts were shown, in any order."""
    shown = ""
    for text in texts:
        if text not in shown:
            shown += terminal.read_until(text)
    return shown


def finish(terminal: UserTerminal, world: World) -> str:
    """Let the jobs end, and return the rest of the output."""
    (world.folder / "go").touch()
    assert terminal.wait_for_exit() == 0
    return terminal.output.decode()


def test_the_tree_shows_the_last_line_of_each_running_job(
    world: World, pipeline: MakePipeline, on_terminal: Callable[..., UserTerminal]
) -> None:
    terminal = on_terminal("run", pipeline(two_jobs(world)))
    assert "\x1b[" in read_all(terminal, "first begins", "red")
    rest = ESCAPES.sub("", finish(terminal, world))
    assert "pipeline success" in rest
    assert re.search(r"first +success", rest)


def test_the_tree_shows_more_of_the_log_while_one_job_runs(
    world: World, pipeline: MakePipeline, on_terminal: Callable[..., UserTerminal]
) -> None:
    wait = f"until test -e {world.folder}/go; do sleep 0.1; done"
    chain = (
        f"stages: [one, two]\na: {{stage: one, script: ['seq 101 112; {wait}']}}\nb: {{stage: two, script: [exit 0]}}"
    )
    terminal = on_terminal("run", pipeline(chain))
    shown = ESCAPES.sub("", terminal.read_until("112")).replace("\r", "")
    rest = finish(terminal, world)
    # Rows below those of the job and its steps, which may be any step: logs and steps are reported apart.
    assert re.search(r"\n +103\n +104\n +105\n", shown)
    assert "pipeline success" in rest


@pytest.mark.parametrize("option", ["--follow", "-f"])
def test_all_logs_are_shown_with_coloured_names(
    world: World, pipeline: MakePipeline, on_terminal: Callable[..., UserTerminal], option: str
) -> None:
    terminal = on_terminal("run", pipeline(two_jobs(world)), option)
    shown = read_all(terminal, "first begins\r\n", "31mred")
    assert re.search(r"\x1b\[3\dmfirst  \| \x1b\[0mfirst begins", shown)
    assert re.search(r"\x1b\[3\dmsecond \| \x1b\[0m.*\x1b\[31mred", shown)
    assert "first ends" in finish(terminal, world)


def test_the_log_of_a_single_job_is_shown_by_itself(
    world: World, pipeline: MakePipeline, on_terminal: Callable[..., UserTerminal]
) -> None:
    wait = f"until test -e {world.folder}/go; do sleep 0.1; done"
    terminal = on_terminal("run", pipeline(f"only: {{script: [echo it begins, '{wait}', echo it ends]}}"))
    assert "|" not in ESCAPES.sub("", terminal.read_until("\r\nit begins\r\n"))
    assert "\r\nit ends\r\n" in finish(terminal, world)


@pytest.mark.parametrize(("term", "variables"), [("dumb", {}), ("xterm", {"NO_COLOR": "1"})])
def test_a_simple_terminal_gets_lines_without_escapes(
    world: World,
    pipeline: MakePipeline,
    on_terminal: Callable[..., UserTerminal],
    term: str,
    variables: dict[str, str],
) -> None:
    terminal = on_terminal("run", pipeline(two_jobs(world)), "--follow", term=term, **variables)
    shown = read_all(terminal, "first  | first begins\r\n", "second | red\r\n")
    assert "\x1b" not in shown + finish(terminal, world)


def test_without_a_terminal_lines_come_as_things_happen(world: World, pipeline: MakePipeline) -> None:
    process = world.start("run", pipeline(two_jobs(world)))
    assert process.stdout is not None
    lines: list[str] = []
    while not {"first  | first begins", "second | red"} <= set(lines):
        line = process.stdout.readline().decode()
        assert line, lines
        lines.append(line.rstrip())
    assert process.poll() is None
    (world.folder / "go").touch()
    rest = process.communicate(timeout=60)[0].decode().splitlines()
    assert "first  | first ends" in rest
    assert rest.index("first  | first ends") < rest.index("first  | Job succeeded")
    assert process.returncode == 0


def test_a_reader_that_waits_does_not_stop_the_jobs(world: World, pipeline: MakePipeline) -> None:
    """As in `remuda run | less`."""
    marker = world.folder / "over"
    folder = pipeline(f"loud: {{script: [seq 100000, touch {marker}, seq 100000]}}\nother: {{script: [exit 0]}}")
    process = world.start("run", folder)
    deadline = 600
    while not marker.exists() and deadline:
        deadline -= 1
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
    assert marker.exists()
    out = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 0
    assert out.count("\nloud  | 77777\n") == 2


def test_json_has_logs_on_stderr_only_if_they_are_asked_for(world: World, pipeline: MakePipeline) -> None:
    folder = pipeline("a: {script: [echo hello]}")
    assert "hello" not in world.remuda("run", folder, "--output", "json").err
    result = world.remuda("run", folder, "--output", "json", "--follow")
    assert "a | hello" in result.err
    assert result.out.startswith("{")


def test_the_summary_fits_the_terminal(
    world: World, pipeline: MakePipeline, on_terminal: Callable[..., UserTerminal]
) -> None:
    name = "integration tests of the whole product: [postgresql, python3.12, large machine]"
    folder = pipeline(f"'{name}': {{script: [exit 3], allow_failure: true}}\nb: {{script: [exit 0]}}")
    terminal = on_terminal("run", folder, columns=80)
    terminal.wait_for_exit()
    text = ESCAPES.sub("", terminal.output.decode()).rpartition("where the time went\r\n")[2]
    lines = text.splitlines()
    assert any("large machine]  failed" in line for line in lines)
    assert any(line == "    script_failure, exit code 3, allowed to fail" for line in lines)
    assert max(map(len, lines)) <= 80
    in_pipe = world.remuda("run", folder).out.rpartition("where the time went\n")[2]
    assert max(map(len, in_pipe.splitlines())) <= 80


def test_the_demo_greets(world: World, examples: Path) -> None:
    result: Any = world.remuda("run", "--follow", examples / "hello")
    assert re.search(r"^hello +\| Hello, world\. This is job 1 of pipeline 1\.$", result.out, re.MULTILINE)
