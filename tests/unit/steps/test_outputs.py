from pathlib import Path

import pytest

from remuda.steps.outputs import LARGEST_BYTES, OutputError, read_exports, read_masks, read_outputs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outputs"


def test_the_last_value_of_a_name_counts(path: Path) -> None:
    path.write_text(
        '{"name": "hit", "value": false}\n\n  \n{"name": "hit", "value": true}\n'
        '{"Name": "list", "VALUE": [1, {"a": null}], "more": 1}\n'
    )
    assert read_outputs(path) == {"hit": True, "list": [1, {"a": None}]}
    assert read_outputs(path.with_name("none")) == {}


def test_output_line_above_64_kib_is_read(path: Path) -> None:
    path.write_text('{"name": "long", "value": "%s"}\n' % ("x" * 70_000))
    assert len(read_outputs(path)["long"]) == 70_000


@pytest.mark.parametrize(
    "line",
    [
        b"no json",
        b"[1]",
        b'{"value": 1}',
        b'{"name": "", "value": 1}',
        b'{"name": "a"}',
        b'{"name": "a", "value": null}',
        b'{"name": "a", "value": NaN}',
        b'{"name": "a", "value": 1} {"name": "b", "value": 1}',
        b"[" * 5000,
        b"\xff",
    ],
)
def test_what_is_no_output_is_a_mistake_with_its_line(path: Path, line: bytes) -> None:
    path.write_bytes(b'{"name": "good", "value": 1}\n' + line)
    with pytest.raises(OutputError, match="output file, line 2"):
        read_outputs(path)


def test_a_file_above_the_limit_is_a_mistake(path: Path) -> None:
    path.write_bytes(b" " * (LARGEST_BYTES + 1))
    with pytest.raises(OutputError, match="more than"):
        read_outputs(path)


def test_exports_are_texts(path: Path) -> None:
    values = {"S": '"a"', "I": "7", "F": "1.5e24", "T": "2.0", "B": "true"}
    path.write_text("".join(f'{{"name": "{name}", "value": {value}}}\n' for name, value in values.items()))
    assert read_exports(path) == {"S": "a", "I": "7", "F": "1500000000000000000000000", "T": "2", "B": "true"}


@pytest.mark.parametrize("value", ["{}", "[1]", '"a\\u0000b"'])
def test_struct_export_is_a_mistake(path: Path, value: str) -> None:
    path.write_text(f'{{"name": "S", "value": {value}}}')
    with pytest.raises(OutputError, match='export "S"'):
        read_exports(path)


def test_export_names_are_checked(path: Path) -> None:
    path.write_text('{"name": "A=B", "value": "x"}')
    with pytest.raises(OutputError, match="a name of letters"):
        read_exports(path)


def test_masks_are_whole_lines_until_the_step_has_ended(path: Path) -> None:
    path.write_text("one\r\n\ntwo\nthr")
    assert read_masks(path, 0) == (["one", "two"], 10)
    assert read_masks(path, 10) == ([], 10)
    assert read_masks(path, 10, rest=True) == (["thr"], 13)
    assert read_masks(path.with_name("none"), 5) == ([], 5)
