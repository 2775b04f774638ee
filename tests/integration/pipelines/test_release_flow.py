from typing import Any

import pytest


def test_a_branch_is_built_with_the_version_that_a_job_found_out(clone: Any) -> None:
    work = clone("release-flow")
    ended = work.pushed()
    assert ended.status == "success", ended.states
    assert ended.pipeline.name == "Build main"
    version = f"0.0.0-dev.{ended.pipeline.iid}"
    assert sorted(ended.files("package")) == [f"herd-{version}.tar.gz", f"herd-{version}.tar.gz.sha256"]
    assert ended.files("notes") == {"CHANGES.md": "* First commit\n"}
    assert work.project.releases.list(get_all=True) == []


def test_a_tag_is_released_and_goes_to_production_by_hand(clone: Any, cell: Any) -> None:
    work = clone("release-flow")
    work.push(quietly=True)
    work.git("tag", "-a", "v1.2.3", "-m", "Third patch")
    ended = work.pushed("v1.2.3")
    assert ended.status == "manual", ended.states
    assert ended.pipeline.name == "Release v1.2.3"
    assert {name: state for name, state in ended.states.items() if state != "success"} == {"production": "manual"}

    [release] = work.project.releases.list(get_all=True)
    assert (release.tag_name, release.name, release.description) == ("v1.2.3", "herd 1.2.3", "* First commit\n")
    links = {link["name"]: link["url"] for link in release.assets["links"]}
    assert links == {
        "herd-1.2.3.tar.gz": "https://downloads.example.com/herd/herd-1.2.3.tar.gz",
        "Manual": "https://docs.example.com/herd/1",
    }

    ended.jobs["production"].play()
    cell.until(lambda: work.project.jobs.get(ended.jobs["production"].id).status == "success", "production is deployed")
    ended = cell.outcome(work.project, ended.pipeline.id)
    assert "deploying herd 1.2.3 to production" in ended.said("production")


@pytest.mark.parametrize(("tag", "jobs"), [("v2.0.0-rc1", {"staging", "smoke"}), ("bookmark", None)])
def test_other_tags(clone: Any, tag: str, jobs: set[str] | None) -> None:
    work = clone("release-flow")
    work.push(quietly=True)
    work.git("tag", tag)
    if jobs is None:
        work.push(tag)
        assert [(pipeline.ref, pipeline.status) for pipeline in work.pipelines()] == [("main", "skipped")]
        return
    ended = work.pushed(tag)
    assert ended.status == "success", ended.states
    assert jobs <= ended.states.keys()
    assert not {"release", "production"} & ended.states.keys()
