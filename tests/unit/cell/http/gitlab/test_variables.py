"""Validation of CI/CD variables by GitLab's rules."""

import pytest

from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.gitlab.variables import Given, apply_change
from remuda.cell.values import ProjectVariable
from remuda.model.job import ProjectId

OLD = ProjectVariable(project_id=ProjectId(1), key="KEY", value="value", description="old")


def test_missing_fields_keep_their_values() -> None:
    new = apply_change(OLD, Given(value="new", variable_type="file"))
    assert (new.value, new.file, new.description) == ("new", True, "old")


@pytest.mark.parametrize(
    "change",
    [
        Given(masked=True),
        Given(masked=True, value="short77"),
        Given(masked=True, value="a line\nanother"),
        Given(masked=True, value="with blank inside"),
        Given(masked=True, value="dollar$sign"),
        Given(masked=True, raw=True, value="with blank inside"),
        Given(value="x" * 10_001),
        Given(value="nul\0"),
        Given(variable_type="folder"),
        Given(environment_scope="what?"),
    ],
)
def test_invalid_variables(change: Given) -> None:
    with pytest.raises(ApiError) as refused:
        apply_change(OLD, change)
    assert refused.value.status == 400


@pytest.mark.parametrize("value", ["longenough", "aB3_+=/@:.~-", "eyJhbGciOi.J9"])
def test_values_that_can_be_masked(value: str) -> None:
    assert apply_change(OLD, Given(masked=True, value=value)).masked
