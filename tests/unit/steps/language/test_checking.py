import pytest

from remuda.steps.language.checking import check_inputs, check_outputs
from remuda.steps.language.errors import CheckError, ExpressionError
from remuda.steps.language.sensitive import Sensitive
from remuda.steps.language.values import Parameter, Spec, ValueType

VALUES = {
    ValueType.STRING: "x",
    ValueType.NUMBER: 1.5,
    ValueType.BOOLEAN: False,
    ValueType.STRUCT: {"a": 1},
    ValueType.ARRAY: [1],
}


@pytest.mark.parametrize("declared", list(ValueType))
def test_every_type_accepts_only_its_values(declared: ValueType) -> None:
    spec = Spec(inputs={"v": Parameter(type=declared)}, outputs={"v": Parameter(type=declared)})
    for kind, value in VALUES.items():
        for check in (check_inputs, check_outputs):
            if kind is declared:
                assert check(spec, {"v": value}) == {"v": value}
            else:
                with pytest.raises(CheckError, match=f'put "v": an? {declared} is needed, not an? {kind}'):
                    check(spec, {"v": value})
    with pytest.raises(CheckError, match="not null"):
        check_inputs(spec, {"v": None})


def test_names_are_checked() -> None:
    spec = Spec(inputs={"version": Parameter(type=ValueType.STRING)})
    with pytest.raises(CheckError) as caught:
        check_inputs(spec, {"verison": "1", "w": 2})
    assert str(caught.value) == (
        'step does not accept input with name "verison"; did you mean "version"?; '
        'step does not accept input with name "w"; input "version" required, but not defined'
    )


def test_missing_values_get_their_defaults() -> None:
    spec = Spec(
        inputs={"a": Parameter(type=ValueType.NUMBER, default=0)},
        outputs={"b": Parameter(type=ValueType.ARRAY, default=[])},
    )
    assert check_inputs(spec, {}) == {"a": 0}
    assert check_inputs(spec, {"a": 1}) == {"a": 1}
    assert check_outputs(spec, {}) == {"b": []}


def test_declared_sensitive_values_are_marked_once() -> None:
    secret = Parameter(type=ValueType.STRING, sensitive=True)
    spec = Spec(inputs={"a": secret, "b": secret}, outputs={"a": secret, "c": Parameter(type=ValueType.STRING)})
    assert check_inputs(spec, {"a": "x", "b": Sensitive("y")}) == {"a": Sensitive("x"), "b": Sensitive("y")}
    assert check_outputs(spec, {"a": "x", "c": Sensitive("y")}) == {"a": Sensitive("x"), "c": Sensitive("y")}


def test_the_type_of_a_sensitive_value_is_checked_too() -> None:
    spec = Spec(inputs={"a": Parameter(type=ValueType.STRING, sensitive=True)})
    with pytest.raises(CheckError, match="a string is needed, not a number"):
        check_inputs(spec, {"a": Sensitive(5)})


def test_too_deeply_nested_values_are_refused() -> None:
    deep: object = 1
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ExpressionError, match="levels deep"):
        check_inputs(Spec(inputs={"a": Parameter(type=ValueType.ARRAY)}), {"a": deep})
