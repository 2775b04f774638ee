"""The example pipeline `release-flow` in a real cell: versions in dotenv, tags, releases and manual deployment."""

from typing import Any

import pytest


def test_a_branch_is_built_with_the_version_of_an_earlier_job(clone: Any) -> None:
    work = clone("release-flow")
    outcome = work.push_and_wait()
    assert outcome.status == "success", outcome.statuses
    assert outcome.pipeline.name == "Build main"
    version = f"0.0.0-dev.{outcome.pipeline.iid}"
    assert sorted(outcome.files("package")) == [f"herd-{version}.tar.gz", f"herd-{version}.tar.gz.sha256"]
    assert outcome.files("notes") == {"CHANGES.md": "* First commit\n"}
    assert work.project.releases.list(get_all=True) == []


def test_a_tag_is_released_and_deployed_to_production_manually(clone: Any, cell: Any) -> None:
    work = clone("release-flow")
    work.push(quietly=True)
    work.git("tag", "-a", "v1.2.3", "-m", "Third patch")
    outcome = work.push_and_wait("v1.2.3")
    assert outcome.status == "manual", outcome.statuses
    assert outcome.pipeline.name == "Release v1.2.3"
    assert {name: state for name, state in outcome.statuses.items() if state != "success"} == {"production": "manual"}

    [release] = work.project.releases.list(get_all=True)
    assert (release.tag_name, release.name, release.description) == ("v1.2.3", "herd 1.2.3", "* First commit\n")
    links = {link["name"]: link["url"] for link in release.assets["links"]}
    assert links == {
        "herd-1.2.3.tar.gz": "https://downloads.example.com/herd/herd-1.2.3.tar.gz",
        "Manual": "https://docs.example.com/herd/1",
    }

    outcome.jobs["production"].play()
    cell.until(
        lambda: work.project.jobs.get(outcome.jobs["production"].id).status == "success", "production is deployed"
    )
    outcome = cell.wait_for_pipeline(work.project, outcome.pipeline.id)
    assert "deploying herd 1.2.3 to production" in outcome.output("production")


@pytest.mark.parametrize(("tag", "jobs"), [("v2.0.0-rc1", {"staging", "smoke"}), ("bookmark", None)])
def test_prerelease_and_other_tags_are_not_released(clone: Any, tag: str, jobs: set[str] | None) -> None:
    work = clone("release-flow")
    work.push(quietly=True)
    work.git("tag", tag)
    if jobs is None:
        work.push(tag)
        assert [(pipeline.ref, pipeline.status) for pipeline in work.pipelines()] == [("main", "skipped")]
        return
    outcome = work.push_and_wait(tag)
    assert outcome.status == "success", outcome.statuses
    assert jobs <= outcome.statuses.keys()
    assert not {"release", "production"} & outcome.statuses.keys()
