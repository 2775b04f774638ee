"""The example pipeline `fan-out` in a real cell: parallel jobs, `needs` and optional needs."""

import json
from typing import Any


def test_results_of_parallel_jobs_are_merged_along_the_needs(clone: Any) -> None:
    outcome = clone("fan-out").push_and_wait()
    assert outcome.status == "success", outcome.statuses
    assert set(outcome.statuses.values()) == {"success"}
    assert len(outcome.statuses) == 23
    words = json.loads(outcome.files("merge")["words.json"])
    assert (words["the"], words["horse"], words["missing"]) == (9, 3, 1)
    assert outcome.files("total lines") == {"total-lines.txt": "8\n"}
    assert list(outcome.files("split 2/4")) == ["shards/2.txt"]


def test_a_job_waits_for_an_optional_need_that_exists(clone: Any) -> None:
    work = clone("fan-out")
    work.push()
    outcome = work.start_and_wait(variables={"PROOFREAD": "yes"})
    assert outcome.status == "success", outcome.statuses
    assert outcome.output("proofread")[-1] == "reading 3 texts"
    assert outcome.jobs["merge"].started_at >= outcome.jobs["proofread"].finished_at
