"""Conversion of a step's variables to options of bubblewrap."""

import pytest

from remuda.steps.errors import DefinitionError
from remuda.steps.policy.sandbox import MOST_VARIABLES, variable_options


def test_each_variable_is_one_option() -> None:
    options = variable_options({"A": "a b\n", "B": "--bind"})
    assert options == b"--setenv\0A\0a b\n\0--setenv\0B\0--bind\0"


def test_a_value_with_a_nul_character_is_refused() -> None:
    """The text after the NUL would be another option."""
    with pytest.raises(DefinitionError, match="variable 'A' contains a NUL"):
        variable_options({"A": "a\0--bind\0/\0/"})


def test_too_many_variables_are_an_error_of_the_job() -> None:
    with pytest.raises(DefinitionError, match=f"{MOST_VARIABLES} at most"):
        variable_options({f"V{number}": "" for number in range(MOST_VARIABLES + 1)})
