from typing import Any


def test_the_second_pipeline_finds_the_cache(clone: Any, cell: Any) -> None:
    work = clone("web-app")
    ended = work.pushed()
    assert ended.status == "success", ended.states
    assert ended.states == {
        **dict.fromkeys(["install", "lint", "unit 1/2", "unit 2/2", "bundle", "staging"], "success"),
        "unit of the old engine": "failed",
        "production": "manual",
    }
    assert ended.said("install")[-1] == "new, 2 fetched"
    # Jobs of the same pipeline read what `install` saved.
    assert "node_modules new, 2 fetched" in ended.said("lint")
    assert ended.files("bundle")["dist/app.js"].startswith("// production\n")
    assert "gait is installed" in ended.report("unit 1/2", "junit")

    work.commit("Change the app", **{"src/more.js": "export const more = 1;\n"})
    again = work.pushed()
    assert again.said("install")[-1] == "from the cache, 0 fetched"

    # Another lock file is another key; what was downloaded is still there.
    lock = (work.folder / "package-lock.json").read_text().replace('"lockfileVersion": 3', '"lockfileVersion": 4')
    work.commit("Change the lock", **{"package-lock.json": lock})
    changed = work.pushed()
    assert changed.said("install")[-1] == "new, 0 fetched"


def test_a_branch_has_a_review_app_that_can_be_stopped(clone: Any, cell: Any) -> None:
    work = clone("web-app")
    work.push(quietly=True)
    ended = work.pushed("main:feature/paddock")
    assert ended.status == "success", ended.states
    assert (ended.states["review"], ended.states["stop review"]) == ("success", "manual")
    assert "to review/feature-paddock" in ended.said("review")[-1]
    ended.jobs["stop review"].play()
    cell.until(lambda: work.project.jobs.get(ended.jobs["stop review"].id).status == "success", "the app is stopped")


def test_a_newer_push_cancels_what_may_be_interrupted(clone: Any, cell: Any) -> None:
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
    new = work.pushed("main:feature/slow")
    assert new.status == "success", new.states
    ended = cell.outcome(work.project, old.id)
    assert ended.status == "canceled", ended.states
    assert ended.states["install"] == "canceled"
