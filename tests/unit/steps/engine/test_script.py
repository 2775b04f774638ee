import subprocess

from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.engine.script import echo_of, script_text

GREEN, PLAIN = "\033[32;1m", "\033[0;m"


def test_commands_of_a_list_are_echoed_and_a_single_text_is_not() -> None:
    assert script_text("make", bash=True, variables={}) == "set -eo pipefail\nmake\n"
    text = script_text(["make", "a\nb"], bash=False, variables={"X": "it's"})
    assert text.splitlines() == [
        "X='it'\"'\"'s'",
        "set -e",
        f"printf '%s\\n' '{GREEN}$ make{PLAIN}'",
        "make",
        f"printf '%s\\n' '{GREEN}$ a # collapsed multi-line command{PLAIN}'",
        "a",
        "b",
    ]


def test_a_trailing_newline_is_not_a_second_line() -> None:
    assert echo_of("make\n") == f"{GREEN}$ make{PLAIN}"
    assert echo_of("\nmake\nx\n") == f"{GREEN}$ make # collapsed multi-line command{PLAIN}"


@given(st.text(st.characters(blacklist_characters="\0\n", blacklist_categories=["Cs"]), min_size=1, max_size=20))
def test_any_command_is_echoed_unchanged(command: str) -> None:
    echo = script_text([command], bash=True, variables={}).split("\n")[1]
    completed = subprocess.run(["sh", "-c", echo], capture_output=True, check=True)
    assert completed.stdout.decode() == f"{GREEN}$ {command}{PLAIN}\n"
