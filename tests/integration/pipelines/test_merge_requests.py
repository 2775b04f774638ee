"""The example pipeline `merge-requests` in a real cell: branch and merge request pipelines."""

from typing import Any

HEAD = "refs/merge-requests/7/head"


def test_a_branch_or_its_merge_request_has_one_pipeline_per_push(clone: Any) -> None:
    work = clone("merge-requests")
    outcome = work.push_and_wait()
    assert (outcome.status, outcome.pipeline.name) == ("success", "Default branch")
    assert outcome.statuses == dict.fromkeys(
        ["old branch check", "old default branch check", "tests", "slow tests", "baseline"], "success"
    )
    assert outcome.files("baseline") == {"baseline.txt": "Hello, all.\n"}

    work.git("checkout", "--quiet", "-b", "feature")
    work.commit("Greet louder", **{"greet.sh": '#!/bin/sh\necho "HELLO, ${1:-nobody}!"\n'})
    branch = work.push_and_wait("feature")
    assert (branch.status, branch.pipeline.name) == ("success", "Branch feature")
    assert branch.statuses == dict.fromkeys(["old branch check", "shell files", "tests"], "success")

    request = work.push_and_wait(f"feature:{HEAD}")
    assert (request.status, request.pipeline.source) == ("success", "merge_request_event")
    assert (request.pipeline.name, request.pipeline.ref) == ("Merge request !7", HEAD)
    assert request.statuses == {
        **dict.fromkeys(["old merge request check", "commits", "shell files", "tests", "approve"], "success"),
        "slow tests": "manual",
    }
    assert request.files("tests") == {"said.txt": "HELLO, changed!\n"}
    assert "merge request 7" in request.output("commits")[0]

    # From now on only the merge request has a pipeline, not the branch.
    work.commit("Write of it", **{"README.md": "# Greetings\n"})
    request = work.push_and_wait("feature", f"feature:{HEAD}")
    assert request.pipeline.source == "merge_request_event"
    assert request.status == "success", request.statuses
    assert {"documents", "shell files"} <= request.statuses.keys()


def test_a_bad_subject_fails_the_merge_request(clone: Any) -> None:
    work = clone("merge-requests")
    work.push(quietly=True)
    work.git("checkout", "--quiet", "-b", "feature")
    work.commit("End with a stop.", **{"notes.txt": "x\n"})
    outcome = work.push_and_wait(f"feature:{HEAD}")
    assert outcome.status == "failed"
    assert (outcome.statuses["commits"], outcome.statuses["approve"]) == ("failed", "skipped")
    assert not {"documents", "shell files"} & outcome.statuses.keys()
