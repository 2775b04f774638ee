"""Badges over HTTP: who may read them, which pipeline they show, and what browsers may keep."""

import xml.etree.ElementTree as ET
from typing import Any
from urllib.parse import quote

from tests.support.browser import Tab
from tests.support.cells.people import create_group, create_group_project, create_person
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

FILE = "build: {script: [x], coverage: '/(\\d+)%/'}\n"


def read(cell: ServedCell, path: str, **headers: Any) -> Answer:
    return cell.send("GET", path, **({"PRIVATE_TOKEN": cell.token} | headers))


def texts(answer: Answer) -> list[str | None]:
    assert answer.status == 200, answer
    assert answer.headers["Content-Type"] == "image/svg+xml"
    return [element.text for element in ET.fromstring(answer.body.decode()).iter("{http://www.w3.org/2000/svg}text")]


def test_status_and_coverage(cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("app", FILE)
    assert texts(read(cell, "/root/app/badges/main/pipeline.svg")) == ["pipeline", "pending"]
    assert texts(read(cell, "/root/app/badges/main/coverage.svg")) == ["coverage", "unknown"]
    job = runner.take()
    runner.patch(job, 0, b"81%\n")
    runner.put(job, "success")
    assert texts(read(cell, "/root/app/badges/pipeline.svg")) == ["pipeline", "success"]
    assert texts(read(cell, "/root/app/badges/main/coverage.svg?job=build&key_text=tests")) == ["tests", "81.00%"]
    assert texts(read(cell, "/root/app/badges/coverage.svg")) == ["coverage", "81.00%"]
    assert texts(read(cell, "/root/app/badges/nowhere/pipeline.svg")) == ["pipeline", "unknown"]
    cell.api("POST", f"/projects/{project}/repository/branches", {"branch": "badges/x", "ref": "main"})
    assert texts(read(cell, "/root/app/badges/badges/x/pipeline.svg"))[0] == "pipeline"


def test_skipped_pipelines_can_be_ignored(cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("app", FILE)
    runner.put(runner.take(), "success")
    action = {"action": "create", "file_path": "a", "content": "a"}
    body = {"branch": "main", "commit_message": "More [skip ci]", "actions": [action]}
    cell.api("POST", f"/projects/{project}/repository/commits", body)
    cell.until_pipelines(2)
    assert texts(read(cell, "/root/app/badges/main/pipeline.svg")) == ["pipeline", "skipped"]
    assert texts(read(cell, "/root/app/badges/main/pipeline.svg?ignore_skipped=true")) == ["pipeline", "success"]


def test_a_browser_keeps_an_image_until_it_changes(cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", FILE)
    first = read(cell, "/root/app/badges/main/pipeline.svg")
    tag = first.headers["ETag"]
    assert read(cell, "/root/app/badges/main/pipeline.svg", If_None_Match=tag).status == 304
    runner.put(runner.take(), "success")
    assert read(cell, "/root/app/badges/main/pipeline.svg", If_None_Match=tag).status == 200


def test_only_who_may_read_the_project(cell: ServedCell) -> None:
    group = create_group(cell, "badges")
    create_group_project(cell, group, "shop", FILE)
    stranger = create_person(cell, "sam")
    path = "/badges/shop/badges/main/pipeline.svg"
    assert texts(read(cell, path)) == ["pipeline", "pending"]
    assert read(cell, path, PRIVATE_TOKEN=stranger.token).status == 404
    unknown = cell.send("GET", path)
    assert (unknown.status, unknown.headers["Location"].startswith("/-/sign-in")) == (303, True)
    assert read(cell, "/badges/gone/badges/main/pipeline.svg").status == 404


def test_texts_of_the_address_stay_texts(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("app", FILE)
    key = '</text></svg><script>alert(1)</script>"'
    address = f"/root/app/badges/main/pipeline.svg?key_text={quote(key)}"
    assert texts(read(cell, address))[0] == key
    tab.page.goto("/root/app/-/pipelines")
    width = tab.page.evaluate(
        """(address) => new Promise((resolve) => {
            const image = new Image();
            image.addEventListener("load", () => resolve(image.naturalWidth));
            image.addEventListener("error", () => resolve(0));
            image.src = address;
            document.body.append(image);
        })""",
        address,
    )
    assert width > 100
