"""The pipeline editor: mistakes while one types, the jobs of the file, committing, and leaving with unsaved changes."""

import pytest
from playwright.sync_api import Dialog, Route, expect
from tests.support.browser import Tab
from tests.support.cells.people import add_member, create_person
from tests.support.cells.served_cell import ServedCell, commit_file
from tests.support.web_pages import HOSTILE, check_pages

FILE = """\
stages: [build, test]
build:
  stage: build
  script: [make]
unit:
  stage: test
  needs: [build]
  script: [make test]
"""


def _type(tab: Tab, text: str) -> None:
    tab.find("source").fill(text)


def _agree_to_dialogs(tab: Tab) -> list[str]:
    """Accept every dialog of the browser from now on. Returns the list of their kinds, which grows."""
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    tab.page.on("dialog", answer)
    return asked


def test_mistakes_appear_with_their_place_and_lead_to_it(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("shop", FILE)
    tab.page.goto("/root/shop/-/editor")
    expect(tab.find("verdict")).to_have_text("Valid: 2 jobs")
    expect(tab.find("graph-job")).to_have_count(2)
    expect(tab.find("graph").locator("path")).to_have_count(1)
    _type(tab, FILE.replace("  needs: [build]", "  neds: [build]"))
    expect(tab.find("verdict")).to_have_text("1 mistake")
    expect(tab.find("mistake")).to_contain_text("7:3")
    expect(tab.page.locator("#gutter .bad")).to_have_text("7")
    tab.page.keyboard.press("Control+Home")
    tab.find("mistake").get_by_role("button").click()
    expect(tab.find("place")).to_have_text("Line 7, column 3")
    assert tab.page.evaluate("document.activeElement.id") == "source"
    _type(tab, FILE)
    expect(tab.find("verdict")).to_have_text("Valid: 2 jobs")
    expect(tab.find("mistake")).to_have_count(0)


def test_an_older_answer_never_replaces_a_newer_one(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("shop", FILE)
    tab.page.goto("/root/shop/-/editor")
    expect(tab.find("verdict")).to_have_text("Valid: 2 jobs")
    held: list[Route] = []

    def hold_first(route: Route) -> None:
        # The first check stays unanswered; the page must abort it and show the answer of the second.
        held.append(route)
        if len(held) > 1:
            route.continue_()

    tab.page.route("**/ci/lint", hold_first)
    failed: list[str] = []
    tab.page.on("requestfailed", lambda request: failed.append(request.url))
    _type(tab, "a: {script: [x], neds: []}\n")
    tab.page.wait_for_event("request", lambda request: request.url.endswith("/ci/lint"))
    _type(tab, "a: {script: [x]}\nb: {script: [x]}\nc: {script: [x]}\n")
    expect(tab.find("verdict")).to_have_text("Valid: 3 jobs")
    assert len(failed) == 1
    assert len(held) == 2


def test_the_merged_file_includes_and_left_out_jobs(tab: Tab, cell: ServedCell) -> None:
    text = "include: {local: more.yml}\nnightly: {script: [x], rules: [{if: $NIGHT}]}\n"
    cell.new_project("shop", text, **{"more.yml": "other: {script: [from-more]}\n"})
    tab.page.goto("/root/shop/-/editor")
    expect(tab.find("graph-job")).to_have_text("other")
    expect(tab.find("left-out")).to_contain_text("nightly")
    tab.page.get_by_text("Merged file").click()
    expect(tab.find("merged")).to_contain_text("from-more")
    tab.page.get_by_role("heading", name="Included files").click()
    tab.find("includes").get_by_role("link", name="more.yml").click()
    expect(tab.find("text")).to_contain_text("from-more")


def test_commit_and_follow_the_pipeline(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", FILE)
    tab.page.goto("/root/shop/-/editor")
    _type(tab, FILE + "lint: {script: [make lint]}\n")
    tab.find("message").fill("Add lint")
    tab.find("commit").click()
    expect(tab.find("result")).to_contain_text("to main")
    expect(tab.find("pipeline")).to_contain_text("Pipeline #2 pending")
    made = cell.api("GET", f"/projects/{project}/repository/commits/main").json()
    assert made["title"] == "Add lint"
    raw = cell.api("GET", f"/projects/{project}/repository/files/.gitlab-ci.yml/raw?ref=main").body.decode()
    assert raw == FILE + "lint: {script: [make lint]}\n"
    # Saved now: leaving asks nothing.
    asked = _agree_to_dialogs(tab)
    tab.page.goto("/root/shop")
    assert asked == []


def test_commit_to_a_new_branch(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", FILE)
    tab.page.goto("/root/shop/-/editor")
    _type(tab, "only: {script: [x]}\n")
    tab.find("branch").fill("feature/ci")
    tab.find("commit").click()
    expect(tab.find("result")).to_contain_text("to feature/ci")
    expect(tab.find("ref")).to_have_value("feature/ci")
    assert cell.api("GET", f"/projects/{project}/repository/branches/feature%2Fci").status == 200
    tab.page.reload()
    expect(tab.find("source")).to_have_value("only: {script: [x]}\n")


def test_from_a_tag_one_commits_to_a_new_branch(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", FILE)
    assert cell.api("POST", f"/projects/{project}/repository/tags", {"tag_name": "v1", "ref": "main"}).status == 201
    tab.page.goto("/root/shop/-/editor?ref=v1")
    expect(tab.find("branch")).to_have_value("")
    _type(tab, "fixed: {script: [x]}\n")
    tab.find("branch").fill("main")
    tab.find("commit").click()
    expect(tab.find("problem")).to_contain_text("already exists")
    tab.expect_refusals("400")
    tab.find("branch").fill("fix-v1")
    tab.find("commit").click()
    expect(tab.find("result")).to_contain_text("to fix-v1")


def test_the_first_file_of_an_empty_repository(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("shop")
    tab.page.goto("/root/shop/-/editor")
    expect(tab.find("no-file")).to_contain_text("first commit")
    expect(tab.find("verdict")).to_have_text("Valid: 2 jobs")
    tab.find("commit").click()
    expect(tab.find("pipeline")).to_contain_text("Pipeline #1")


def test_a_change_by_somebody_else_is_not_overwritten(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", FILE)
    tab.page.goto("/root/shop/-/editor")
    _type(tab, "mine: {script: [x]}\n")
    commit_file(cell, project, "theirs: {script: [x]}\n", action="update", commit_message="Theirs")
    tab.find("commit").click()
    expect(tab.find("problem")).to_contain_text("was changed by commit")
    tab.expect_refusals("400")


def test_leaving_with_unsaved_changes_asks(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("shop", FILE)
    tab.page.goto("/root/shop/-/editor")
    tab.find("source").press("Control+End")
    tab.page.keyboard.type("# more")
    asked = _agree_to_dialogs(tab)
    tab.page.get_by_role("link", name="Pipelines").first.click()
    tab.page.wait_for_url("**/-/pipelines")
    assert asked == ["beforeunload"]
    tab.problems.clear()


def test_the_tab_key_indents_and_does_not_trap(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("shop", FILE)
    tab.page.goto("/root/shop/-/editor")
    source = tab.find("source")
    source.fill("a:\nb:\nc:")
    source.press("Control+Home")
    source.press("Tab")
    expect(source).to_have_value("  a:\nb:\nc:")
    source.press("Control+z")
    expect(source).to_have_value("a:\nb:\nc:")
    source.press("Control+Home")
    source.press("Shift+ArrowDown")
    source.press("Shift+ArrowDown")
    source.press("Tab")
    expect(source).to_have_value("  a:\n  b:\nc:")
    source.press("Shift+Tab")
    expect(source).to_have_value("a:\nb:\nc:")
    source.fill("a:\n  script:")
    source.press("Control+End")
    source.press("Enter")
    expect(source).to_have_value("a:\n  script:\n  ")
    source.press("Escape")
    source.press("Tab")
    assert tab.page.evaluate("document.activeElement.id") != "source"


def test_a_reporter_reads_only_and_a_file_elsewhere_is_named(visitor: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", FILE)
    reporter = create_person(cell, "reporter")
    add_member(cell, f"projects/{project}", reporter, 20)
    visitor.sign_in(reporter.token)
    visitor.page.goto("/root/shop/-/editor")
    expect(visitor.find("read-only")).to_contain_text("You may look")
    expect(visitor.find("source")).to_have_value(FILE)
    expect(visitor.find("verdict")).to_have_text("Valid: 2 jobs")
    expect(visitor.find("graph-job")).to_have_count(2)
    expect(visitor.find("commit")).to_have_count(0)
    cell.api("PUT", f"/projects/{project}", {"ci_config_path": "ci.yml@acme/shared"})
    visitor.page.goto("/root/shop/-/editor")
    expect(visitor.find("elsewhere")).to_contain_text("ci.yml@acme/shared")


def test_a_missing_ref_and_another_line_ending(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", "a: {script: [x]}\r\n")
    tab.page.goto("/root/shop/-/editor?ref=nothing")
    expect(tab.find("error")).to_be_visible()
    tab.expect_refusals("404")
    tab.page.goto("/root/shop/-/editor")
    _type(tab, "b: {script: [x]}\n")
    tab.find("commit").click()
    expect(tab.find("result")).to_contain_text("Committed")
    raw = cell.api("GET", f"/projects/{project}/repository/files/.gitlab-ci.yml/raw?ref=main").body
    assert raw == b"b: {script: [x]}\r\n"


def test_a_file_that_is_no_text_is_not_edited(tab: Tab, cell: ServedCell) -> None:
    for name, content in (("latin", "6Q=="), ("binary", "AAE=")):
        project = cell.new_project(name)
        action = {"action": "create", "file_path": ".gitlab-ci.yml", "content": content, "encoding": "base64"}
        body = {"branch": "main", "commit_message": "First", "actions": [action]}
        assert cell.api("POST", f"/projects/{project}/repository/commits", body).status == 201
        tab.page.goto(f"/root/{name}/-/editor")
        expect(tab.page.locator("main")).to_contain_text("cannot be edited here")
        expect(tab.find("source")).to_have_count(0)


def test_the_editor_is_accessible_and_fits(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("shop", FILE)
    cell.new_project("broken", FILE + "wrong: {scrip: [x]}\n")
    check_pages(tab, ("/root/shop/-/editor", "/root/broken/-/editor"))
    tab.page.emulate_media(color_scheme="dark")
    tab.page.goto("/root/broken/-/editor")
    expect(tab.find("mistake")).not_to_have_count(0)
    tab.check_accessibility()
    tab.page.goto("/root/shop/-/editor")
    expect(tab.find("graph-job")).to_have_count(2)
    tab.check_accessibility()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_files_are_only_text(tab: Tab, cell: ServedCell, text: str) -> None:
    quoted = "'" + text.replace("'", "''") + "'"
    content = f"stages: [{quoted}]\n{quoted}:\n  stage: {quoted}\n  script: [{quoted}]\n"
    cell.new_project("shop", content)
    tab.page.on("dialog", lambda dialog: tab.problems.append(dialog.message))
    tab.page.goto("/root/shop/-/editor")
    expect(tab.find("source")).to_have_value(content)
    expect(tab.find("verdict")).not_to_have_text("Not checked yet")
    _type(tab, f"{quoted}: {{{quoted}: 1}}\n")
    expect(tab.find("verdict")).to_contain_text("mistake")
    assert tab.page.locator("img[src=x], main svg[onload]").count() == 0
    _type(tab, content)
