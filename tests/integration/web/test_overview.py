"""The first page: numbers, jobs, pipelines, runners with problems, the chart, and what a fresh cell says."""

import re

import pytest
from playwright.sync_api import Browser, expect
from tests.support.browser import Tab
from tests.support.cells.cell_pages import HOSTILE, check_look, start_pipeline, take_job
from tests.support.cells.people import create_person
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.testing.waiting import wait_until


def test_a_fresh_cell_says_what_to_do(tab: Tab, cell: ServedCell) -> None:
    tab.page.goto("/")
    expect(tab.find("first-steps")).to_contain_text("Create a project")
    expect(tab.find("step-project")).to_contain_text(f"remuda login {cell.url}")
    check_look(tab, "/")
    tab.page.goto("/")
    tab.find("first-runner").click()
    expect(tab.page.locator("h1")).to_have_text("New runner")


def test_it_follows_jobs_and_pipelines(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    tab.page.goto("/")
    expect(tab.page.locator("#live-state")).to_have_text("live")
    start_pipeline(cell)
    expect(tab.find("waiting-count")).to_have_text("4")
    expect(tab.find("waiting-job").filter(has_text="gpu")).to_contain_text("no runner has the tags gpu, linux")
    expect(tab.find("pipeline")).to_contain_text("root/app")
    job = take_job(runner)
    expect(tab.find("running-count")).to_have_text("1")
    expect(tab.find("running-job")).to_contain_text("build 1/3")
    assert runner.put(job, "success").status == 200
    expect(tab.find("running-job")).to_have_count(0)
    expect(tab.find("slots")).to_have_text("0 / 4")
    check_look(tab, "/")


def test_the_chart_has_the_samples_of_the_cell(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    start_pipeline(cell)
    take_job(runner)

    def has_sample() -> bool:
        usage = cell.send("GET", "/api/remuda/v1/usage?hours=1", PRIVATE_TOKEN=cell.token).json()
        return (usage["running"], usage["waiting"], usage["slots"]) == (1, 3, 4) and len(usage["points"]) == 120

    wait_until(has_sample, "usage")
    tab.page.goto("/")
    expect(tab.find("chart").locator("path.slots")).to_have_attribute("d", re.compile(r"^M\d"))
    expect(tab.page.locator("#usage-caption")).to_contain_text("1 running, 3 waiting, 4 slots of 1 manager")
    tab.page.locator("#usage summary").click()
    expect(tab.page.locator("#usage tbody tr").first).to_contain_text("4")


def test_others_see_only_their_own(browser: Browser, tab: Tab, cell: ServedCell) -> None:
    start_pipeline(cell)
    person = create_person(cell, "ann")
    with Tab(browser, cell.url) as visitor:
        visitor.sign_in(person.token)
        expect(visitor.find("waiting-count")).to_have_text("0")
        expect(visitor.find("pipeline")).to_have_count(0)
        expect(visitor.find("chart")).to_have_count(0)
        expect(visitor.find("disk")).to_have_count(0)
    for path in ("usage", "health", "settings"):
        refused = cell.send("GET", f"/api/remuda/v1/{path}", PRIVATE_TOKEN=person.token)
        assert refused.status == 403, path


@pytest.mark.parametrize("kind", ["blocked", "failing"])
def test_runners_with_problems(tab: Tab, cell: ServedCell, kind: str) -> None:
    runner = cell.new_runner(description=HOSTILE[0])
    cell.new_project("app", "a: {script: x, parallel: 6}\n")
    cell.until_pipelines(1)
    if kind == "blocked":
        cell.send(
            "POST",
            "/api/remuda/v1/runners/problem",
            {"token": runner.token, "system_id": "s_0123456789ab", "problem": HOSTILE[1]},
            RUNNER_TOKEN=runner.token,
        )
    else:
        for _ in range(5):
            assert runner.put(runner.take(), "failed", failure_reason="runner_system_failure").status == 200
    problems = cell.send("GET", "/api/remuda/v1/runner_problems", PRIVATE_TOKEN=cell.token).json()
    assert [problem["kind"] for problem in problems] == [kind]
    tab.page.goto("/")
    expect(tab.find("runner-problem")).to_contain_text(HOSTILE[0])
    expect(tab.find("problem-count")).to_have_text("1")
