"""The example pipeline `web-app` in a real cell: caches, review apps and redundant pipelines."""

from typing import Any


def test_the_second_pipeline_uses_the_cache(clone: Any, cell: Any) -> None:
    work = clone("web-app")
    outcome = work.push_and_wait()
    assert outcome.status == "success", outcome.statuses
    assert outcome.statuses == {
        **dict.fromkeys(["install", "lint", "unit 1/2", "unit 2/2", "bundle", "staging"], "success"),
        "unit of the old engine": "failed",
        "production": "manual",
    }
    assert outcome.output("install")[-1] == "new, 2 fetched"
    # Jobs of the same pipeline read the cache that `install` saved.
    assert "node_modules new, 2 fetched" in outcome.output("lint")
    assert outcome.files("bundle")["dist/app.js"].startswith("// production\n")
    assert "gait is installed" in outcome.report("unit 1/2", "junit")

    work.commit("Change the app", **{"src/more.js": "export const more = 1;\n"})
    second = work.push_and_wait()
    assert second.output("install")[-1] == "from the cache, 0 fetched"

    # Another lock file is another cache key; the downloaded packages are still in their cache.
    lock = (work.folder / "package-lock.json").read_text().replace('"lockfileVersion": 3', '"lockfileVersion": 4')
    work.commit("Change the lock", **{"package-lock.json": lock})
    third = work.push_and_wait()
    assert third.output("install")[-1] == "new, 0 fetched"


def test_a_branch_has_a_review_app_that_can_be_stopped(clone: Any, cell: Any) -> None:
    work = clone("web-app")
    work.push(quietly=True)
    outcome = work.push_and_wait("main:feature/paddock")
    assert outcome.status == "success", outcome.statuses
    assert (outcome.statuses["review"], outcome.statuses["stop review"]) == ("success", "manual")
    assert "to review/feature-paddock" in outcome.output("review")[-1]
    outcome.jobs["stop review"].play()
    cell.until(lambda: work.project.jobs.get(outcome.jobs["stop review"].id).status == "success", "the app is stopped")


def test_a_newer_push_cancels_interruptible_jobs(clone: Any, cell: Any) -> None:
    work = clone("web-app")
    work.push(quietly=True)
    gate = cell.lab.folder / "never"
    tool = (work.folder / "tools/npm").read_text()
    waits = tool.replace("MODULES = ", f"while not Path({str(gate)!r}).exists():\n    pass\nMODULES = ", 1)
    work.commit("Wait for ever", **{"tools/npm": waits})
    work.push("main:feature/slow")
    old = work.pipelines(ref="feature/slow")[0]
    cell.until(lambda: work.project.pipelines.get(old.id).status == "running", "the first job runs")
    work.commit("Do not wait", **{"tools/npm": tool})
    new = work.push_and_wait("main:feature/slow")
    assert new.status == "success", new.statuses
    outcome = cell.wait_for_pipeline(work.project, old.id)
    assert outcome.status == "canceled", outcome.statuses
    assert outcome.statuses["install"] == "canceled"
