import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.model.job import FINAL, JobEvent, JobState
from remuda.model.progress import Node, When, next_moves, pipeline_state, retries_left, waits_for_names


def node(name: str, state: str = "created", *waits_for: str, when: str = "on_success", optional: bool = False) -> Node:
    return Node(name=name, state=JobState(state), when=When(when), allow_failure=optional, waits_for=tuple(waits_for))


def moves(*nodes: Node) -> dict[str, str]:
    return {move.name: move.event.value for move in next_moves(nodes)}


class TestTurns:
    def test_jobs_that_wait_for_nobody_start_at_once(self) -> None:
        assert moves(node("a"), node("b"), node("c", "created", "a")) == {"a": "enqueue", "b": "enqueue"}

    def test_a_stage_waits_for_all_of_the_one_before(self) -> None:
        assert moves(node("a", "success"), node("b", "running"), node("c", "created", "a", "b")) == {}
        assert moves(node("a", "success"), node("b", "success"), node("c", "created", "a", "b")) == {"c": "enqueue"}

    def test_needs_do_not_wait_for_others(self) -> None:
        nodes = (node("a", "success"), node("slow", "running"), node("c", "created", "a"))
        assert moves(*nodes) == {"c": "enqueue"}

    def test_names_that_are_not_in_the_pipeline_are_not_waited_for(self) -> None:
        assert moves(node("a", "created", "elsewhere")) == {"a": "enqueue"}

    @pytest.mark.parametrize(
        ("state", "on_success", "on_failure", "always", "manual"),
        [
            ("success", "enqueue", "skip", "enqueue", "ask"),
            ("failed", "skip", "enqueue", "enqueue", "skip"),
            ("canceled", "skip", "enqueue", "enqueue", "skip"),
            ("skipped", "enqueue", "skip", "enqueue", "ask"),
            ("running", None, None, None, None),
            ("leased", None, None, None, None),
            ("pending", None, None, None, None),
            ("manual", None, None, None, None),
        ],
    )
    def test_when(self, state: str, on_success: str, on_failure: str, always: str, manual: str) -> None:
        expected = {"on_success": on_success, "on_failure": on_failure, "always": always, "manual": manual}
        found = moves(node("a", state), *(node(when, "created", "a", when=when) for when in expected))
        assert found == {when: event for when, event in expected.items() if event}

    @pytest.mark.parametrize("state", ["failed", "canceled", "manual"])
    def test_a_job_that_may_fail_does_not_stop_the_others(self, state: str) -> None:
        assert moves(
            node("a", state, optional=True), node("b", "created", "a"), node("c", "created", "a", when="on_failure")
        ) == {"b": "enqueue", "c": "skip"}

    def test_skips_run_through_the_pipeline(self) -> None:
        nodes = (
            node("a", "failed"),
            node("b", "created", "a"),
            node("c", "created", "a", "b"),
            node("clean up", "created", "a", "b", "c", when="always"),
            node("notify", "created", "a", "b", "c", when="on_failure"),
        )
        assert moves(*nodes) == {"b": "skip", "c": "skip", "clean up": "enqueue", "notify": "enqueue"}

    def test_an_optional_manual_job_lets_the_next_stage_go(self) -> None:
        nodes = (node("gate", when="manual", optional=True), node("next", "created", "gate"))
        assert moves(*nodes) == {"gate": "ask", "next": "enqueue"}
        blocking = (node("gate", when="manual"), node("next", "created", "gate"))
        assert moves(*blocking) == {"gate": "ask"}


