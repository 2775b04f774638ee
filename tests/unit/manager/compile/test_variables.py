"""Expansion of references between variables, and its limits."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.manager.compile.variables import LONGEST_VALUE, Variables
from remuda.wire.runner_api import Variable


def expand(*variables: Variable) -> dict[str, str]:
    return {variable.key: variable.value for variable in Variables(variables).expand_all()}


def var(key: str, value: str, *, raw: bool = False, file: bool = False) -> Variable:
    return Variable(key=key, value=value, raw=raw, file=file)


def test_references_are_replaced_in_any_order() -> None:
    assert expand(var("FULL", "$FIRST ${LAST}"), var("FIRST", "Ada"), var("LAST", "L${X}"), var("X", "ovelace")) == {
        "FULL": "Ada Lovelace",
        "FIRST": "Ada",
        "LAST": "Lovelace",
        "X": "ovelace",
    }


def test_raw_values_are_not_expanded() -> None:
    assert expand(var("RAW", "$A", raw=True), var("A", "x"), var("B", "<$RAW>"))["B"] == "<$A>"


def test_unknown_names_are_empty_and_a_double_dollar_is_a_dollar() -> None:
    assert expand(var("A", "a$NONE-b$$c$1d"))["A"] == "a-b$cd"


def test_the_last_variable_of_a_name_wins() -> None:
    assert expand(var("A", "1"), var("A", "2"), var("B", "$A")) == {"A": "2", "B": "2"}


def test_circular_references_stay_as_written() -> None:
    assert expand(var("A", "a$B"), var("B", "b$A"), var("SELF", "x$SELF")) == {
        "A": "ab$A",
        "B": "b$A",
        "SELF": "x$SELF",
    }


def test_values_have_a_maximum_length() -> None:
    bomb = [var(f"V{n}", f"$V{n + 1}$V{n + 1}") for n in range(40)]
    assert all(len(value) <= LONGEST_VALUE for value in expand(*bomb, var("V40", "x" * 100)).values())
    wide = expand(var("BIG", "x" * LONGEST_VALUE), var("WIDE", "$BIG" * 1000))
    assert wide["WIDE"] == "$BIG" * 1000


def test_references_to_file_variables_are_not_replaced() -> None:
    assert expand(var("CONF", "content", file=True), var("OPTION", "--config=$CONF"))["OPTION"] == "--config=$CONF"


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.text(alphabet="$ABC{}x", max_size=12))))
def test_any_text_can_be_expanded(pairs: list[tuple[str, str]]) -> None:
    expand(*(var(key, value) for key, value in pairs))
