from typing import Any


def test_the_site_is_rendered_checked_and_published(clone: Any) -> None:
    ended = clone("docs-site").pushed()
    assert ended.status == "success", ended.states
    assert ended.states == {
        **dict.fromkeys(["render", "links", "sitemap", "pages"], "success"),
        "words": "failed",
    }
    public = ended.files("pages")
    assert sorted(public) == ["public/hay.html", "public/index.html", "public/riding.html"]
    assert "Hay costs $12 a bale." in public["public/hay.html"]
    assert ended.files("sitemap") == {"sitemap.txt": "hay.html\nindex.html\nriding.html\n"}
    assert "uses a word that the guide asks to avoid" in ended.said("words")[-1]
    assert "words ended with failed" in ended.trace("words")
    assert "render ended with success" in ended.trace("render")


def test_only_a_change_of_the_site_starts_a_pipeline(clone: Any) -> None:
    work = clone("docs-site")
    work.push(quietly=True)
    work.commit("Mention nothing", **{"README.md": "# Another\n"})
    work.push()
    assert len(work.pipelines()) == 1
    work.commit("Add a page", **{"pages/mules.md": "# Mules\n\nBack to the [start](index.md).\n"})
    ended = work.pushed()
    assert ended.status == "success", ended.states
    assert "public/mules.html" in ended.files("pages")


def test_a_branch_gets_a_preview(clone: Any) -> None:
    work = clone("docs-site")
    work.push(quietly=True)
    ended = work.pushed("main:next")
    assert ended.status == "success", ended.states
    assert "pages" not in ended.states
    assert "next-preview/index.html" in ended.files("preview")


def test_a_dead_link_keeps_the_site_from_being_published(clone: Any) -> None:
    work = clone("docs-site")
    work.commit("Link nowhere", **{"pages/lost.md": "# Lost\n\nSee [this](nowhere.md).\n"})
    ended = work.pushed()
    assert ended.status == "failed"
    assert (ended.states["links"], ended.states["pages"]) == ("failed", "skipped")
    assert ended.said("links")[-1] == "lost.html: nowhere.html"
