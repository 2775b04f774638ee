"""The example pipeline `monorepo` in a real cell: child pipelines for changed parts."""

from typing import Any


def test_child_pipelines_run_for_every_part(clone: Any, cell: Any) -> None:
    work = clone("monorepo")
    outcome = work.push_and_wait()
    assert outcome.status == "success", outcome.statuses
    assert outcome.statuses == dict.fromkeys(["plan", "api", "web", "libraries", "report"], "success")
    version = f"1.{outcome.pipeline.iid}"
    assert sorted(outcome.files("report")["report.txt"].splitlines()) == [
        f"{name} {version}" for name in ("api", "money", "slug", "web")
    ]

    api = cell.wait_for_downstream(outcome, "api")
    assert (api.pipeline.source, api.pipeline.sha) == ("parent_pipeline", outcome.pipeline.sha)
    assert api.statuses == dict.fromkeys(["compile", "unit", "package"], "success")
    assert list(api.files("package")) == [f"api-{version}.zip"]

    web = cell.wait_for_downstream(outcome, "web")
    assert web.statuses == dict.fromkeys(["bundle", "check dark page"], "success")
    page = web.files("bundle")["public/index.html"]
    assert f"<title>Shop {version}</title>" in page
    assert '<body class="dark">' in page

    libraries = cell.wait_for_downstream(outcome, "libraries")
    assert libraries.statuses == dict.fromkeys(["money", "slug", "index"], "success")
    assert libraries.files("index")["index.list"] == f"money {version} is good\nslug {version} is good\n"
    # Child pipelines are not in the project's list of pipelines.
    assert [pipeline.id for pipeline in work.pipelines()] == [outcome.pipeline.id]


def test_only_the_child_pipeline_of_the_changed_part_runs(clone: Any, cell: Any) -> None:
    work = clone("monorepo")
    work.push(quietly=True)
    page = (work.folder / "services/web/page.html").read_text()
    work.commit("Change a page", **{"services/web/page.html": page.replace("Everything", "All")})
    outcome = work.push_and_wait()
    assert outcome.statuses == dict.fromkeys(["plan", "web", "report"], "success")
    assert "All must go" in cell.wait_for_downstream(outcome, "web").files("bundle")["public/index.html"]


def test_a_failed_child_pipeline_fails_its_parent(clone: Any, cell: Any) -> None:
    work = clone("monorepo")
    work.push(quietly=True)
    library = (work.folder / "libs/slug/slug.py").read_text()
    work.commit("Break a library", **{"libs/slug/slug.py": library.replace(".strip", ".lstrip")})
    outcome = work.push_and_wait()
    assert outcome.status == "failed", outcome.statuses
    assert outcome.statuses == {
        "plan": "success",
        "api": "success",
        "web": "success",
        "libraries": "failed",
        "report": "skipped",
    }
    libraries = cell.wait_for_downstream(outcome, "libraries")
    assert libraries.statuses == {"money": "success", "slug": "failed", "index": "skipped"}


def test_a_canceled_parent_cancels_its_child_pipelines(clone: Any, cell: Any) -> None:
    work = clone("monorepo")
    work.push(quietly=True)
    begun = cell.lab.folder / "a-child-runs"
    child = (work.folder / "services/web/.gitlab-ci.yml").read_text()
    slow = child.replace("    - mkdir -p public", f"    - touch {begun}\n    - sleep 600\n    - mkdir -p public")
    work.commit("Take long", **{"services/web/.gitlab-ci.yml": slow})
    work.push()
    [parent, *_] = work.pipelines()
    cell.until(begun.exists, "the child's job runs")
    work.project.pipelines.get(parent.id).cancel()
    outcome = cell.wait_for_pipeline(work.project, parent.id, rest=frozenset({"canceled"}))
    assert outcome.statuses == {"plan": "success", "web": "canceled", "report": "canceled"}
    web = cell.wait_for_downstream(outcome, "web")
    assert web.statuses == dict.fromkeys(["bundle", "check dark page"], "canceled")
