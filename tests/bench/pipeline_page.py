"""Measures the page of a pipeline with 2,000 jobs in a browser: until each view can be used, and until a change shows.

The reference is the page of a pipeline with one job. Nothing here asserts a time. `make bench` calls it; alone:
`python -m tests.bench.pipeline_page`.
"""

import asyncio
import json
import statistics
import time
from http.client import HTTPConnection
from pathlib import Path

from playwright.sync_api import Page
from tests.bench.http_calls import TOKEN, Caller, Show, bench_folder, new_project, new_runner, print_figure, serve_cell
from tests.support.browser import Tab, is_installed, run_browser

STAGES, JOBS_PER_STAGE, NEEDS = 10, 200, 3
FINISHED = 600
ROUNDS = 5
VIEWS = ("stages", "needs", "time")


def write_file(stages: int, jobs_per_stage: int) -> str:
    """Return a pipeline file. In each stage, half of the jobs need some of the stage before, half wait by stage."""
    lines = [f"stages: [{', '.join(f's{stage}' for stage in range(stages))}]"]
    for stage in range(stages):
        for number in range(jobs_per_stage):
            names = [f"job-{stage - 1}-{(number + step) % jobs_per_stage}" for step in range(NEEDS)]
            needs = f", needs: [{', '.join(names)}]" if stage and number % 2 else ""
            lines.append(f"job-{stage}-{number}: {{stage: s{stage}, script: [x]{needs}}}")
    return "\n".join(lines)


async def create_pipelines(port: int) -> tuple[int, str]:
    """Create a project with a small and one with a large pipeline. Returns the id of the large pipeline, and the token
    of a runner."""
    caller = await Caller.connect(port)
    await new_project(caller, "small", write_file(1, 1))
    project = await new_project(caller, "large", write_file(STAGES, JOBS_PER_STAGE))
    pipelines = await caller.api("GET", f"/api/v4/projects/{project}/pipelines")
    return int(pipelines[0]["id"]), await new_runner(caller)


def end_job(port: int, token: str) -> None:
    """Take a job and end it successfully."""

    def call(method: str, path: str, body: object) -> bytes:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(method, f"/api/v4/jobs/{path}", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert answer.status in (200, 201), content
        return content

    job = json.loads(call("POST", "request", {"token": token, "system_id": "s_0123456789ab"}))
    call("PUT", str(job["id"]), {"token": job["token"], "state": "success"})


def measure_page(page: Page, address: str) -> tuple[float, float]:
    """Open a page. Returns the seconds until its text has arrived, and until it is drawn and answers to clicks."""
    page.goto(address, wait_until="load")
    arrived, usable = page.evaluate(
        """() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(() => {
            const entry = performance.getEntriesByType("navigation")[0];
            resolve([entry.responseEnd / 1000, performance.now() / 1000]);
        })))"""
    )
    return arrived, usable


def pipeline_page(folder: Path, show: Show) -> None:
    if not is_installed():
        show("page of a pipeline", "-", "Chromium is not installed")
        return
    with serve_cell(folder / "page") as (cell, *_):
        number, token = asyncio.run(create_pipelines(cell.port))
        for _ in range(FINISHED):
            end_job(cell.port, token)
        with run_browser() as browser, Tab(browser, f"http://127.0.0.1:{cell.port}") as tab:
            tab.sign_in(TOKEN)
            small = [measure_page(tab.page, "/root/small/-/pipelines/1")[1] for _ in range(ROUNDS)]
            reference = statistics.median(small)
            show("page of a pipeline with one job, usable", f"{reference * 1000:.0f} ms", "")
            address = f"/root/large/-/pipelines/{number}"
            for view in VIEWS:
                times = [measure_page(tab.page, f"{address}?view={view}") for _ in range(ROUNDS)]
                arrived, usable = (statistics.median(each) for each in zip(*times, strict=True))
                note = f"{usable / reference:.1f} times one job; the text is there after {arrived * 1000:.0f} ms"
                jobs = STAGES * JOBS_PER_STAGE
                show(f"page of {jobs} jobs, view {view}, usable", f"{usable * 1000:.0f} ms", note)
            shown = measure_change(tab.page, cell.port, token)
            show("  until the change of a job shows", f"{shown * 1000:.0f} ms", "median")


def measure_change(page: Page, port: int, token: str) -> float:
    """Return the median of the seconds from the end of a job until the page shows it."""
    page.evaluate("new Promise((resolve) => setTimeout(resolve, 500))")
    page.evaluate(
        """() => document.addEventListener("live:job", ({ detail }) => {
            if (detail.status === "success") (window.seen ??= []).push(performance.timeOrigin + performance.now());
        })"""
    )
    delays: list[float] = []
    for number in range(ROUNDS):
        end_job(port, token)
        ended = time.time() * 1000
        seen = page.evaluate(
            """(number) => new Promise((resolve) => {
                const look = () => window.seen?.[number] ? resolve(window.seen[number]) : setTimeout(look, 5);
                look();
            })""",
            number,
        )
        delays.append((seen - ended) / 1000)
    return max(statistics.median(delays), 0.0)


if __name__ == "__main__":
    with bench_folder() as place:
        pipeline_page(place, print_figure)
