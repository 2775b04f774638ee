"""Commands import no heavy modules that they do not need, so that they start fast. Also tests version and help."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HEAVY = "aiohttp uvicorn grpclib structlog yaml rich.live cryptography starlette msgspec asyncio"


@pytest.mark.parametrize(
    "arguments",
    [["version"], ["--help"], ["run", "--help"], ["up", "--help"], ["job", "--help"], ["pipeline", "lint", "--help"]],
)
def test_no_heavy_module_is_imported(arguments: list[str]) -> None:
    # rich imports asyncio to print the help.
    heavy = [name for name in HEAVY.split() if name != "asyncio" or arguments == ["version"]]
    program = (
        "import os, sys\n"
        "os._exit = sys.exit\n"
        f"sys.argv = ['remuda', *{arguments!r}]\n"
        "from remuda.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        f"loaded = [name for name in {heavy!r} if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_a_run_without_arguments_does_not_import_the_option_parser(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "os._exit = sys.exit\n"
        "sys.argv = ['remuda', 'run']\n"
        "from remuda.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert end.code == 2, end.code\n"
        "assert 'remuda.localrun.command' in sys.modules\n"
        "assert 'cyclopts' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "remuda: " in result.stderr


def test_the_cell_of_a_run_does_not_import_uvicorns_command_line() -> None:
    program = (
        "import sys\n"
        "from remuda.localrun import cell_process\n"
        "cell_process._load()\n"
        "assert 'uvicorn.server' in sys.modules\n"
        "loaded = [name for name in ('click', 'uvicorn.main', 'multiprocessing') if name in sys.modules]\n"
        "assert not loaded, loaded\n"
        "import uvicorn\n"
        "assert uvicorn.Config is sys.modules['uvicorn.config'].Config\n"
        "assert uvicorn.run and 'uvicorn.main' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_version_and_help(world: Any) -> None:
    assert world.remuda("version").out.startswith("remuda ")
    overview = world.remuda("--help")
    assert overview.code == 0
    for name in ("run", "up", "pipeline", "cell", "manager", "job", "agent", "version"):
        assert f" {name} " in overview.out


@pytest.mark.parametrize(
    "command",
    [
        *("run", "up", "pipeline lint", "pipeline show", "pipeline graph", "cell serve", "manager run"),
        *("manager register", "job list", "job show", "job log", "version"),
    ],
)
def test_the_help_of_every_command_has_examples(world: Any, command: str) -> None:
    page = world.remuda(*command.split(), "--help")
    assert page.code == 0
    assert "Try:" in page.out
    assert f"remuda {command}" in page.out


def test_an_unknown_command_is_bad_input(world: Any) -> None:
    result = world.remuda("rum")
    assert result.code == 2
    assert 'no command "remuda rum"; did you mean `remuda run`' in result.err
    assert "Traceback" not in result.err


def test_agent_options_after_two_dashes_reach_the_agent(world: Any) -> None:
    result = world.remuda("agent", "serve", "--", "--help")
    assert result.code == 0
    assert "--data" in result.out
    assert world.remuda("agent", "pack", "-o", world.folder / "agent.pyz").code == 0
    assert (world.folder / "agent.pyz").stat().st_size > 0
