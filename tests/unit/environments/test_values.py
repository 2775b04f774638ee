"""A Place is the same after conversion to its wire message and back. Also the template and the names of plugins."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.environments.template import files, is_name
from remuda.environments.values import Place, from_wire, to_wire

TEXTS = st.text(max_size=20)


@given(
    st.builds(
        Place,
        key=TEXTS,
        runner=TEXTS,
        slot=st.integers(min_value=0, max_value=2**31 - 1),
        project=TEXTS,
        builds_dir=TEXTS,
        job=st.none() | st.integers(min_value=0, max_value=2**63 - 1),
        run_as=TEXTS,
        before_job=TEXTS,
    )
)
def test_a_place_is_the_same_on_both_sides(place: Place) -> None:
    assert from_wire(to_wire(place)) == place


def test_the_template_is_python_with_a_name_of_its_own() -> None:
    program, text = next(iter(files("my-cloud").items()))
    assert program == "remuda-environment-my-cloud"
    assert "class MyCloudEnvironment(Plugin):" in text
    assert "@" not in text
    compile(text, program, "exec")


def test_names_of_plugins() -> None:
    assert is_name("cloud-2")
    for wrong in ("", "Cloud", "2", "a/b", "a b", "-a"):
        assert not is_name(wrong)
