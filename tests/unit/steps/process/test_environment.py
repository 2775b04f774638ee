from pathlib import Path

import pytest

from remuda.steps.errors import BadRequestError
from remuda.steps.process.environment import (
    LARGEST_ENTRY_BYTES,
    LARGEST_ENVIRONMENT_BYTES,
    check_variables,
    clean_base,
    fit,
    write_files,
)
from remuda.wire.proto.agent_pb2 import StartRequest, Variable


def test_only_allowed_variables_of_the_agent_are_kept() -> None:
    environ = {"PATH": "/bin", "LC_ALL": "C", "HTTPS_PROXY": "p", "no_proxy": "n", "AWS_SECRET": "s", "REMUDA_X": "y"}
    assert clean_base(environ) == {"PATH": "/bin", "LC_ALL": "C", "HTTPS_PROXY": "p", "no_proxy": "n"}
    assert "/usr/bin" in clean_base({})["PATH"]


def test_too_large_variables_are_not_exported() -> None:
    limit = LARGEST_ENTRY_BYTES - len("EXACT") - 2
    env = {"EXACT": "x" * limit, "OVER": "x" * (limit + 2), "S": "s", "UTF": "é" * 70_000}
    fitted = fit(env)
    assert set(fitted.exported) == {"EXACT", "S"}
    assert set(fitted.too_large) == {"OVER", "UTF"}


def test_the_total_size_is_limited_and_small_variables_are_preferred() -> None:
    env = {f"V{number:02}": "v" * 100_000 for number in range(20)} | {"TINY": "t"}
    fitted = fit(env)
    assert "TINY" in fitted.exported
    assert sum(len(key) + len(value) + 2 for key, value in fitted.exported.items()) <= LARGEST_ENVIRONMENT_BYTES
    assert len(fitted.exported) + len(fitted.too_large) == len(env)


def test_file_variables_become_private_files(tmp_path: Path) -> None:
    variables = [Variable(key="A", value="1"), Variable(key="F", value="text\n", file=True)]
    values = write_files(tmp_path / "files", variables)
    assert values == {"A": "1", "F": str(tmp_path / "files/F")}
    assert (tmp_path / "files/F").read_text() == "text\n"
    assert (tmp_path / "files/F").stat().st_mode & 0o777 == 0o600


def test_existing_files_are_not_written_again(tmp_path: Path) -> None:
    """A job may have replaced a file by a folder."""
    variables = [Variable(key="F", value="text\n", file=True), Variable(key="G" * 255, value="g", file=True)]
    values = write_files(tmp_path / "files", variables)
    (tmp_path / "files/F").unlink()
    (tmp_path / "files/F/x").mkdir(parents=True)
    assert write_files(tmp_path / "files", variables, is_written=True) == values
    assert (tmp_path / "files/F/x").is_dir()
    assert write_files(tmp_path / "other", variables, is_written=True)["F"] == str(tmp_path / "other/F")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("key", ["", "1A", "A-B", "../A", "A B", "A=B", "é"])
def test_invalid_names_are_refused(key: str) -> None:
    with pytest.raises(BadRequestError, match="a name of letters"):
        check_variables(StartRequest(variables=[Variable(key=key, value="x", file=True)]))
    with pytest.raises(BadRequestError, match="a name of letters"):
        check_variables(StartRequest(env={key: "x"}))


def test_nul_is_refused_outside_files() -> None:
    check_variables(StartRequest(variables=[Variable(key="A", value="a\0b", file=True)]))
    with pytest.raises(BadRequestError, match="NUL"):
        check_variables(StartRequest(variables=[Variable(key="A", value="a\0b")]))
