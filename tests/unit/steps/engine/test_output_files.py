import os
from pathlib import Path

import pytest

from remuda.steps.engine.output_files import (
    OutputError,
    read_exports,
    read_failure,
    read_masks,
    read_outputs,
    read_result_of_another,
)
from remuda.steps.errors import DefinitionError
from remuda.steps.language.lines import MAX_BYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outputs"


def test_outputs_are_names_and_values(path: Path) -> None:
    path.write_text('{"name": "hit", "value": false}\n\n{"name": "hit", "value": true}\n')
    assert read_outputs(path) == {"hit": True}
    assert read_outputs(path.with_name("none")) == {}


def test_exports_are_converted_to_texts(path: Path) -> None:
    path.write_text('{"name": "F", "value": 1.5e24}\n{"name": "B", "value": true}')
    assert read_exports(path) == {"F": "1500000000000000000000000", "B": "true"}
    path.write_text('{"name": "S", "value": {}}')
    with pytest.raises(DefinitionError, match='export "S"'):
        read_exports(path)


def test_the_result_file_of_another_runner_is_read(path: Path) -> None:
    path.write_text('{"status": "success", "outputs": {"a": 1}}')
    assert read_result_of_another(path) == {"a": 1}


def test_a_file_above_the_size_limit_is_an_error(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_BYTES * 2)
    with pytest.raises(DefinitionError, match="are allowed"):
        read_outputs(path)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_a_plain_file_is_read(path: Path, kind: str) -> None:
    match kind:
        case "link":
            path.with_name("other").write_text('{"name": "a", "value": 1}')
            path.symlink_to(path.with_name("other"))
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    with pytest.raises(OutputError, match="a plain file"):
        read_outputs(path)
    assert read_masks(path, 3) == ([], 3)


def test_masks_are_complete_lines_until_the_step_has_ended(path: Path) -> None:
    path.write_text("one\r\n\ntwo\nthr")
    assert read_masks(path, 0) == (["one", "two"], 10)
    assert read_masks(path, 10) == ([], 10)
    assert read_masks(path, 10, rest=True) == (["thr"], 13)
    assert read_masks(path.with_name("none"), 5) == ([], 5)


def test_the_failure_message_of_a_standard_step_is_read(path: Path) -> None:
    assert read_failure(path) is None
    path.write_text('{"fault": "platform", "error": "the engine is gone"}')
    assert read_failure(path) == "the engine is gone"
    path.write_text("{")
    assert "failed" in (read_failure(path) or "")
