"""Runners: create one and paste its command, change it, its lists with filters, and the rights of others."""

import os
import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, expect
from tests.support.browser import Tab
from tests.support.cells.cell_pages import HOSTILE, check_look, start_pipeline, take_job
from tests.support.cells.people import add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

BIN = Path(sys.executable).parent


def run_in_shell(command: str, folder: Path) -> str:
    """Run a command in a shell, with the programs of this environment, in an otherwise empty folder."""
    environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder), "LANG": "C.UTF-8"}
    done = subprocess.run(
        ["/bin/sh", "-ec", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_create_a_runner_and_paste_its_command(tab: Tab, cell: ServedCell, tmp_path: Path) -> None:
    start_pipeline(cell)
    tab.page.goto("/runners/new")
    expect(tab.find("group")).to_be_hidden()
    tab.find("description").fill("box in the corner")
    tab.find("tags").fill("gpu, linux")
    tab.find("run-untagged").uncheck()
    tab.find("note").fill("ask ann")
    tab.find("create").click()
    expect(tab.find("token-box")).to_be_visible()
    token = tab.find("the-token").inner_text()
    assert token.startswith("glrt-")
    expect(tab.find("command-gitlab")).to_contain_text(f"gitlab-runner register --non-interactive --url {cell.url}")
    check_text = tab.find("command-remuda").inner_text()
    tab.check_accessibility()
    queue = tab.context.new_page()
    queue.goto("/queue")
    gpu = queue.locator('[data-test="queue-key"]').filter(has_text="gpu")
    expect(gpu.locator('[data-test="fitting-runner"]')).to_contain_text("never seen")
    tab.find("runner-link").click()
    expect(tab.page.locator("h1")).to_contain_text("#1 box in the corner")
    expect(tab.page.locator("h1 .status")).to_have_text("never contacted")
    assert token not in tab.page.content()
    # The first line of the command registers; the second would run the manager.
    run_in_shell(check_text.splitlines()[0], tmp_path)
    assert token in (tmp_path / "config.toml").read_text()
    expect(tab.page.locator("h1 .status")).to_have_text("online")
    expect(tab.find("manager")).to_have_count(1)
    expect(gpu.locator('[data-test="fitting-runner"]')).to_contain_text("free")
    # Its tags change in the open queue.
    tab.find("edit").locator("summary").click()
    tab.find("edit-form").locator('[data-test="tags"]').fill("windows")
    tab.find("save").click()
    expect(tab.find("tags-shown")).to_have_text("windows")
    expect(gpu.locator('[data-test="fitting-runner"]')).to_have_count(0)
    expect(gpu.locator('[data-test="advice"]')).to_contain_text("No runner has the tags")


def test_change_pause_rotate_and_remove(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    start_pipeline(cell)
    job = take_job(runner)
    assert runner.put(job, "success").status == 200
    tab.page.goto("/runners/1")
    expect(tab.find("runner-job")).to_contain_text("build 1/3")
    expect(tab.find("success-rate")).to_have_text("100 % of 1 succeeded")
    expect(tab.find("manager")).to_contain_text("0 of 4")
    tab.find("pause").click()
    expect(tab.find("resume")).to_be_visible()
    assert cell.api("GET", "/runners/1").json()["paused"] is True
    tab.find("resume").click()
    expect(tab.find("pause")).to_be_visible()
    tab.find("edit").locator("summary").click()
    form = tab.find("edit-form")
    form.locator('[data-test="poll-hold"]').fill("20")
    form.locator('[data-test="timeout"]').fill("900")
    form.locator('[data-test="note"]').fill("moved")
    form.locator('[data-test="organizations"]').fill("1")
    form.locator('[data-test="access-level"]').select_option("ref_protected")
    tab.find("save").click()
    expect(tab.page.locator("#facts")).to_contain_text("moved")
    changed = cell.api("GET", "/runners/1").json()
    assert (changed["poll_hold_seconds"], changed["maximum_timeout"]) == (20, 900)
    assert (changed["maintenance_note"], changed["access_level"]) == ("moved", "ref_protected")
    assert changed["organization_ids"] == [1]
    tab.find("edit").locator("summary").click()
    form.locator('[data-test="poll-hold"]').fill("")
    form.locator('[data-test="timeout"]').fill("5")
    tab.find("save").click()
    expect(tab.find("problem")).to_contain_text("needs to be at least 10 minutes")
    tab.expect_refusals("400")
    form.locator('[data-test="timeout"]').fill("0")
    tab.find("save").click()
    expect(tab.page.locator("#facts")).not_to_contain_text("Longest job")
    changed = cell.api("GET", "/runners/1").json()
    assert (changed["poll_hold_seconds"], changed["maximum_timeout"]) == (None, None)
    tab.find("rotate").click()
    tab.find("confirm").click()
    expect(tab.find("token-box")).to_be_visible()
    new = tab.find("the-token").inner_text()
    assert runner.ask().status == 403
    assert ScriptedRunner(cell, new).ask().status == 201
    tab.find("remove").click()
    tab.find("confirm").click()
    tab.page.wait_for_url("**/runners")
    expect(tab.find("empty")).to_contain_text("No runners yet")
    tab.page.goto("/runners/1")
    expect(tab.find("error")).to_contain_text("Not Found")
    tab.expect_refusals("404")


def test_projects_of_a_runner(tab: Tab, cell: ServedCell) -> None:
    first, second = cell.new_project("one"), cell.new_project("two")
    created = cell.api("POST", "/user/runners", {"runner_type": "project_type", "project_id": first})
    assert created.status == 201
    tab.page.goto("/runners/1")
    expect(tab.find("runner-project")).to_have_count(1)
    tab.find("project").fill("root/nothing")
    tab.find("link").click()
    expect(tab.find("problem")).to_contain_text("Project Not Found")
    tab.expect_refusals("404")
    tab.find("project").fill("root/two")
    tab.find("link").click()
    expect(tab.find("runner-project")).to_have_count(2)
    tab.find("runner-project").filter(has_text="root/one").locator('[data-test="unlink"]').click()
    tab.find("confirm").click()
    expect(tab.find("runner-project")).to_have_count(1)
    assert [project["id"] for project in cell.api("GET", "/runners/1").json()["projects"]] == [second]


def test_filters_and_pages(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    runner.ask(info={"version": "17.5.0", "platform": "linux", "architecture": "amd64"})
    for number in range(24):
        cell.new_runner(description=f"Box {number}", tag_list=["gpu"] if number == 3 else [], paused=number == 4)
    tab.page.goto("/runners")
    expect(tab.find("runner-count")).to_have_text("25 runners")
    expect(tab.find("runner")).to_have_count(20)
    tab.page.locator("a[rel=next]").click()
    expect(tab.find("runner")).to_have_count(5)
    for query, count in {
        "search=box+1": 11,
        "search=BOX": 24,
        "search=25": 1,
        "tag_list=gpu": 1,
        "paused=true": 1,
        "status=online": 1,
        "version_prefix=17.": 1,
        "version_prefix=1.": 0,
        "type=project_type": 0,
    }.items():
        tab.page.goto(f"/runners?{query}")
        expect(tab.find("runner")).to_have_count(min(count, 20))
    expect(tab.find("empty")).to_contain_text("No runner matches")
    tab.page.goto("/runners")
    tab.find("filter-search").fill("box 23")
    tab.find("filter").click()
    expect(tab.find("runner")).to_have_count(1)
    tab.find("pause").click()
    expect(tab.find("resume")).to_be_visible()
    tab.page.keyboard.press("j")
    expect(tab.page.locator(":focus")).to_have_text("#25 Box 23")


def test_pages_of_a_group_and_a_project(browser: Browser, cell: ServedCell) -> None:
    group = create_group(cell, "acme")
    project = create_group_project(cell, group, "shop")
    people = {name: create_person(cell, name) for name in ("olga", "mia", "dan")}
    for name, level in {"olga": 50, "mia": 40, "dan": 30}.items():
        add_member(cell, f"groups/{group}", people[name], level)
    cell.new_runner(description="of the cell")
    with Tab(browser, cell.url) as tab:
        tab.sign_in(people["olga"].token)
        tab.page.goto("/groups/acme/-/runners")
        expect(tab.find("runner")).to_contain_text("of the cell")
        tab.find("new-runner").click()
        expect(tab.find("group")).to_have_value("acme")
        expect(tab.find("type").locator("option[value=instance_type]")).to_have_count(0)
        tab.find("description").fill("of the group")
        tab.find("create").click()
        expect(tab.find("token-box")).to_be_visible()
        tab.page.goto("/runners")
        expect(tab.find("runner")).to_have_count(1)
        # Owners of a group see the runners of the cell, but cannot change them.
        tab.page.goto("/runners/1")
        expect(tab.page.locator("h1")).to_contain_text("of the cell")
        expect(tab.find("pause")).to_have_count(0)
        tab.page.goto("/acme/shop/-/runners")
        expect(tab.find("runner")).to_have_count(2)
        tab.find("shared_runners_enabled").locator("button").click()
        tab.find("confirm").click()
        expect(tab.find("turn-on")).to_be_visible()
        assert cell.api("GET", f"/projects/{project}").json()["shared_runners_enabled"] is False
        check_look(tab, "/groups/acme/-/runners", "/acme/shop/-/runners")
    with Tab(browser, cell.url) as tab:
        tab.sign_in(people["mia"].token)
        tab.page.goto("/runners/new?group=acme")
        tab.find("create").click()
        expect(tab.find("problem")).to_be_visible()
        tab.expect_refusals("403")
        tab.page.goto("/acme/shop/-/runners")
        expect(tab.find("runner")).to_have_count(2)
    with Tab(browser, cell.url) as tab:
        tab.sign_in(people["dan"].token)
        for address, status in {"/acme/shop/-/runners": 403, "/groups/acme/-/runners": 403, "/runners/2": 404}.items():
            tab.page.goto(address)
            expect(tab.find("error")).to_be_visible()
            tab.expect_refusals(str(status))
        tab.page.goto("/runners/x")
        expect(tab.find("error")).to_be_visible()
        tab.expect_refusals("404")


def test_hostile_texts(tab: Tab, cell: ServedCell) -> None:
    for text in HOSTILE:
        runner = cell.new_runner(description=text, maintenance_note=text, tag_list=[text[:255]])
        version = {"version": text, "platform": text, "architecture": text, "executor": text}
        runner.ask(info=version)
    for address in ("/runners", *(f"/runners/{number}" for number in range(1, len(HOSTILE) + 1))):
        tab.page.set_viewport_size({"width": 390, "height": 900})
        tab.page.goto(address)
        tab.check_width()
        assert tab.page.locator("main img, main script").count() == 0
        tab.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        tab.check_width()
    tab.page.goto("/runners/1")
    expect(tab.page.locator("h1")).to_contain_text(HOSTILE[0])
    tab.page.goto("/runners?search=%3Cscript%3E&tag_list=%22%3E%3Cimg+src%3Dx%3E")
    expect(tab.find("filter-tags")).to_have_value('"><img src=x>')
    assert re.search(r"<img", tab.page.locator("main").inner_html()) is None


def test_the_look(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    start_pipeline(cell)
    take_job(runner)
    check_look(tab, "/runners", "/runners/1", "/runners/new")
