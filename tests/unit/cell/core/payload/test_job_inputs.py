from typing import Any

import pytest

from remuda.cell.core.payload.job_inputs import fill_inputs
from remuda.cell.errors import InvalidError
from remuda.pipeline import Artifacts, JobSpec
from remuda.pipeline.spec import JobInput
from remuda.testing.builders import a_spec

INPUTS = {
    "env": JobInput(default="staging"),
    "count": JobInput(type="number", default=3),
    "debug": JobInput(type="boolean", default=False),
    "tags": JobInput(type="array", default=["a", "b"]),
}


def a_job_with_inputs(**fields: Any) -> JobSpec:
    return a_spec(inputs=INPUTS, **fields)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("deploy ${{ job.inputs.env }}", "deploy staging"),
        ("${{job.inputs.count}}", "5"),
        ("${{ job.inputs.debug }} ${{ job.inputs.tags }}", 'false ["a","b"]'),
        ("${{ job.inputs.count + 1 }}", "6"),
        ("${{ env.HOME }} ${{ job.inputs.env }}", "${{ env.HOME }} staging"),
        ("${{ env.HOME }}", "${{ env.HOME }}"),
        ("echo $HOME ${HOME}", "echo $HOME ${HOME}"),
        ("${{ job.inputs.env", "${{ job.inputs.env"),
        (r"\${{ job.inputs.env }} ${{ job.inputs.env }}", "${{ job.inputs.env }} staging"),
    ],
)
def test_expressions_with_inputs_are_replaced(text: str, expected: str) -> None:
    assert fill_inputs(a_job_with_inputs(script=(text,)), {"count": 5}).script == (expected,)


def test_other_keywords_use_inputs() -> None:
    text = "${{ job.inputs.env }}"
    spec = a_job_with_inputs(
        after_script=(text,),
        image={"name": text},
        services=({"name": text},),
        cache=({"key": text, "paths": [text]},),
        artifacts=Artifacts(paths=(text,), name=text),
        run=({"name": "x", "script": text + " ${{ env.A }}"},),
    )
    filled = fill_inputs(spec, {"env": "a${{ b"})
    value = "a${{ b"
    assert filled.after_script == (value,)
    assert (filled.image, filled.services) == ({"name": value}, ({"name": value},))
    assert filled.cache == ({"key": value, "paths": [value]},)
    assert filled.artifacts == Artifacts(paths=(value,), name=value)
    assert filled.run == ({"name": "x", "script": r"a\${{ b ${{ env.A }}"},)


def test_the_length_of_what_inputs_add_is_limited() -> None:
    long = {"env": "x" * 20_000}
    within = a_job_with_inputs(script=("${{ job.inputs.env }}",) * 50)
    assert fill_inputs(within, long).script == ("x" * 20_000,) * 50
    for field in ("script", "after_script"):
        with pytest.raises(InvalidError, match="the inputs of the job add more than 1048576 characters"):
            fill_inputs(a_job_with_inputs(**{field: ("${{ job.inputs.env }}",) * 60}), long)


def test_a_job_without_inputs_stays_as_it_is() -> None:
    spec = a_spec(script=("${{ job.inputs.env }}",))
    assert fill_inputs(spec, {"env": "x"}) is spec
