from typing import Any

HEAD = "refs/merge-requests/7/head"


def test_a_branch_and_its_merge_request_run_once_each_in_their_turn(clone: Any) -> None:
    work = clone("merge-requests")
    ended = work.pushed()
    assert (ended.status, ended.pipeline.name) == ("success", "Default branch")
    assert ended.states == dict.fromkeys(
        ["old branch check", "old default branch check", "tests", "slow tests", "baseline"], "success"
    )
    assert ended.files("baseline") == {"baseline.txt": "Hello, all.\n"}

    work.git("checkout", "--quiet", "-b", "feature")
    work.commit("Greet louder", **{"greet.sh": '#!/bin/sh\necho "HELLO, ${1:-nobody}!"\n'})
    branch = work.pushed("feature")
    assert (branch.status, branch.pipeline.name) == ("success", "Branch feature")
    assert branch.states == dict.fromkeys(["old branch check", "shell files", "tests"], "success")

    request = work.pushed(f"feature:{HEAD}")
    assert (request.status, request.pipeline.source) == ("success", "merge_request_event")
    assert (request.pipeline.name, request.pipeline.ref) == ("Merge request !7", HEAD)
    assert request.states == {
        **dict.fromkeys(["old merge request check", "commits", "shell files", "tests", "approve"], "success"),
        "slow tests": "manual",
    }
    assert request.files("tests") == {"said.txt": "HELLO, changed!\n"}
    assert "merge request 7" in request.said("commits")[0]

    # From now on the merge request stands for the branch.
    work.commit("Write of it", **{"README.md": "# Greetings\n"})
    request = work.pushed("feature", f"feature:{HEAD}")
    assert request.pipeline.source == "merge_request_event"
    assert request.status == "success", request.states
    assert {"documents", "shell files"} <= request.states.keys()


def test_a_bad_subject_fails_the_merge_request(clone: Any) -> None:
    work = clone("merge-requests")
    work.push(quietly=True)
    work.git("checkout", "--quiet", "-b", "feature")
    work.commit("End with a stop.", **{"notes.txt": "x\n"})
    ended = work.pushed(f"feature:{HEAD}")
    assert ended.status == "failed"
    assert (ended.states["commits"], ended.states["approve"]) == ("failed", "skipped")
    assert not {"documents", "shell files"} & ended.states.keys()
