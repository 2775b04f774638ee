"""Variables refer to each other, within bounds."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.manager.compile.variables import LONGEST_VALUE, Variables
from remuda.wire.runner_api import Variable


def values(*variables: Variable) -> dict[str, str]:
    return {variable.key: variable.value for variable in Variables(variables).expand_all()}


def a(key: str, value: str, *, raw: bool = False, file: bool = False) -> Variable:
    return Variable(key=key, value=value, raw=raw, file=file)


def test_references_are_replaced_in_any_order() -> None:
    assert values(a("FULL", "$FIRST ${LAST}"), a("FIRST", "Ada"), a("LAST", "L${X}"), a("X", "ovelace")) == {
        "FULL": "Ada Lovelace",
        "FIRST": "Ada",
        "LAST": "Lovelace",
        "X": "ovelace",
    }


def test_raw_values_stay_and_are_not_looked_into() -> None:
    assert values(a("RAW", "$A", raw=True), a("A", "x"), a("B", "<$RAW>"))["B"] == "<$A>"


def test_unknown_names_are_empty_and_a_double_dollar_is_one() -> None:
    assert values(a("A", "a$NONE-b$$c$1d"))["A"] == "a-b$cd"


def test_the_last_one_of_a_name_wins() -> None:
    assert values(a("A", "1"), a("A", "2"), a("B", "$A")) == {"A": "2", "B": "2"}


def test_a_circle_stays_as_written() -> None:
    assert values(a("A", "a$B"), a("B", "b$A"), a("SELF", "x$SELF")) == {"A": "ab$A", "B": "b$A", "SELF": "x$SELF"}


def test_a_value_that_would_grow_without_bound_stays_as_written() -> None:
    bomb = [a(f"V{n}", f"$V{n + 1}$V{n + 1}") for n in range(40)]
    assert all(len(value) <= LONGEST_VALUE for value in values(*bomb, a("V40", "x" * 100)).values())
    wide = values(a("BIG", "x" * LONGEST_VALUE), a("WIDE", "$BIG" * 1000))
    assert wide["WIDE"] == "$BIG" * 1000


def test_a_file_variable_is_referred_to_by_name() -> None:
    assert values(a("CONF", "content", file=True), a("OPTION", "--config=$CONF"))["OPTION"] == "--config=$CONF"


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.text(alphabet="$ABC{}x", max_size=12))))
def test_no_text_breaks_it(pairs: list[tuple[str, str]]) -> None:
    values(*(a(key, value) for key, value in pairs))
