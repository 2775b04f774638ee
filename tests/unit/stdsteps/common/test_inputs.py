from collections.abc import Callable

import pytest

from remuda.stdsteps.__main__ import main
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs


def test_values_of_the_right_type() -> None:
    inputs = Inputs({"t": "x", "n": 3, "f": True, "l": ["a"], "g": [{"t": "y"}], "c": "b"})
    assert (inputs.text("t"), inputs.number("n", 0), inputs.flag("f", False)) == ("x", 3, True)
    assert (inputs.texts("l", []), inputs.one_of("c", ("a", "b"))) == (["a"], "b")
    assert inputs.groups("g")[0].text("t") == "y"
    inputs.done()
    assert (inputs.text("t", "d"), inputs.number("n", 1), inputs.one_of("c", ("a", "b"))) == ("d", 1, "a")


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda inputs: inputs.text("absent"), "absent: required, but missing"),
        (lambda inputs: inputs.text("n"), "n: must be a string"),
        (lambda inputs: inputs.number("t", 0), "t: must be a whole number"),
        (lambda inputs: inputs.flag("n", False), "n: must be true or false"),
        (lambda inputs: inputs.texts("n", []), "n: must be a list of strings"),
        (lambda inputs: inputs.groups("n"), "n: must be a list of mappings"),
        (lambda inputs: inputs.one_of("t", ("a", "b")), "t: must be one of a, b"),
        (lambda inputs: inputs.done(), "unknown inputs: n, t"),
    ],
)
def test_invalid_values_are_refused(read: Callable[[Inputs], object], message: str) -> None:
    with pytest.raises(StepError, match=message):
        read(Inputs({"t": "x", "n": -1}))


def test_a_step_without_inputs_and_an_unknown_step_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkout"]) == 1
    assert "REMUDA_INPUTS is not set" in capsys.readouterr().out
    assert main(["chekout"]) == 1
    assert "the name of one step is required" in capsys.readouterr().out
