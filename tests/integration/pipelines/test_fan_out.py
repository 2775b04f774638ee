import json
from typing import Any


def test_counts_come_together_along_the_needs(clone: Any) -> None:
    ended = clone("fan-out").pushed()
    assert ended.status == "success", ended.states
    assert set(ended.states.values()) == {"success"}
    assert len(ended.states) == 23
    words = json.loads(ended.files("merge")["words.json"])
    assert (words["the"], words["horse"], words["missing"]) == (9, 3, 1)
    assert ended.files("total lines") == {"total-lines.txt": "8\n"}
    assert list(ended.files("split 2/4")) == ["shards/2.txt"]


def test_an_optional_need_is_waited_for_when_it_is_there(clone: Any) -> None:
    work = clone("fan-out")
    work.push()
    ended = work.started(variables={"PROOFREAD": "yes"})
    assert ended.status == "success", ended.states
    assert ended.said("proofread")[-1] == "reading 3 texts"
    assert ended.jobs["merge"].started_at >= ended.jobs["proofread"].finished_at
