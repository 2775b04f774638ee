"""Every standard step is a package that its page describes, with a program behind it."""

from importlib import import_module

import pytest

from remuda.stdsteps.__main__ import NAMES
from remuda.steps.language.reading import read_step
from remuda.testing.package_tables import PACKAGES, PAGE, page

FOLDERS = sorted(folder.name for folder in PACKAGES.iterdir() if folder.is_dir())


def test_the_page_says_what_the_definitions_say() -> None:
    assert PAGE.read_text() == page(), "write it anew with: python -m remuda.testing.package_tables"


@pytest.mark.parametrize("name", FOLDERS)
def test_every_parameter_is_described_and_every_program_is_there(name: str) -> None:
    step = read_step((PACKAGES / name / "func.yml").read_text(), file=f"{name}/func.yml")
    assert step.spec.version
    for parameter in (*step.spec.inputs.values(), *step.spec.outputs.values()):
        assert parameter.description.endswith("."), parameter
    for program in _programs(name, step.definition):
        assert program in NAMES
        assert callable(import_module(f"remuda.stdsteps.{program}").run)


def _programs(name: str, definition: object) -> list[str]:
    if name == "script":
        return []  # the agent's own
    made = getattr(definition, "environment", None)
    commands = [made.open, made.close] if made is not None else [getattr(definition, "exec", None)]
    return [command.command[1] for command in commands if command is not None]
