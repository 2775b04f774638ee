from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.exits import BadInputError
from remuda.localrun.variables.assignments import read_dotenv, read_file, read_inputs, read_variable_options
from remuda.pipeline import PipelineError

HEADER = """
spec:
  inputs:
    count: {type: number}
    deep: {type: boolean}
    names: {type: array}
    text:
---
job: {script: [x]}
"""


def test_options_override_files_and_later_ones_override_earlier_ones(tmp_path: Path) -> None:
    env_file, yaml_file = tmp_path / "one.env", tmp_path / "two.yml"
    env_file.write_text("A=1\nB=1\nC=1\n")
    yaml_file.write_text("B: 2\nC: 2\n")
    variables = read_variable_options(["C=3", "D=a=b", "C=4", "E="], [env_file, yaml_file])
    assert variables.values == {"A": "1", "B": "2", "C": "4", "D": "a=b", "E": ""}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=x", "x"),
        ("export A=x", "x"),
        ("  A = x y  # comment", "x y"),
        ("A=x#y", "x#y"),
        ("A=", ""),
        ("A='x # $y \\n'", "x # $y \\n"),
        ('A="x\\n\\"y\\"" # comment', 'x\n"y"'),
        ("A=it's", "it's"),
    ],
)
def test_dotenv(line: str, value: str) -> None:
    assert read_dotenv(f"# head\n\n{line}\n", "f") == {"A": value}


@pytest.mark.parametrize("line", ["A", "1A=x", "A-B=x", "A='x", 'A="x" y', "=x", "[section]"])
def test_invalid_dotenv_lines(line: str) -> None:
    with pytest.raises(BadInputError, match=r"^f:2: "):
        read_dotenv(f"\n{line}", "f")


@given(st.dictionaries(st.from_regex(r"[A-Z_]{1,5}", fullmatch=True), st.text(), max_size=4))
def test_quoted_values_are_read_back(values: dict[str, str]) -> None:
    special = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    quoted = {name: "".join(special.get(c, c) for c in value) for name, value in values.items()}
    text = "\n".join(f'{name}="{value}"' for name, value in quoted.items())
    assert read_dotenv(text, "f") == values


@pytest.mark.parametrize("name", ["v.yml", "v.json", "v"])
def test_a_yaml_or_json_map(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text('{"A": "x", "B": 1.10, "C": true, "D": {"value": "$A", "expand": false}}')
    variables = read_file(file)
    assert variables.values == {"A": "x", "B": "1.10", "C": "true", "D": "$A"}
    assert variables.raw == {"D"}


def test_an_empty_file_has_no_variables(tmp_path: Path) -> None:
    for name in ("v.yml", "v.env"):
        (tmp_path / name).write_text("\n")
        assert read_file(tmp_path / name).values == {}


def test_mistakes_in_a_map_have_line_numbers(tmp_path: Path) -> None:
    file = tmp_path / "v.yml"
    file.write_text("A: x\nB: [1]\n1C: x\n")
    with pytest.raises(PipelineError) as caught:
        read_file(file)
    assert [mistake.line for mistake in caught.value.errors] == [2, 3]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"A=\xe9")
    (tmp_path / "large").write_bytes(b"#" * (1 << 20) + b"#")
    for name, complaint in (("none", "No such file"), ("latin", "not UTF-8"), ("large", "larger"), (".", "directory")):
        with pytest.raises(BadInputError, match=complaint):
            read_file(tmp_path / name)


@pytest.mark.parametrize("assignment", ["A", "=x", "1A=x", "A B=x", ""])
def test_bad_assignments(assignment: str) -> None:
    with pytest.raises(BadInputError, match="--variable"):
        read_variable_options([assignment], [])


def test_the_rule_for_a_name_is_that_of_its_option() -> None:
    with pytest.raises(BadInputError, match="'1-a' is not a valid name; use letters, digits and _, no digit first"):
        read_variable_options(["1-a=c"], [])
    assert read_inputs(["1-a=c"], HEADER, "f") == {"1-a": "c"}
    with pytest.raises(BadInputError, match=r"--input a b=c: 'a b' is not a valid name; use letters, digits, _ and -$"):
        read_inputs(["a b=c"], HEADER, "f")


def test_inputs_have_the_type_that_the_file_gives_them() -> None:
    assignments = ["count=3", "deep=true", "names=[a, 1]", "text=3", "unknown=3"]
    assert read_inputs(assignments, HEADER, "f") == {
        "count": 3,
        "deep": True,
        "names": ["a", 1],
        "text": "3",
        "unknown": "3",
    }
    assert read_inputs(["count=many"], HEADER, "f") == {"count": "many"}
    assert read_inputs(["a=1"], "job: {script: [x]}", "f") == {"a": "1"}
    with pytest.raises(PipelineError, match="--input names"):
        read_inputs(["names=[a"], HEADER, "f")
