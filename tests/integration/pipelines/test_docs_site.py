"""The example pipeline `docs-site` in a real cell: pages, previews and `workflow` rules for changes."""

from typing import Any


def test_the_site_is_rendered_checked_and_published(clone: Any) -> None:
    outcome = clone("docs-site").push_and_wait()
    assert outcome.status == "success", outcome.statuses
    assert outcome.statuses == {
        **dict.fromkeys(["render", "links", "sitemap", "pages"], "success"),
        "words": "failed",
    }
    public = outcome.files("pages")
    assert sorted(public) == ["public/hay.html", "public/index.html", "public/riding.html"]
    assert "Hay costs $12 a bale." in public["public/hay.html"]
    assert outcome.files("sitemap") == {"sitemap.txt": "hay.html\nindex.html\nriding.html\n"}
    assert "uses a word that the guide asks to avoid" in outcome.output("words")[-1]
    assert "words ended with failed" in outcome.trace("words")
    assert "render ended with success" in outcome.trace("render")


def test_only_a_change_of_the_site_starts_a_pipeline(clone: Any) -> None:
    work = clone("docs-site")
    work.push(quietly=True)
    work.commit("Mention nothing", **{"README.md": "# Another\n"})
    work.push()
    assert len(work.pipelines()) == 1
    work.commit("Add a page", **{"pages/mules.md": "# Mules\n\nBack to the [start](index.md).\n"})
    outcome = work.push_and_wait()
    assert outcome.status == "success", outcome.statuses
    assert "public/mules.html" in outcome.files("pages")


def test_a_branch_gets_a_preview(clone: Any) -> None:
    work = clone("docs-site")
    work.push(quietly=True)
    outcome = work.push_and_wait("main:next")
    assert outcome.status == "success", outcome.statuses
    assert "pages" not in outcome.statuses
    assert "next-preview/index.html" in outcome.files("preview")


def test_a_dead_link_prevents_publishing(clone: Any) -> None:
    work = clone("docs-site")
    work.commit("Link nowhere", **{"pages/lost.md": "# Lost\n\nSee [this](nowhere.md).\n"})
    outcome = work.push_and_wait()
    assert outcome.status == "failed"
    assert (outcome.statuses["links"], outcome.statuses["pages"]) == ("failed", "skipped")
    assert outcome.output("links")[-1] == "lost.html: nowhere.html"
