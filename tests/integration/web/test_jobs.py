"""The pages of jobs: list, header, actions, reasons, steps."""

import re
from collections.abc import Mapping
from typing import Any

from playwright.sync_api import expect
from tests.support.browser import PHONE_WIDTH, Tab
from tests.support.cells.people import add_member, create_person
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

ONE_JOB = "build:\n  stage: build\n  script: [make]\n"
PIPELINE = """
stages: [build, test, deploy]
build: {stage: build, script: [make]}
unit: {stage: test, script: [make test], needs: []}
deploy: {stage: deploy, script: [echo], when: manual, needs: [], inputs: {size: {type: number, default: 1}}}
gpu: {stage: build, tags: [gpu], script: [x], needs: []}
"""
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(1)</script> \u202eevil ' + "x" * 80


def send_steps(cell: ServedCell, job: Mapping[str, Any], *events: dict[str, Any]) -> None:
    results = [{"version": 1, "seq": number, **event} for number, event in enumerate(events, 1)]
    sent = cell.send("POST", f"/api/remuda/v1/jobs/{job['id']}/results", {"results": results}, JOB_TOKEN=job["token"])
    assert sent.status == 200, sent


def step(event: str, path: str, **more: Any) -> dict[str, Any]:
    times = {"time": "2026-11-15T10:10:05Z"}
    if event == "finished":
        times |= {"started_at": "2026-11-15T10:10:01Z", "finished_at": "2026-11-15T10:10:05Z", "status": "success"}
    return {"event": event, "path": path, "name": path.rpartition("/")[2], "attempt": 1, **times, **more}


