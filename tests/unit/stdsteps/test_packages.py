"""The definition of every standard step: a documented version, inputs and outputs, and a program that exists."""

from pathlib import Path

import pytest

from remuda.stdsteps.__main__ import STEPS, import_step
from remuda.steps.language.reading import read_step
from remuda.testing.package_tables import FOLDERS, PAGE, page


def test_the_page_agrees_with_the_definitions() -> None:
    assert PAGE.read_text() == page(), "regenerate the page with: python -m remuda.testing.package_tables"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_parameter_is_described_and_every_program_exists(folder: Path) -> None:
    step = read_step((folder / "func.yml").read_text(), file=f"{folder.name}/func.yml")
    assert step.spec.version
    for parameter in (*step.spec.inputs.values(), *step.spec.outputs.values()):
        assert parameter.description.endswith("."), parameter
    for program in _list_programs(folder.name, step.definition):
        assert program in STEPS
        assert callable(import_step(program).run)


@pytest.mark.parametrize("name", STEPS)
def test_every_step_has_its_program(name: str) -> None:
    assert callable(import_step(name).run)


def _list_programs(name: str, definition: object) -> list[str]:
    if name == "script":
        return []  # the agent runs it without a program
    environment = getattr(definition, "environment", None)
    commands = [environment.open, environment.close] if environment is not None else [getattr(definition, "exec", None)]
    return [command.command[1] for command in commands if command is not None]
