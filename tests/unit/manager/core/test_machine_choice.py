"""The choice of a machine for the next job, and the capacity of all machines."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.manager.core.machine_choice import MachineState, capacity, choose


def a_machine(
    name: str = "one",
    capacity: int | None = 2,
    jobs: int = 0,
    is_usable: bool = True,
    uses_left: int | None = None,
) -> MachineState:
    return MachineState(name=name, capacity=capacity, jobs=jobs, is_usable=is_usable, uses_left=uses_left)


def test_the_first_of_the_least_loaded_machines_is_chosen() -> None:
    assert choose([a_machine("a", 4, 2), a_machine("b", 4, 1), a_machine("c", 4, 1)]) == "b"
    assert choose([a_machine("a", 1, 0), a_machine("b", 8, 1)]) == "a"
    assert choose([a_machine("small", 2, 1), a_machine("large", 8, 3)]) == "large"


def test_full_and_unusable_machines_are_not_chosen() -> None:
    assert choose([a_machine(jobs=2), a_machine(is_usable=False)]) is None
    assert choose([a_machine(capacity=None, jobs=500)]) == "one"
    assert choose([]) is None


def test_an_unusable_machine_counts_for_its_running_jobs() -> None:
    assert capacity([a_machine(jobs=1), a_machine(is_usable=False, jobs=1)]) == 3
    assert capacity([a_machine(jobs=3)]) == 3
    assert capacity([a_machine(capacity=None)]) is None
    assert capacity([a_machine(capacity=None, jobs=1, is_usable=False)]) == 1


def test_a_machine_counts_for_the_jobs_that_it_may_still_start() -> None:
    assert capacity([a_machine(uses_left=1)]) == 1
    assert capacity([a_machine(uses_left=0, jobs=1)]) == 1
    assert capacity([a_machine(uses_left=0)]) == 0
    assert capacity([a_machine(capacity=None, jobs=2, uses_left=3)]) == 5
    assert choose([a_machine("used", uses_left=0), a_machine("other", jobs=1, uses_left=1)]) == "other"


@given(
    st.lists(
        st.builds(
            MachineState,
            name=st.text(),
            capacity=st.none() | st.integers(1, 9),
            jobs=st.integers(0, 9),
            is_usable=st.booleans(),
            uses_left=st.none() | st.integers(0, 9),
        )
    )
)
def test_there_is_a_machine_while_there_is_capacity(machines: list[MachineState]) -> None:
    total, jobs = capacity(machines), sum(machine.jobs for machine in machines)
    assert (choose(machines) is not None) == (total is None or jobs < total)
