"""The pages of pipelines: list, start form, graph by stages and by needs, time, tests, artifacts."""

import gzip
import re
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.support.browser import PHONE_WIDTH, WIDTH, Tab
from tests.support.cells.people import add_member, create_person
from tests.support.cells.served_cell import FINAL_STATUSES, ScriptedRunner, ServedCell, commit_file

from remuda.testing.waiting import wait_until

FILE = """
stages: [build, test, deploy]
build:
  stage: build
  script: [make]
  coverage: '/(\\d+)%/'
lint: {stage: build, script: [lint], allow_failure: true}
unit: {stage: test, script: [unit], parallel: 5}
docs: {stage: test, script: [docs], needs: [lint]}
ship: {stage: deploy, script: [ship], needs: [build], when: manual}
child:
  stage: deploy
  needs: [build]
  trigger: {include: child.yml, strategy: depend}
"""
CHILD = "inner: {script: [x]}\n"
FORM = """
spec:
  inputs:
    place: {options: [test, live], default: test, description: Where to deploy}
    count: {type: number, default: 3, description: How many}
    force: {type: boolean, default: false}
    names: {type: array, default: [a, b]}
    title: {regex: '^[a-z]+$'}
---
variables:
  LEVEL: {value: low, options: [low, high], description: How much}
  NOTE: {value: hi, description: A note}
show:
  script: ["echo $[[ inputs.place ]] $[[ inputs.count ]] $[[ inputs.force ]] $[[ inputs.title ]]"]
"""
REPORT = """<testsuite name="s"><testcase name="adds" classname="sum" time="0.5"/>
<testcase name="divides" classname="sum" time="2.5"><failure message="by zero">line 1
line 2</failure></testcase></testsuite>"""
NAMES = ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "a\u202eb", "w" * 200)


@pytest.fixture
def project(cell: ServedCell) -> int:
    return cell.new_project("app", FILE, **{"child.yml": CHILD})


def start(cell: ServedCell, project: int, **more: Any) -> int:
    created = cell.api("POST", f"/projects/{project}/pipeline", {"ref": "main", **more})
    assert created.status == 201, created
    return int(created.json()["id"])


def newest(cell: ServedCell) -> int:
    """The id of the newest pipeline, which the push of the first commit has started."""
    return int(cell.until_pipelines(1)[0]["id"])


def run_jobs(runner: ScriptedRunner, *states: str, **logs: bytes) -> list[dict[str, Any]]:
    """Take jobs and end them with these states, one after the other. `logs`: logs by the name of the job."""
    jobs = []
    for state in states:
        job = runner.take()
        name = job["job_info"]["name"]
        if name in logs:
            runner.patch(job, 0, logs[name])
        ended = runner.put(
            job, state, **({"failure_reason": "script_failure", "exit_code": 3} if state == "failed" else {})
        )
        assert ended.status == 200, ended
        jobs.append(job)
    return jobs


def finish(cell: ServedCell, runner: ScriptedRunner, number: int) -> None:
    """Let all jobs of a pipeline and of its child pipelines succeed."""

    def has_ended() -> bool:
        answer = runner.ask()
        if answer.status == 201:
            runner.put(answer.json(), "success")
        return cell.api("GET", f"/projects/1/pipelines/{number}").json()["status"] in FINAL_STATUSES

    wait_until(has_ended, "the pipeline ends")


def card(tab: Tab, name: str) -> Any:
    """The card of a job."""
    return tab.find("job").filter(has=tab.page.locator(f'a[title="{name}"]'))


def check_look(tab: Tab) -> None:
    """Check the page in light and dark, and on a phone."""
    for scheme in ("light", "dark"):
        tab.page.emulate_media(color_scheme=scheme)
        tab.check_accessibility()
    tab.page.set_viewport_size({"width": PHONE_WIDTH, "height": 800})
    tab.check_width()
    tab.check_accessibility()
    tab.page.set_viewport_size({"width": WIDTH, "height": 900})
    tab.page.emulate_media(color_scheme="light")