class TestPipelineState:
    @pytest.mark.parametrize(
        ("nodes", "expected"),
        [
            ([], "skipped"),
            ([node("a")], "created"),
            ([node("a", "pending"), node("b")], "pending"),
            ([node("a", "leased"), node("b", "pending")], "running"),
            ([node("a", "running"), node("b", "failed")], "running"),
            ([node("a", "success"), node("b", "pending")], "running"),
            ([node("a", "success"), node("b")], "running"),
            ([node("a", "canceling"), node("b", "running")], "canceling"),
            ([node("a", "success"), node("b", "success")], "success"),
            ([node("a", "success"), node("b", "skipped")], "success"),
            ([node("a", "skipped")], "skipped"),
            ([node("a", "success"), node("b", "failed")], "failed"),
            ([node("a", "success"), node("b", "failed", optional=True)], "success"),
            ([node("b", "failed", optional=True)], "success"),
            ([node("a", "failed"), node("b", "canceled")], "failed"),
            ([node("a", "success"), node("b", "canceled")], "canceled"),
            ([node("a", "success"), node("b", "canceled", optional=True)], "success"),
            ([node("a", "success"), node("gate", "manual"), node("c", "created", "gate")], "manual"),
            ([node("a", "success"), node("gate", "manual", optional=True)], "success"),
            ([node("a", "failed"), node("gate", "manual", optional=True)], "failed"),
        ],
    )
    def test_words(self, nodes: list[Node], expected: str) -> None:
        assert pipeline_state(nodes) == expected

    @given(st.lists(st.tuples(st.sampled_from(JobState), st.booleans()), min_size=1))
    def test_it_is_over_exactly_when_nothing_can_happen_by_itself(self, jobs: list[tuple[JobState, bool]]) -> None:
        nodes = [Node(name=str(n), state=state, allow_failure=may) for n, (state, may) in enumerate(jobs)]
        over = all(state in FINAL or (state is JobState.MANUAL and may) for state, may in jobs)
        assert (pipeline_state(nodes) in ("success", "failed", "canceled", "skipped")) == over


@given(st.data())
def test_a_created_job_is_left_only_behind_one_that_is_not_over(data: st.DataObject) -> None:
    nodes: list[Node] = []
    for number in range(data.draw(st.integers(1, 8))):
        names = [other.name for other in nodes]
        nodes.append(
            Node(
                name=f"job{number}",
                state=data.draw(st.sampled_from(JobState)),
                when=data.draw(st.sampled_from(When)),
                allow_failure=data.draw(st.booleans()),
                waits_for=tuple(data.draw(st.lists(st.sampled_from(names), unique=True))) if names else (),
            )
        )
    found = next_moves(nodes)
    moved = {move.name: move.event for move in found}
    assert len(moved) == len(found)
    by_name = {each.name: each for each in nodes}
    assert all(by_name[name].state is JobState.CREATED for name in moved)
    for each in nodes:
        if each.state is JobState.CREATED and each.name not in moved:
            waited = [by_name[name] for name in each.waits_for]
            assert any(
                moved.get(other.name) in (JobEvent.ENQUEUE, JobEvent.ASK)
                or (other.state not in FINAL and moved.get(other.name) is not JobEvent.SKIP)
                for other in waited
            )


@pytest.mark.parametrize(
    ("tries", "retry_max", "when", "reason", "expected"),
    [
        (1, 0, ("always",), "script_failure", False),
        (1, 1, ("always",), "script_failure", True),
        (2, 1, ("always",), "script_failure", False),
        (2, 2, ("always",), "script_failure", True),
        (1, 2, ("runner_system_failure",), "script_failure", False),
        (1, 2, ("runner_system_failure", "script_failure"), "script_failure", True),
        (1, 2, ("stuck_or_timeout_failure",), "no_updates_running", True),
        (1, 2, ("always",), "missing_dependency_failure", False),
        (1, 2, (), "script_failure", False),
    ],
)
def test_further_tries(tries: int, retry_max: int, when: tuple[str, ...], reason: str, expected: bool) -> None:
    assert retries_left(tries=tries, retry_max=retry_max, retry_when=when, reason=reason) is expected


def test_the_stored_form_of_what_a_job_waits_for() -> None:
    assert waits_for_names({"c": ["b", "a", "b"]}, "c") == ("a", "b")
    assert waits_for_names({}, "c") == ()
