"""Values of options that several commands share."""

import pytest

from remuda.cli.options import STATUSES, check_status, read_pairs
from remuda.lib.exits import BadInputError
from remuda.model.job import JobState


def test_the_statuses_are_those_of_jobs() -> None:
    assert {*STATUSES, JobState.LEASED.value} == {state.value for state in JobState}


def test_check_status() -> None:
    check_status(None)
    check_status("failed,canceled")
    with pytest.raises(BadInputError, match="did you mean running"):
        check_status("failed,runing")


def test_a_pair_without_a_name_is_refused_and_not_repeated() -> None:
    assert read_pairs("--variable", ["A=b=c", "B="]) == {"A": "b=c", "B": ""}
    for text in ("secret", "=secret"):
        with pytest.raises(BadInputError) as caught:
            read_pairs("--variable", [text])
        assert "secret" not in str(caught.value)
