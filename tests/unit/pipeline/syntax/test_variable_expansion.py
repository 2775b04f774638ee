import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.pipeline.syntax.variable_expansion import Expansion, ExpansionError, expand


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$A", "a"),
        ("${A}b", "ab"),
        ("$A$B", "aa-b"),
        ("$GONE.", "."),
        ("$$A", "$A"),
        ("$$$A", "$a"),
        ("$", "$"),
        ("$1", "$1"),
        ("${A", "${A"),
        ("$B", "a-b"),
        ("$RAW", "$A"),
        ("$LOOP", "x$LOOP"),
    ],
)
def test_expand(text: str, expected: str) -> None:
    variables = {"A": "a", "B": "$A-b", "RAW": "$A", "LOOP": "x$LOOP"}
    assert expand(text, variables, raw={"RAW"}) == expected


def test_unknown_names_may_stay() -> None:
    assert Expansion({"A": "a"}, keep_unknown=True).expand("$A ${B} $C") == "a ${B} $C"


@pytest.mark.parametrize("last", ["x", ""])
def test_values_that_grow_exponentially_are_refused(last: str) -> None:
    variables = {f"V{index}": f"$V{index + 1}$V{index + 1}" for index in range(40)} | {"V40": last}
    with pytest.raises(ExpansionError):
        expand("$V0", variables)


@given(st.text(alphabet="$AB{} x", max_size=20), st.dictionaries(st.sampled_from("AB"), st.text("$AB{}x", max_size=8)))
def test_any_text_can_be_expanded(text: str, variables: dict[str, str]) -> None:
    expand(text, variables)
