"""Which project, group and instance variables a job gets, and which of them takes precedence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.payload.variables import applicable, scope_fits
from remuda.cell.core.pipelines.creation import variables_for_expansion
from remuda.cell.values import ProjectVariable
from remuda.model.job import ProjectId
from remuda.testing.builders import a_pipeline


@pytest.mark.parametrize(
    ("scope", "environment", "expected"),
    [
        ("*", "", True),
        ("*", "prod", True),
        ("prod", "prod", True),
        ("prod", "production", False),
        ("prod", "", False),
        ("review/*", "review/7", True),
        ("review/*", "review", False),
        ("*/7", "review/7", True),
        ("r*w/*", "review/7", True),
        ("a.b", "axb", False),
    ],
)
def test_scopes(scope: str, environment: str, expected: bool) -> None:
    assert scope_fits(scope, environment) is expected


@given(st.text(alphabet="ab/.*", max_size=8))
def test_a_name_without_a_star_is_its_own_scope(name: str) -> None:
    plain = name.replace("*", "x") or "x"
    assert scope_fits(plain, plain)
    assert scope_fits(f"{plain}*", f"{plain}/more")


INSTANCE = ProjectVariable(key="K", value="all")
PARENT_GROUP = ProjectVariable(group_id=4, key="K", value="outer")
GROUP = ProjectVariable(group_id=9, key="K", value="near")
PROJECT = ProjectVariable(project_id=ProjectId(1), key="K", value="own")


def resolve(*variables: ProjectVariable, environment: str = "", protected: bool = False) -> str | None:
    """Return the value of K that a job gets; check that it does not depend on the order of the variables."""
    results = set()
    for ordered in (variables, variables[::-1]):
        fitting = applicable(ordered, group_ids=(9, 4), environment=environment)
        values, _ = variables_for_expansion(a_pipeline(protected=protected), fitting)
        results.add(values.get("K"))
    [result] = results
    return result


def test_the_closest_owner_wins() -> None:
    assert resolve(INSTANCE) == "all"
    assert resolve(INSTANCE, PARENT_GROUP) == "outer"
    assert resolve(PARENT_GROUP, GROUP, INSTANCE) == "near"
    assert resolve(PROJECT, PARENT_GROUP, GROUP, INSTANCE) == "own"


def test_the_owner_counts_more_than_the_scope() -> None:
    exact = ProjectVariable(group_id=9, key="K", value="exact", environment_scope="prod")
    assert resolve(PROJECT, exact, environment="prod") == "own"
    assert resolve(PARENT_GROUP, exact, environment="prod") == "exact"


def test_the_most_specific_scope_of_one_owner_wins() -> None:
    def a_variable(scope: str) -> ProjectVariable:
        return ProjectVariable(project_id=ProjectId(1), key="K", value=scope, environment_scope=scope)

    wildcard, reviews = a_variable("*"), a_variable("review/*")
    features, exact = a_variable("review/feature-*"), a_variable("review/feature-1")
    assert resolve(wildcard, reviews, features, exact, environment="review/feature-1") == "review/feature-1"
    assert resolve(wildcard, reviews, features, exact, environment="review/feature-2") == "review/feature-*"
    assert resolve(wildcard, reviews, features, exact, environment="review/x") == "review/*"
    assert resolve(wildcard, reviews, features, exact, environment="prod") == "*"
    assert resolve(reviews, exact) is None


def test_a_protected_variable_is_ignored_for_an_unprotected_ref() -> None:
    secret = ProjectVariable(project_id=ProjectId(1), key="K", value="secret", protected=True)
    assert resolve(INSTANCE, secret) == "all"
    assert resolve(INSTANCE, secret, protected=True) == "secret"