def test_the_graph_changes_while_jobs_run(tab: Tab, cell: ServedCell, runner: ScriptedRunner, project: int) -> None:
    number = newest(cell)
    tab.page.goto(f"/root/app/-/pipelines/{number}")
    head = tab.find("pipeline-head")
    expect(head.locator("h1 .status")).to_have_text("pending")
    build = card(tab, "build")
    expect(build.locator(".status")).to_have_text("pending")
    job = runner.take()
    expect(build.locator(".status")).to_have_text("running")
    runner.patch(job, 0, b"covered 81%\n")
    runner.put(job, "success")
    expect(build.locator(".status")).to_have_text("success")
    expect(card(tab, "ship").locator(".status")).to_have_text("manual")
    lint = runner.take()
    runner.put(lint, "failed", failure_reason="script_failure", exit_code=3)
    lint_card = card(tab, "lint")
    expect(lint_card).to_contain_text("allowed")
    expect(lint_card).to_contain_text("exit code 3")
    expect(tab.find("group")).to_contain_text("5 jobs")
    # The child pipeline appears, and what happens in it is live, too.
    child = tab.find("downstream")
    expect(child).to_contain_text("pending")
    child.locator("summary").first.click()
    inner = child.locator('[data-test="job"]')
    expect(inner).to_contain_text("inner")
    card(tab, "ship").locator('[data-test="play"]').click()
    expect(card(tab, "ship").locator(".status")).to_have_text("pending")
    expect(tab.find("critical-path")).to_contain_text("Critical path")
    check_look(tab)
    finish(cell, runner, number)
    expect(head.locator("h1 .status")).to_have_text("success", timeout=15_000)
    expect(inner.locator(".status")).to_have_text("success")
    expect(tab.find("coverage")).to_have_text("81.00 %")


def test_views_of_a_finished_pipeline(tab: Tab, cell: ServedCell, runner: ScriptedRunner, project: int) -> None:
    number = newest(cell)
    (build,) = run_jobs(runner, "failed")
    again = cell.api("POST", f"/projects/{project}/jobs/{build['id']}/retry").json()
    assert again["name"] == "build", again
    while (unit := runner.take())["job_info"]["name"] != "unit 1/5":
        runner.put(unit, "success")
    report = gzip.compress(REPORT.encode())
    query = "?artifact_type=junit&artifact_format=gzip&expire_in=1week"
    uploaded = runner.upload(unit, report, filename="junit.xml.gz", query=query)
    assert uploaded.status == 201, uploaded
    runner.put(unit, "failed", failure_reason="script_failure")
    finish(cell, runner, number)
    tab.page.goto(f"/root/app/-/pipelines/{number}")
    expect(tab.find("pipeline-head").locator("h1 .status")).to_have_text("failed")
    attempts = tab.page.locator(".attempts")
    expect(attempts).to_contain_text("1 earlier attempt")
    group = tab.find("group")
    group.locator("summary").click()
    expect(group.locator('[data-test="job"]')).to_have_count(5)
    check_look(tab)
    tab.find("view-needs").click()
    expect(tab.page).to_have_url(re.compile(r"view=needs$"))
    expect(tab.find("needs").locator('[data-test="job"]')).to_have_count(10)
    expect(tab.page.locator(".edges path.critical")).not_to_have_count(0)
    card(tab, "docs").locator("a").focus()
    expect(tab.page.locator(".edges path.near")).to_have_count(1)
    check_look(tab)
    tab.find("view-time").click()
    expect(tab.find("time-row")).to_have_count(10)
    expect(tab.find("critical-path")).to_contain_text("waiting for runners")
    expect(tab.find("path-step").first).to_contain_text("build")
    expect(tab.page.locator(".time-row rect.running").first).to_be_attached()
    check_look(tab)
    tab.find("view-tests").click()
    expect(tab.find("suite")).to_contain_text("unit")
    expect(tab.find("failed-case")).to_contain_text("line 2")
    expect(tab.find("slow-case").first).to_contain_text("divides")
    check_look(tab)
    tab.find("view-artifacts").click()
    expect(tab.find("file")).to_contain_text("junit.xml.gz")
    check_look(tab)
    tab.page.goto("/root/app/-/pipelines")
    expect(tab.find("pipeline")).to_have_count(1)
    start(cell, project)
    expect(tab.find("pipeline")).to_have_count(2)
    check_look(tab)


