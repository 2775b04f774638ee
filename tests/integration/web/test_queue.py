"""The queue: waiting jobs by what they require, runners that fit, and reasons; live, and only what the user may see."""

from playwright.sync_api import Browser, expect
from tests.support.browser import Tab
from tests.support.cells.cell_pages import check_look, start_pipeline, take_job
from tests.support.cells.people import add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import ScriptedRunner, ServedCell


def test_an_empty_queue(tab: Tab) -> None:
    tab.page.goto("/queue")
    expect(tab.find("empty")).to_contain_text("No job waits or runs")


def test_jobs_runners_and_reasons_change_live(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    tab.page.goto("/queue")
    start_pipeline(cell)
    plain = tab.find("queue-key").filter(has_text="No tags")
    gpu = tab.find("queue-key").filter(has_text="gpu")
    expect(plain.locator('[data-test="key-waiting"]')).to_have_text("3")
    expect(plain.locator('[data-test="queued-job"]')).to_have_count(3)
    expect(gpu.locator('[data-test="advice"]')).to_contain_text("No runner has the tags gpu, linux")
    take_job(runner)
    expect(plain.locator('[data-test="key-running"]')).to_have_text("1")
    expect(plain.locator('[data-test="fitting-runner"]')).to_contain_text("busy")
    expect(plain.locator('[data-test="fitting-runner"]')).to_contain_text("build 1/3")
    # A runner gets tags: it fits at once.
    assert cell.api("PUT", "/runners/1", {"tag_list": ["gpu", "linux"]}).status == 200
    expect(gpu.locator('[data-test="fitting-runner"]')).to_contain_text("#1")
    job = plain.locator('[data-test="queued-job"] a').first
    expect(job).to_have_attribute("href", "/root/app/-/jobs/2")
    check_look(tab, "/queue")


def test_priorities_are_in_the_order(cell: ServedCell) -> None:
    start_pipeline(cell)
    assert cell.send("PUT", "/api/remuda/v1/jobs/3", {"priority": 2}, PRIVATE_TOKEN=cell.token).status == 200
    keys = cell.send("GET", "/api/remuda/v1/queue", PRIVATE_TOKEN=cell.token).json()
    [plain] = [key for key in keys if not key["tags"]]
    assert [(job["id"], job["priority"], job["position"]) for job in plain["jobs"]] == [(3, 2, 1), (1, 0, 2), (2, 0, 3)]
    assert cell.send("GET", "/api/remuda/v1/queue?jobs=x", PRIVATE_TOKEN=cell.token).status == 400
    [few] = [
        key
        for key in cell.send("GET", "/api/remuda/v1/queue?jobs=1", PRIVATE_TOKEN=cell.token).json()
        if not key["tags"]
    ]
    assert (len(few["jobs"]), few["hidden_jobs"], few["waiting"]) == (1, 2, 3)


def test_others_see_only_numbers(browser: Browser, cell: ServedCell) -> None:
    start_pipeline(cell, "secret")
    group = create_group(cell, "acme")
    create_group_project(cell, group, "shop", "mine: {script: x}\n")
    cell.until_pipelines(1, "acme/shop")
    ann, zoe = create_person(cell, "ann"), create_person(cell, "zoe")
    add_member(cell, f"groups/{group}", ann, 30)
    hidden = cell.api("POST", "/user/runners", {"runner_type": "project_type", "project_id": 1, "description": "hush"})
    assert hidden.status == 201
    assert cell.send("GET", "/api/remuda/v1/queue", PRIVATE_TOKEN=zoe.token).json() == []
    [key] = cell.send("GET", "/api/remuda/v1/queue", PRIVATE_TOKEN=ann.token).json()
    assert [job["name"] for job in key["jobs"]] == ["mine"]
    assert (key["tags"], key["waiting"], key["hidden_jobs"]) == ([], key["waiting"], key["waiting"] - 1)
    assert "hush" not in str(key)
    assert "secret" not in str(key)
    with Tab(browser, cell.url) as visitor:
        visitor.sign_in(ann.token)
        visitor.page.goto("/queue")
        expect(visitor.find("queued-job")).to_have_count(1)


def test_hostile_names(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    names = ("<script>alert(1)</script>", "'\"><img src=x onerror=alert(1)>'", "javascript:alert(1)", "x" * 200)
    jobs = "".join(f"{name if name[0] != 'j' else repr(name)}: {{script: x}}\n" for name in names)
    tagged = 'tagged: {script: x, tags: ["<b>bold</b>", "\\u202eright", "' + "w" * 200 + '"]}\n'
    start_pipeline(cell, pipeline_file=jobs + tagged)
    cell.new_runner(description="<script>alert(2)</script>", tag_list=["<b>bold</b>"])
    take_job(runner)
    for address in ("/queue", "/", "/runners", "/runners/1", "/runners/2"):
        tab.page.goto(address)
        tab.page.set_viewport_size({"width": 390, "height": 900})
        tab.check_width()
        assert tab.page.locator("main b b, main img, main script").count() == 0
    tab.page.goto("/queue")
    expect(tab.page.locator("#queue")).to_contain_text("<script>alert(1)</script>")