def test_a_job_page_shows_a_job_that_waits_runs_and_ends(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", ONE_JOB)
    tab.page.goto("/root/app/-/jobs")
    tab.find("job").locator("a").first.click()
    expect(tab.find("job-name")).to_have_text("build")
    expect(tab.find("why")).to_contain_text("Why it waits")
    expect(tab.find("log-empty")).to_have_text(re.compile("No log yet"))
    job = runner.take()
    expect(tab.find("runner")).to_contain_text("s_0123456789ab")
    runner.patch(job, 0, b"hello world\n")
    expect(tab.find("log-lines")).to_contain_text("hello world")
    send_steps(cell, job, step("started", "/step_script"))
    runner.put(job, "failed", failure_reason="script_failure", exit_code=3)
    expect(tab.find("failure")).to_contain_text("exit code 3")
    expect(tab.find("advice")).to_be_visible()
    expect(tab.find("exit-code")).to_have_text("3")
    expect(tab.find("log-lines")).to_contain_text("hello world")


def test_a_job_is_retried_and_canceled(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", ONE_JOB)
    runner.put(runner.take(), "failed")
    tab.page.goto("/root/app/-/jobs/1")
    tab.find("retry").click()
    tab.page.wait_for_url("**/jobs/2")
    expect(tab.find("attempts").locator("li")).to_have_count(2)
    tab.find("cancel").click()
    tab.find("confirm").click()
    expect(tab.page.locator("h1 .status")).to_have_text("canceled")
    expect(tab.find("retry")).to_be_visible()


def test_a_manual_job_is_played_with_variables_and_inputs(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("app", PIPELINE)
    number = next(job["id"] for job in cell.api("GET", "/projects/1/jobs").json() if job["name"] == "deploy")
    tab.page.goto(f"/root/app/-/jobs/{number}")
    tab.find("play").click()
    tab.find("play-inputs").fill("wrong=1")
    tab.find("play-now").click()
    expect(tab.find("problem").last).to_contain_text("wrong")
    tab.expect_refusals("400")
    tab.find("play").click()
    tab.find("play-variables").fill("NAME=value=1\n")
    tab.find("play-inputs").fill("size=3")
    tab.find("play-now").click()
    expect(tab.page.locator("h1 .status")).to_have_text("pending")


def test_a_job_is_erased(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", ONE_JOB)
    job = runner.take()
    runner.patch(job, 0, b"secret\n")
    runner.put(job, "success")
    tab.page.goto("/root/app/-/jobs/1")
    expect(tab.find("log-lines")).to_contain_text("secret")
    tab.find("erase").click()
    tab.find("confirm").click()
    expect(tab.find("erase")).to_have_count(0)
    tab.page.reload()
    expect(tab.find("log-empty")).to_contain_text("The job has no log")


def test_the_list_is_filtered_and_live(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("app", PIPELINE)
    runner = cell.new_runner(tag_list="gpu", run_untagged=False)
    tab.page.goto("/root/app/-/jobs")
    expect(tab.find("job")).to_have_count(4)
    tab.page.get_by_label("Name").fill("gpu")
    tab.page.get_by_role("button", name="Filter").click()
    expect(tab.find("job")).to_have_count(1)
    expect(tab.find("job").locator(".status")).to_have_text("pending")
    job = runner.take()
    expect(tab.find("job").locator(".status")).to_have_text("running")
    runner.put(job, "success")
    expect(tab.find("job").locator(".status")).to_have_text("success")
    for query, count in (("status=success", 1), ("status=manual", 1), ("ref=main", 4), ("ref=other", 0)):
        tab.page.goto(f"/root/app/-/jobs?{query}")
        expect(tab.find("job")).to_have_count(count)
    tab.page.goto("/root/app/-/jobs?runner_id=1")
    expect(tab.find("job")).to_have_count(1)


def test_steps_are_a_tree(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", ONE_JOB)
    job = runner.take()
    usage = {"cpu_user_seconds": 61, "max_rss_bytes": 1 << 20}
    failed = {"status": "failure", "exit_code": 3, "error": "exit status 3", "error_kind": "exit"}
    send_steps(
        cell,
        job,
        step("started", "/outer"),
        step("started", "/outer/step_script"),
        step("finished", "/outer/step_script", usage=usage, **failed),
        step("finished", "/outer", **failed | {"error_kind": "step"}),
        {"event": "used", "used": {"memory_peak_bytes": 3 << 20, "network_sent_bytes": 2048}},
    )
    runner.put(job, "failed")
    tab.page.goto("/root/app/-/jobs/1")
    inner = tab.find("step").locator(tab.find("step"))
    expect(inner).to_contain_text("exit code 3")
    expect(inner).to_contain_text("1 min 1 s")
    expect(inner).to_contain_text("1.0 MiB")
    expect(tab.find("usage")).to_contain_text("3.0 MiB")
    expect(tab.find("usage")).to_contain_text("2.0 KiB")


def test_the_steps_of_a_running_job_are_live(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", ONE_JOB)
    job = runner.take()
    first = b"section_start:1:a\r\x1b[0KA\n"
    runner.patch(job, 0, first)
    tab.page.goto("/root/app/-/jobs/1")
    expect(tab.find("log-lines")).to_contain_text("A")
    send_steps(cell, job, step("started", "/new_step"))
    runner.patch(job, len(first), b"section_end:2:a\r\x1b[0Ksection_start:2:b\r\x1b[0KB\n")
    expect(tab.find("step")).to_contain_text("new_step", timeout=15_000)


def test_a_job_that_becomes_manual_can_be_played(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", ONE_JOB + "deploy:\n  stage: deploy\n  script: [x]\n  when: manual\n")
    job = runner.take()
    tab.page.goto("/root/app/-/jobs/2")
    expect(tab.page.locator("h1 .status")).to_have_text("created")
    runner.put(job, "success")
    tab.find("play").click(timeout=15_000)
    tab.find("play-now").click()
    expect(tab.page.locator("h1 .status")).to_have_text("pending")


def test_a_developer_sees_no_button_of_maintainers(visitor: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("app", ONE_JOB)
    person = create_person(cell, "dev")
    add_member(cell, f"projects/{project}", person, 30)
    guest = create_person(cell, "guest")
    add_member(cell, f"projects/{project}", guest, 20)
    runner.take()
    visitor.sign_in(person.token)
    visitor.page.goto("/root/app/-/jobs/1")
    expect(visitor.find("cancel")).to_be_visible()
    expect(visitor.find("shell")).to_have_count(0)
    visitor.context.clear_cookies()
    visitor.sign_in(guest.token)
    visitor.page.goto("/root/app/-/jobs/1")
    expect(visitor.find("job-name")).to_be_visible()
    expect(visitor.find("actions").locator("button")).to_have_count(0)


def test_a_job_of_another_project_or_none(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("app", ONE_JOB)
    cell.new_project("other", ONE_JOB)
    for address in ("/root/other/-/jobs/1", "/root/app/-/jobs/99", "/root/app/-/jobs/x"):
        tab.page.goto(address)
        expect(tab.find("error")).to_contain_text("There is nothing here")
    tab.expect_refusals("404")


def test_hostile_names_and_steps(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", f"{HOSTILE!r}:\n  script: [make]\n  tags: []\n")
    job = runner.take()
    send_steps(
        cell,
        job,
        step("started", f"/{HOSTILE}"),
        step("finished", f"/{HOSTILE}", error=HOSTILE, usage={"cpu_user_seconds": HOSTILE}, outputs={HOSTILE: HOSTILE}),
        step("finished", "/x", started_at=[HOSTILE], exit_code=HOSTILE, policy={"decision": HOSTILE}, steps=3),
    )
    runner.put(job, "failed", failure_reason=HOSTILE)
    for address in ("/root/app/-/jobs", "/root/app/-/jobs/1"):
        tab.page.goto(address)
        expect(tab.page.locator("main")).to_contain_text("<script>alert(1)</script>")
        tab.page.set_viewport_size({"width": PHONE_WIDTH, "height": 800})
        tab.check_width()
    for details in tab.page.locator(".steps details").all():
        details.evaluate("element => { element.open = true; }")
    tab.check_width()


def test_pages_are_accessible(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", PIPELINE)
    job = runner.take()
    section = b"section_start:1:a\r\x1b[0KA\n\x1b[31mred \x1b[44mblue\x1b[0m\nsection_end:2:a\r\x1b[0K\n"
    runner.patch(job, 0, section)
    send_steps(cell, job, step("started", "/a"), step("finished", "/a", error="no"))
    runner.put(job, "failed")
    for width in (1280, PHONE_WIDTH):
        tab.page.set_viewport_size({"width": width, "height": 800})
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme=scheme)
            for address in ("", "/1", "/3", "/4"):
                tab.page.goto(f"/root/app/-/jobs{address}")
                expect(tab.page.locator("h1")).to_be_visible()
                if address == "/1":
                    expect(tab.find("log-lines")).to_contain_text("red blue")
                tab.check_accessibility()
                tab.check_width()
