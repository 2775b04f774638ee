"""Who may set variables of the pipelines that they start."""

import pytest
from msgspec.structs import replace

from remuda.cell.core.access.pipeline_variables import can_set_variables
from remuda.testing.builders import a_project


@pytest.mark.parametrize(
    ("role", "restrict", "allowed"),
    [
        ("developer", False, [30, 40, 50]),
        ("developer", True, [40, 50]),
        ("maintainer", False, [40, 50]),
        ("owner", True, [50]),
        ("no_one_allowed", False, []),
    ],
)
def test_roles(role: str, restrict: bool, allowed: list[int]) -> None:
    project = replace(
        a_project(), ci_pipeline_variables_minimum_override_role=role, restrict_user_defined_variables=restrict
    )
    assert [level for level in (20, 30, 40, 50) if can_set_variables(project, level)] == allowed
