"""The pages of jobs: list, header, actions, steps, artifacts."""

from playwright.sync_api import expect
from tests.support.browser import PHONE_WIDTH, Tab
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

ONE_JOB = "build:\n  stage: build\n  script: [make]\n"


def test_a_job_page_shows_a_job_that_waits_runs_and_ends(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", ONE_JOB)
    tab.page.goto("/root/app/-/jobs")
    tab.find("job").locator("a").first.click()
    expect(tab.find("job-name")).to_have_text("build")
    expect(tab.find("why")).to_contain_text("Why it waits")
    job = runner.take()
    expect(tab.find("log-empty")).to_be_visible()
    runner.patch(job, 0, b"hello world\n")
    expect(tab.find("log-lines")).to_contain_text("hello world")
    runner.put(job, "success")
    expect(tab.find("retry")).to_be_visible()
