from typing import Any


def test_children_run_for_every_part(clone: Any, cell: Any) -> None:
    work = clone("monorepo")
    ended = work.pushed()
    assert ended.status == "success", ended.states
    assert ended.states == dict.fromkeys(["plan", "api", "web", "libraries", "report"], "success")
    version = f"1.{ended.pipeline.iid}"
    assert sorted(ended.files("report")["report.txt"].splitlines()) == [
        f"{name} {version}" for name in ("api", "money", "slug", "web")
    ]

    api = cell.downstream(ended, "api")
    assert (api.pipeline.source, api.pipeline.sha) == ("parent_pipeline", ended.pipeline.sha)
    assert api.states == dict.fromkeys(["compile", "unit", "package"], "success")
    assert list(api.files("package")) == [f"api-{version}.zip"]

    web = cell.downstream(ended, "web")
    assert web.states == dict.fromkeys(["bundle", "check dark page"], "success")
    page = web.files("bundle")["public/index.html"]
    assert f"<title>Shop {version}</title>" in page
    assert '<body class="dark">' in page

    libraries = cell.downstream(ended, "libraries")
    assert libraries.states == dict.fromkeys(["money", "slug", "index"], "success")
    assert libraries.files("index")["index.list"] == f"money {version} is good\nslug {version} is good\n"
    # Children belong to their parent and are not listed beside it.
    assert [pipeline.id for pipeline in work.pipelines()] == [ended.pipeline.id]


def test_only_the_child_of_what_changed_runs(clone: Any, cell: Any) -> None:
    work = clone("monorepo")
    work.push(quietly=True)
    page = (work.folder / "services/web/page.html").read_text()
    work.commit("Change a page", **{"services/web/page.html": page.replace("Everything", "All")})
    ended = work.pushed()
    assert ended.states == dict.fromkeys(["plan", "web", "report"], "success")
    assert "All must go" in cell.downstream(ended, "web").files("bundle")["public/index.html"]


def test_a_child_that_fails_fails_its_parent(clone: Any, cell: Any) -> None:
    work = clone("monorepo")
    work.push(quietly=True)
    library = (work.folder / "libs/slug/slug.py").read_text()
    work.commit("Break a library", **{"libs/slug/slug.py": library.replace(".strip", ".lstrip")})
    ended = work.pushed()
    assert ended.status == "failed", ended.states
    assert ended.states == {
        "plan": "success",
        "api": "success",
        "web": "success",
        "libraries": "failed",
        "report": "skipped",
    }
    libraries = cell.downstream(ended, "libraries")
    assert libraries.states == {"money": "success", "slug": "failed", "index": "skipped"}


def test_a_canceled_parent_takes_its_children_along(clone: Any, cell: Any) -> None:
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
    ended = cell.outcome(work.project, parent.id, rest=frozenset({"canceled"}))
    assert ended.states == {"plan": "success", "web": "canceled", "report": "canceled"}
    web = cell.downstream(ended, "web")
    assert web.states == dict.fromkeys(["bundle", "check dark page"], "canceled")
