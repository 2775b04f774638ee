"""Parsing of git push options."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.pipelines.push_options import PushOptions, read_push_options


def test_valid_options() -> None:
    options = read_push_options(
        [
            "ci.skip",
            "ci.variable=A=1=2",
            "ci.variable=B=",
            "ci.variable=A=3",
            "ci.input=count=3",
            'ci.input=list=["a"]',
            "ci.input=text=it is",
            'ci.input=quoted="1.0"',
            "merge_request.target=main",
            "merge_request.title=a = b",
        ]
    )
    assert options == PushOptions(
        skip=True,
        variables={"A": "3", "B": ""},
        inputs={"count": 3, "list": ["a"], "text": "it is", "quoted": "1.0"},
        merge_request={
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
            "CI_MERGE_REQUEST_TITLE": "a = b",
        },
    )


def test_unknown_and_malformed_options() -> None:
    malformed = (
        "ci.variable",
        "ci.variable=A",
        "ci.variable=1=x",
        "ci.variable=a b=x",
        "ci.input=x",
        "merge_request.target=",
    )
    options = read_push_options(["", "something=else", "ci.skipped", *malformed])
    assert options == PushOptions(ignored=malformed)


@given(st.lists(st.text()))
def test_any_text_can_be_parsed(options: list[str]) -> None:
    read_push_options([*options, *(f"ci.input=a={option}" for option in options)])
