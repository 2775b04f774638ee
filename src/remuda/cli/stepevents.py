"""The events that an agent reported of a job's steps, folded into the steps as they stand now. Pure.

An event of a kind or version that is not known is passed over: a newer agent may tell more than is shown here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from remuda.cli.view import StepView, moment


def fold(events: Sequence[Mapping[str, Any]]) -> tuple[StepView, ...]:
    """The steps in the order they were first heard of."""
    steps: dict[str, StepView] = {}
    for event in events:
        path = str(event.get("path") or event.get("name") or "")
        name = str(event.get("name") or path).removeprefix("step_")
        at = moment(event.get("time"))
        if event.get("event") == "started":
            steps[path] = StepView(name=name, status="running", started_at=at)
        elif event.get("event") == "finished":
            steps[path] = StepView(
                name=name,
                status=str(event.get("status") or "success"),
                started_at=moment(event.get("started_at")),
                finished_at=moment(event.get("finished_at")) or at,
                exit_code=event.get("exit_code"),
            )
    return tuple(steps.values())
