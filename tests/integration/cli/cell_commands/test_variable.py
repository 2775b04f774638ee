"""`remuda variable` against a cell in its own process."""

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def project(shop: Any) -> str:
    return str(shop())


def test_set_list_get_delete(remuda: Any, project: str) -> None:
    place = ("-p", project)
    secret = remuda("variable", "set", "TOKEN", *place, "--masked", "--protected", stdin="s3cret-value\n")
    assert secret.out == f"TOKEN of the project {project} is created (masked, protected)\n"
    assert remuda("variable", "set", "HOST", *place, stdin="example.org\n").code == 0
    table = remuda("variable", "list", *place).out
    assert "s3cret-value" not in table
    assert "[masked]" in table
    assert "example.org" in table
    assert "s3cret-value" in remuda("variable", "list", *place, "--values").out
    assert remuda("variable", "get", "TOKEN", *place).out == "s3cret-value\n"
    changed = remuda("variable", "set", "TOKEN", *place, "--no-protected", stdin="another-value")
    assert changed.out == f"TOKEN of the project {project} is changed (masked)\n"
    assert json.loads(remuda("variable", "get", "TOKEN", *place, "-o", "json").out)["value"] == "another-value"
    asked = remuda("variable", "delete", "TOKEN", *place)
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert remuda("variable", "delete", "TOKEN", *place, "-y").out == f"TOKEN of the project {project} is deleted\n"
    gone = remuda("variable", "get", "TOKEN", *place)
    assert gone.err.startswith("there is no variable TOKEN on the cell")


def test_scopes_and_files(remuda: Any, project: str, tmp_path: Path) -> None:
    place = ("-p", project)
    (tmp_path / "key.pem").write_text("two\nlines\n")
    for scope in ("production", "review/*"):
        options = ("--scope", scope, "--file", "--from-file", "key.pem", *place)
        result = remuda("variable", "set", "KEY", *options)
        assert result.out == f"KEY of the project {project} is created (for environments {scope})\n"
    assert remuda("variable", "get", "KEY", "--scope", "production", *place).out == "two\nlines\n\n"
    both = remuda("variable", "get", "KEY", *place)
    assert (both.code, "There are multiple variables" in both.err) == (2, True)
    listed = json.loads(remuda("variable", "list", *place, "-o", "json").out)
    assert {(each["environment_scope"], each["variable_type"]) for each in listed} == {
        ("production", "file"),
        ("review/*", "file"),
    }
    assert remuda("variable", "delete", "KEY", "--scope", "production", "-y", *place).code == 0
    assert remuda("variable", "get", "KEY", *place).code == 0


def test_group_and_instance(remuda: Any) -> None:
    assert remuda("group", "create", "vars").code == 0
    for place in (("-g", "vars"), ("--instance",)):
        assert remuda("variable", "list", *place).out.startswith("the ")
        assert remuda("variable", "set", "PROXY", *place, stdin="http://proxy").code == 0
        assert remuda("variable", "get", "PROXY", *place).out == "http://proxy\n"
        assert remuda("variable", "delete", "PROXY", "-y", *place).code == 0
    assert remuda("variable", "list", "-g", "vars", "--instance").code == 2


def test_a_value_that_cannot_be_masked_is_explained(remuda: Any, project: str) -> None:
    result = remuda("variable", "set", "SHORT", "-p", project, "--masked", stdin="abc")
    assert (result.code, "at least 8 characters" in result.err, "abc" in result.err) == (2, True, False)


def test_a_hidden_value_cannot_be_read(remuda: Any, project: str) -> None:
    assert remuda("variable", "set", "DEEP", "-p", project, "--hidden", stdin="hidden-value").code == 0
    result = remuda("variable", "get", "DEEP", "-p", project)
    assert (result.code, "is hidden" in result.err, "hidden-value" in result.err + result.out) == (2, True, False)


def test_without_a_project_the_fix_is_named(remuda: Any) -> None:
    result = remuda("variable", "list")
    assert (result.code, result.err.startswith("which project? Give it with -p GROUP/NAME")) == (2, True)


def test_the_name_of_a_variable_of_the_cell_stays_one_word_of_the_address(remuda: Any) -> None:
    assert remuda("variable", "set", "ONLY", "--instance", stdin="value").code == 0
    wrong = remuda("variable", "delete", "ONLY?x", "--instance", "-y")
    assert wrong.err.startswith("there is no variable ONLY?x on the cell")
    assert remuda("variable", "get", "ONLY", "--instance").out == "value\n"
    assert remuda("variable", "delete", "ONLY", "--instance", "-y").code == 0
