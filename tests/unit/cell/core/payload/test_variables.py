"""Which of the variables that people keep are for a job, and which are the stronger ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.payload.variables import applicable, scope_fits
from remuda.cell.core.pipelines.creation import variables_for_expansion
from remuda.cell.values import ProjectVariable
from remuda.model.job import ProjectId
from remuda.testing.builders import a_pipeline


@pytest.mark.parametrize(
    ("scope", "environment", "fits"),
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
def test_scopes(scope: str, environment: str, fits: bool) -> None:
    assert scope_fits(scope, environment) is fits


@given(st.text(alphabet="ab/.*", max_size=8))
def test_a_name_without_a_star_is_its_own_scope(name: str) -> None:
    plain = name.replace("*", "x") or "x"
    assert scope_fits(plain, plain)
    assert scope_fits(f"{plain}*", f"{plain}/more")


OF_ALL = ProjectVariable(key="K", value="all")
OUTER = ProjectVariable(group_id=4, key="K", value="outer")
NEAR = ProjectVariable(group_id=9, key="K", value="near")
OWN = ProjectVariable(project_id=ProjectId(1), key="K", value="own")


def strongest(*variables: ProjectVariable, environment: str = "", protected: bool = False) -> str | None:
    """What a job gets, in whatever order the variables come."""
    results = set()
    for ordered in (variables, variables[::-1]):
        fitting = applicable(ordered, group_ids=(9, 4), environment=environment)
        values, _ = variables_for_expansion(a_pipeline(protected=protected), fitting)
        results.add(values.get("K"))
    [result] = results
    return result


def test_the_nearer_the_owner_the_stronger() -> None:
    assert strongest(OF_ALL) == "all"
    assert strongest(OF_ALL, OUTER) == "outer"
    assert strongest(OUTER, NEAR, OF_ALL) == "near"
    assert strongest(OWN, OUTER, NEAR, OF_ALL) == "own"


def test_the_owner_counts_before_the_scope() -> None:
    exact = ProjectVariable(group_id=9, key="K", value="exact", environment_scope="prod")
    assert strongest(OWN, exact, environment="prod") == "own"
    assert strongest(OUTER, exact, environment="prod") == "exact"


def test_of_one_owner_the_most_precise_scope_wins() -> None:
    def scoped(scope: str) -> ProjectVariable:
        return ProjectVariable(project_id=ProjectId(1), key="K", value=scope, environment_scope=scope)

    every, some, more, one = scoped("*"), scoped("review/*"), scoped("review/feature-*"), scoped("review/feature-1")
    assert strongest(every, some, more, one, environment="review/feature-1") == "review/feature-1"
    assert strongest(every, some, more, one, environment="review/feature-2") == "review/feature-*"
    assert strongest(every, some, more, one, environment="review/x") == "review/*"
    assert strongest(every, some, more, one, environment="prod") == "*"
    assert strongest(some, one) is None


def test_a_protected_one_gives_way_where_it_is_not_for_the_job() -> None:
    secret = ProjectVariable(project_id=ProjectId(1), key="K", value="secret", protected=True)
    assert strongest(OF_ALL, secret) == "all"
    assert strongest(OF_ALL, secret, protected=True) == "secret"