def test_the_list_filters_and_stays_live(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("app", "build: {script: [x]}")
    tab.page.goto("/root/app/-/pipelines")
    rows = tab.find("pipeline")
    expect(rows).to_have_count(1)
    number = start(cell, project)
    expect(rows).to_have_count(2)
    run_jobs(runner, "failed")
    first = rows.filter(has_text=f"#{number - 1}")
    expect(first.locator(".status")).to_have_text("failed")
    tab.page.get_by_label("Status").select_option("failed")
    tab.find("filter").click()
    expect(rows).to_have_count(1)
    tab.page.goto("/root/app/-/pipelines?username=nobody")
    expect(tab.find("empty")).to_contain_text("No pipeline fits")
    tab.page.goto("/root/app/-/pipelines?source=api&ref=main&username=root&page=x")
    expect(rows).to_have_count(1)
    rows.locator('[data-test="cancel"]').click()
    tab.find("confirm").click()
    expect(rows.locator(".status")).to_have_text("canceled")
    rows.locator('[data-test="retry"]').click()
    expect(rows.locator(".status")).to_have_text("pending")
    tab.page.goto(f"/root/app/-/pipelines/{number}")
    tab.find("delete").click()
    expect(tab.page.locator("#confirm-text")).to_contain_text("cannot be undone")
    tab.find("confirm").click()
    tab.page.wait_for_url("**/-/pipelines")
    expect(rows).to_have_count(1)


def test_many_pipelines_have_pages(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("app", "build: {script: [x]}")
    for _ in range(31):
        start(cell, project)
    tab.page.goto("/root/app/-/pipelines")
    expect(tab.find("pipeline")).to_have_count(30)
    tab.page.get_by_role("link", name="Older").click()
    expect(tab.find("pipeline")).to_have_count(2)


def test_start_with_inputs_and_variables(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("app", FORM)
    tab.page.goto("/root/app/-/pipelines/new")
    expect(tab.find("input")).to_have_count(5)
    check_look(tab)
    page = tab.page
    page.get_by_label("title").fill("BAD")
    tab.find("start").click()
    expect(tab.find("refusal")).to_contain_text(".gitlab-ci.yml:")
    expect(tab.find("refusal")).to_contain_text("does not match")
    tab.expect_refusals("400")
    page.get_by_label("title").fill("good")
    page.get_by_label("place").select_option("live")
    page.get_by_label("count").fill("7")
    page.get_by_label("force").select_option("true")
    page.get_by_label("LEVEL").select_option("high")
    tab.find("add-variable").click()
    tab.find("variable-name").fill("EXTRA")
    tab.find("variable-value").fill("value of it")
    tab.find("start").click()
    page.wait_for_url(re.compile(r"/-/pipelines/\d+$"))
    expect(tab.find("pipeline-head")).to_contain_text("web by")
    job = runner.take()
    values = {variable["key"]: variable["value"] for variable in job["variables"]}
    assert job["steps"][0]["script"] == ["echo live 7 true good"]
    assert (values["LEVEL"], values["EXTRA"], values["CI_PIPELINE_SOURCE"]) == ("high", "value of it", "web")
    given = cell.api("GET", f"/projects/{project}/pipelines/{newest(cell)}/variables").json()
    assert {variable["key"] for variable in given} == {"LEVEL", "EXTRA"}


def test_start_says_what_is_missing(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("app", **{"README.md": "x"})
    tab.page.goto("/root/app/-/pipelines/new")
    expect(tab.find("form-problem")).to_contain_text("Missing CI config file")
    tab.page.goto("/root/app/-/pipelines/new?ref=nowhere")
    expect(tab.find("form-problem")).to_contain_text("no branch or tag")
    tab.page.goto("/root/app/-/pipelines")
    expect(tab.find("empty")).to_contain_text("No pipelines yet")
    commit_file(cell, project, "a: {script: [x], retry: {max: 99}}\n")
    tab.page.goto("/root/app/-/pipelines")
    tab.find("pipeline").locator("a.main").click()
    expect(tab.find("yaml-errors")).to_contain_text(".gitlab-ci.yml:1:")
    check_look(tab)


def test_guests_and_reporters_see_no_buttons(visitor: Tab, cell: ServedCell, project: int) -> None:
    reporter, guest = create_person(cell, "rita"), create_person(cell, "gus")
    add_member(cell, f"projects/{project}", reporter, 20)
    add_member(cell, f"projects/{project}", guest, 10)
    visitor.sign_in(reporter.token)
    visitor.page.goto("/root/app/-/pipelines/1")
    expect(visitor.find("job")).not_to_have_count(0)
    expect(visitor.page.locator("main [data-call]")).to_have_count(0)
    visitor.page.goto("/root/app/-/pipelines")
    expect(visitor.find("new-pipeline")).to_have_count(0)
    visitor.page.goto("/root/app/-/pipelines/new")
    expect(visitor.page.locator("h1")).to_have_text("You may not see this")
    visitor.context.clear_cookies()
    visitor.sign_in(guest.token)
    visitor.page.goto("/root/app/-/pipelines/1")
    expect(visitor.find("error")).to_be_visible()
    visitor.page.goto("/root/app/-/pipelines/999999")
    expect(visitor.find("error")).to_be_visible()
    visitor.expect_refusals("403", "404")


def test_hostile_names_are_texts(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    quoted = ["'" + name.replace("'", "''") + "'" for name in NAMES]
    lines = [f"{name}:\n  stage: {quoted[0]}\n  script: [x]\n" for name in quoted]
    text = f"stages: [{quoted[0]}]\nworkflow:\n  name: {quoted[1]}\n" + "".join(lines)
    text += f"'last':\n  stage: {quoted[0]}\n  script: [x]\n  needs: [{', '.join(quoted)}]\n"
    text = f"spec:\n  inputs:\n    it:\n      default: {quoted[0]}\n      description: {quoted[1]}\n---\n" + text
    project = cell.new_project("app")
    ref = "<img/src=x/onerror=alert(3)>"
    for branch, more in (("main", {}), (ref, {"start_branch": "main"})):
        commit_file(
            cell, project, text, branch=branch, commit_message=NAMES[1], action="update" if more else "create", **more
        )
        text += "# more\n"
    job = runner.take()
    report = (
        "<testsuite><testcase name='&lt;script>alert(4)&lt;/script>' classname='x'>"
        "<failure>&lt;img src=x onerror=alert(5)></failure></testcase></testsuite>"
    )
    runner.upload(
        job,
        gzip.compress(report.encode()),
        filename="<svg onload=alert(6)>.gz",
        query="?artifact_type=junit&artifact_format=gzip",
    )
    runner.put(job, "failed", failure_reason="script_failure")
    for number in (1, 2):
        for view in ("stages", "needs", "time", "tests", "artifacts"):
            tab.page.goto(f"/root/app/-/pipelines/{number}?view={view}")
            expect(tab.find("view")).to_be_visible()
            tab.page.set_viewport_size({"width": PHONE_WIDTH, "height": 800})
            tab.check_width()
            tab.page.set_viewport_size({"width": WIDTH, "height": 900})
    for address in ("", "/new", f"?ref={'%3Cscript%3Ealert(1)%3C/script%3E'}", "?status=failed&source=push"):
        tab.page.goto(f"/root/app/-/pipelines{address}")
        expect(tab.page.locator("h1")).to_be_visible()
        tab.page.set_viewport_size({"width": PHONE_WIDTH, "height": 800})
        tab.check_width()
        tab.page.set_viewport_size({"width": WIDTH, "height": 900})
    assert tab.page.locator("img[onerror], script:not([src])").count() == 0
