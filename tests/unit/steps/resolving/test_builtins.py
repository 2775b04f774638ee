"""The packages of the standard steps: the choice of a version, and agreement of definitions and programs."""

import ast
import inspect
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.stdsteps.__main__ import STEPS, import_step
from remuda.stdsteps.common.inputs import Inputs
from remuda.steps.language.reading import read_step
from remuda.steps.language.values import MISSING, Step, ValueType
from remuda.steps.pack.zip_file import pack
from remuda.steps.resolving.builtins import Builtins, choose_version, find_packages, unpack
from remuda.steps.resolving.errors import ResolveError

OWN_PROGRAM = "remuda-step"
CHECKED = ("checkout", "cache_restore", "cache_save", "artifacts_download", "artifacts_upload")


class _AllReadError(Exception):
    """The program has read its inputs."""


class RecordingInputs(Inputs):
    """Records the inputs that a program reads; each has a value."""

    def __init__(self) -> None:
        super().__init__({})
        self.requested: dict[str, tuple[ValueType, Any]] = {}

    def text(self, name: str, default: str | None = None) -> str:
        self.requested[name] = (ValueType.STRING, default)
        return default or "x"

    def number(self, name: str, default: int) -> int:
        self.requested[name] = (ValueType.NUMBER, default)
        return default

    def flag(self, name: str, default: bool) -> bool:
        self.requested[name] = (ValueType.BOOLEAN, default)
        return default

    def texts(self, name: str, default: list[str]) -> list[str]:
        self.requested[name] = (ValueType.ARRAY, default)
        return default

    def groups(self, name: str) -> list[Inputs]:
        self.requested[name] = (ValueType.ARRAY, [])
        return []

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        self.requested[name] = (ValueType.STRING, choices[0])
        return choices[0]

    def done(self) -> None:
        raise _AllReadError


def read_package(name: str) -> Step:
    return read_step(Builtins(find_packages()).choose(name, "").text)


@pytest.mark.parametrize("name", CHECKED)
def test_a_package_declares_the_inputs_that_its_program_reads(name: str) -> None:
    program = import_step(name)
    inputs = RecordingInputs()
    with pytest.raises(_AllReadError):
        program.run(inputs)
    declared = read_package(name).spec.inputs
    assert declared.keys() == inputs.requested.keys()
    for input_name, (kind, default) in inputs.requested.items():
        parameter = declared[input_name]
        assert parameter.type is kind, input_name
        # A package may be stricter than its program and require an input for which the program has a default.
        assert parameter.default in (MISSING, default), input_name
        assert (default is None) <= (parameter.default is MISSING), input_name


@pytest.mark.parametrize("name", CHECKED)
def test_a_package_declares_the_outputs_that_its_program_writes(name: str) -> None:
    program = import_step(name)
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(program))) if isinstance(node, ast.Call)]
    written_outputs = {
        keyword.arg
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "write_outputs"
        for keyword in call.keywords
    }
    outputs = read_package(name).spec.outputs
    assert outputs.keys() == written_outputs
    # A program that has nothing to do writes no outputs.
    assert all(parameter.default is not MISSING for parameter in outputs.values())


def test_every_package_has_descriptions_and_an_existing_program() -> None:
    builtins = Builtins(find_packages())
    for name in builtins.names():
        bundled = builtins.choose(name, "")
        step = read_step(bundled.text, file=name)
        assert step.spec.remuda == 1
        parameters = [*step.spec.inputs.items(), *step.spec.outputs.items()]
        assert [key for key, parameter in parameters if not parameter.description] == [], name
        definition = step.definition
        commands = [definition.exec] if definition.exec else []
        if definition.environment is not None:
            both = (definition.environment.open, definition.environment.close)
            commands += [command for command in both if command is not None]
        for command in commands:
            if command.command[0] == OWN_PROGRAM:
                assert command.command[1] in (*STEPS, "script"), name
    assert set(CHECKED) <= set(builtins.names())


def test_choice_of_a_version() -> None:
    available = ["1.0.0", "1.2.0", "1.10.0", "2.0.0"]
    expected = {
        "": "2.0.0",
        "1": "1.10.0",
        "1.2": "1.2.0",
        "v1": "1.10.0",
        "2.0.0": "2.0.0",
        "3": None,
        "1.1": None,
        "x": None,
    }
    assert {text: choose_version(available, text) for text in expected} == expected


@given(st.lists(st.tuples(*[st.integers(0, 12)] * 3), min_size=1, unique=True), st.data())
def test_the_newest_matching_version_is_chosen(versions: list[tuple[int, ...]], data: st.DataObject) -> None:
    prefix = data.draw(st.sampled_from(versions))[: data.draw(st.integers(0, 3))]
    texts = [".".join(map(str, version)) for version in versions]
    best = max(version for version in versions if version[: len(prefix)] == prefix)
    assert choose_version(texts, ".".join(map(str, prefix))) == ".".join(map(str, best))


def test_packages_in_subfolders_and_in_several_versions(tmp_path: Path) -> None:
    for path, version in (("a/b", "1.0.0"), ("a/b@2", "2.1.0"), ("c", "1.0.0")):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "func.yml").write_text(
            f"spec:\n  remuda: 1\n  version: {version}\n---\nexec:\n  command: [echo, {version}]\n"
        )
    builtins = Builtins(tmp_path)
    assert builtins.names() == ["a/b", "c"]
    assert [builtins.choose("a/b", version).version for version in ("", "1", "2.1")] == ["2.1.0", "1.0.0", "2.1.0"]
    with pytest.raises(ResolveError, match="it has a/b, c"):
        builtins.choose("xyz", "")
    (tmp_path / "c/func.yml").write_text("spec: {}\n---\nexec:\n  command: [echo]\n")
    with pytest.raises(ResolveError, match="has no version in its spec"):
        Builtins(tmp_path).choose("c", "")


def test_packages_are_read_from_the_packed_agent(tmp_path: Path) -> None:
    pack(tmp_path / "agent.pyz")
    packed = Builtins(zipfile.Path(tmp_path / "agent.pyz", "remuda/stdsteps/"))
    assert packed.names() == Builtins(find_packages()).names()
    package = packed.choose("checkout", "1")
    unpack(package, tmp_path / "out")
    assert (tmp_path / "out/func.yml").read_text() == package.text
