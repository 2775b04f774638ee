"""The conformance checks of `remuda environment check`: the template and a plugin without the SDK pass them, and each
fault of a broken plugin is explained."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.environment_plugins import a_plugin, kill_agents

from remuda.environments.conformance import Result, check_plugin
from remuda.environments.template import files

ROOT = Path(__file__).parents[3]
CONFIG = {"machines": ["first", "second"]}


@pytest.fixture(autouse=True)
def _no_agents_left(tmp_path: Path) -> Iterator[None]:
    yield
    kill_agents(tmp_path)


async def check(program: Path, folder: Path, config: dict[str, object] | None = None) -> list[Result]:
    return [
        result async for result in check_plugin(str(program), CONFIG if config is None else config, folder / "kept")
    ]


def test_the_example_plugin_equals_the_template() -> None:
    folder = ROOT / "examples/environment-plugin"
    for name, text in files("folders").items():
        assert (folder / name).read_text() == text
    assert os.access(folder / "remuda-environment-folders", os.X_OK)


async def test_the_template_passes_in_both_versions(tmp_path: Path) -> None:
    results = await check(a_plugin(tmp_path), tmp_path)
    assert [result for result in results if result.problem] == []
    assert results[0].name == "handshake"
    assert {result.name[-2] for result in results[1:]} == {"1", "2"}
    names = [result.name for result in results]
    assert "free disk space (version 2)" in names
    assert "free disk space (version 1)" not in names


async def test_a_plugin_without_the_sdk_passes(tmp_path: Path) -> None:
    program = tmp_path / "plain"
    source = Path(__file__).with_name("plain_plugin.py")
    agent = f"{sys.executable} -m remuda.steps"
    program.write_text(
        f"#!/bin/sh\nexport PROTOS='{ROOT / 'src'}' AGENT='{agent}'\nexec {sys.executable} -I {source}\n"
    )
    program.chmod(0o755)
    results = await check(program, tmp_path)
    assert [result for result in results if result.problem] == []
    assert {result.name[-2] for result in results[1:]} == {"1"}


BROKEN = {
    "prints before": (
        {"    sys.exit(serve(": '    print("hello", flush=True)\n    sys.exit(serve('},
        "this is no handshake: 'hello'",
    ),
    "ends at once": (
        {"    sys.exit(serve(": '    sys.exit("no token")\n    sys.exit(serve('},
        "its last output: no token",
    ),
    "too new": (
        {"    async def open(": "    versions = (7, 8)\n\n    async def open("},
        "no protocol version in common: the plugin speaks 7, 8, this Remuda 1, 2; use a newer Remuda",
    ),
    "refuses": ({'"machines", "folder"': '"nothing"'}, "machines: unknown; this plugin knows machines and folder"),
    "has no room": (
        {"return len(self.machines)": "return 0"},
        "the capacity is 0: the manager will never request a job",
    ),
    "forgets": ({"if place.key not in self.held:": "if True:"}, "it has to be the same machine"),
    "gives other folders": (
        {"return make_folders(": 'return Folders(work_dir="a", builds_dir="b", cache_dir="c") or make_folders('},
        "folders are not absolute paths",
    ),
    "lets hooks fail": (
        {'return await run_hook("before_job", place.before_job, place, work_dir)': 'return "before of 1"'},
        "a before_job that fails has to return FAILED_PRECONDITION",
    ),
    "has any machine": ({"if machine not in self.machines:": "if False:"}, "has to return NOT_FOUND, not a connection"),
    "finds nothing": ({"if has_jobs(self.base(name))": "if False"}, "Recover has to name first"),
    "raises": ({"return shutil.disk_usage(self.folder).free": "raise KeyError(self.folder)"}, "KeyError"),
    "stays": (
        {
            "    sys.exit(serve(": "    from remuda.environments import serving\n\n"
            "    serving._until_stdin_ends = lambda *_: None\n    sys.exit(serve("
        },
        "has to end within 5 s when its stdin is closed",
    ),
}


@pytest.mark.parametrize(("replacing", "message"), BROKEN.values(), ids=BROKEN)
@pytest.mark.long
async def test_faults_of_a_plugin_are_explained(tmp_path: Path, replacing: dict[str, str], message: str) -> None:
    results = await check(a_plugin(tmp_path, replacing=replacing), tmp_path)
    problems = [result.problem for result in results if result.problem]
    assert problems
    assert message in problems[0]
