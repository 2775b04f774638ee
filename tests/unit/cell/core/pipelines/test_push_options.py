"""Parsing of git push options."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.pipelines.push_options import PushOptions, read_push_options, why_ignored
from remuda.cell.values.pipeline_requests import ListChange


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
            "merge_request.milestone=1.0",
            "merge_request.draft",
            "merge_request.label=bug",
            "merge_request.label=later, urgent",
            "merge_request.unlabel=old",
            "merge_request.assign=ada",
            "merge_request.unassign=bob",
        ]
    )
    assert options == PushOptions(
        skip=True,
        variables={"A": "3", "B": ""},
        inputs={"count": 3, "list": ["a"], "text": "it is", "quoted": "1.0"},
        merge_request={
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
            "CI_MERGE_REQUEST_TITLE": "Draft: a = b",
            "CI_MERGE_REQUEST_MILESTONE": "1.0",
            "CI_MERGE_REQUEST_DRAFT": "true",
        },
        merge_request_lists={
            "CI_MERGE_REQUEST_LABELS": ListChange(add=("bug", "later", "urgent"), remove=("old",)),
            "CI_MERGE_REQUEST_ASSIGNEES": ListChange(add=("ada",), remove=("bob",)),
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
        "merge_request.label=",
        "merge_request.label",
    )
    options = read_push_options(["", "something=else", "merge_request.create", *malformed])
    assert options == PushOptions(ignored=malformed)


def test_a_misspelt_option_of_ci_is_not_passed_over_silently() -> None:
    names = ("ci.skp", "ci.variables=A=b", "ci.variable=A")
    assert read_push_options(names) == PushOptions(ignored=names)
    assert [why_ignored(option) for option in names] == [
        'there is no such option; did you mean "ci.skip"?',
        'there is no such option; did you mean "ci.variable"?',
        "its value is not valid",
    ]
    assert why_ignored("ci.x") == "there is no such option"


def test_a_list_is_changed() -> None:
    change = ListChange(add=("b", "c"), remove=("a",))
    assert change.apply("") == "b,c"
    assert change.apply("a,b,d") == "b,d,c"
    assert ListChange().apply("a,b") == "a,b"


@given(st.lists(st.text()))
def test_any_text_can_be_parsed(options: list[str]) -> None:
    read_push_options([*options, *(f"ci.input=a={option}" for option in options)])
