import pytest

from remuda.steps.engine.step_start import describe_fetch
from remuda.steps.language.references import parse_reference

BEGUN = 1_800_000_000.0  # 08:00:00 UTC


@pytest.mark.parametrize(
    ("written", "deadline", "text"),
    [
        (
            "user:secret@git.example.com/group/steps/-/echo@main",
            None,
            "Waiting for git.example.com, which has not sent the step git.example.com/group/steps/-/echo@main since "
            "08:00:00 UTC; if it does not answer, the step fails by 08:01:00 UTC",
        ),
        (
            "registry.example.com:5000/steps/echo:1",
            BEGUN + 20,
            "Waiting for registry.example.com:5000, which has not sent the step registry.example.com:5000/steps/echo:1 "
            "since 08:00:00 UTC; if it does not answer, the step fails by 08:00:20 UTC",
        ),
        (
            f"git.example.com/x@{'a' * 40}",
            None,
            f"Waiting for git.example.com, which has not sent the step git.example.com/x@{'a' * 40} since "
            "08:00:00 UTC; if it does not answer, the step fails by 08:10:00 UTC",
        ),
    ],
)
def test_a_wait_for_a_package_names_host_and_times(written: str, deadline: float | None, text: str) -> None:
    assert describe_fetch(parse_reference(written, "here"), BEGUN, deadline) == text
