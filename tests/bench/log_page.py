"""Measures the page of a job's log in Chromium: a log of 50 MB with 700,000 lines, and one that grows.

The time until the page is usable ends with the first frame that shows lines of the log. References of the same run: how
long the same bytes take to be fetched by a page without being shown, and frames of an idle page."""

import time
from pathlib import Path

from playwright.sync_api import Page, expect
from tests.bench.http_calls import print_figure
from tests.support import browser as chromium
from tests.support.browser import Tab
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

LINES, LOG_BYTES = 700_000, 50_000_000
GROWING_LINES, GROWING_SECONDS = 5000, 20
_PIECE = 1_000_000
_FRAMES = """
window.longestFrame = 0;
let last = 0;
(function measure() {
  requestAnimationFrame((now) => {
    if (last) window.longestFrame = Math.max(window.longestFrame, now - last);
    last = now;
    measure();
  });
})();
"""
_FETCH = """async (path) => {
  const began = performance.now();
  const reader = (await fetch(path)).body.getReader();
  while (!(await reader.read()).done);
  return performance.now() - began;
}"""


def log_page(folder: Path) -> None:
    """Measure the page of a log in Chromium: time until it is usable, frames while it grows, memory."""
    if not chromium.is_installed():
        print_figure("log page", "-", "Chromium is not installed: make packages")
        return
    with ServedCell(folder / "log_page", trace_limit_bytes=4 * LOG_BYTES) as cell, chromium.run_browser() as program:
        cell.new_project("app", "build:\n  script: [make]\n  parallel: 2\n")
        runner = cell.new_runner()
        with Tab(program, cell.url) as tab:
            tab.page.add_init_script(_FRAMES)
            tab.sign_in(cell.token)
            _measure_large(cell, runner, tab)
            _measure_growing(runner, tab)


def _line(number: int, length: int) -> bytes:
    stamp = b"2026-11-15T09:40:%02d.%06dZ 01O " % (number // 12_000 % 60, number % 1_000_000)
    return (stamp + b"\x1b[32mok\x1b[0m %d compiling " % number).ljust(length - 1, b"x") + b"\n"


def _measure_large(cell: ServedCell, runner: ScriptedRunner, tab: Tab) -> None:
    job = runner.take()
    log = b"".join(_line(number, LOG_BYTES // LINES) for number in range(LINES))
    for start in range(0, len(log), _PIECE):
        assert runner.patch(job, start, log[start : start + _PIECE]).status == 202
    bare = 0.0
    for name in ("running", "ended"):
        if name == "ended":
            runner.put(job, "success")
        tab.page.goto("/")
        bare = tab.page.evaluate(_FETCH, f"/api/remuda/v1/jobs/{job['id']}/trace")
        tab.page.goto(f"/root/app/-/jobs/{job['id']}", wait_until="commit")
        log_part = tab.find("log")
        log_part.and_(tab.page.locator("[data-usable]")).wait_for(timeout=60_000)
        usable = float(str(log_part.get_attribute("data-usable")))
        expect(log_part).to_have_attribute("data-indexed", "true", timeout=60_000)
        indexed = float(tab.page.evaluate("performance.now()"))
        note = f"{usable / bare:.2f} of a bare fetch"
        print_figure(f"log of {len(log) >> 20} MiB, job {name}: usable after", f"{usable:.0f} ms", note)
        print_figure("  all lines have numbers after", f"{indexed:.0f} ms", f"{indexed / bare:.2f} of a bare fetch")
    began = time.perf_counter()
    tab.find("log-search").fill(f"ok {LINES - 1} ")
    expect(tab.find("log-hits")).to_have_text("1 of 1 lines", timeout=60_000)
    print_figure("  search through all lines", f"{time.perf_counter() - began:.2f} s")
    for share in (0.1, 0.9, 0.5, 0.2, 0.7):
        tab.find("log-lines").evaluate("(part, share) => { part.scrollTop = part.scrollHeight * share; }", share)
        tab.page.wait_for_timeout(200)
    print_figure("  memory of scripts and their buffers, page", f"{_memory(tab):.1f} MiB")
    print_figure("  anonymous memory of the process of the tab", f"{_renderer_memory(tab.page):.1f} MiB")


def _measure_growing(runner: ScriptedRunner, tab: Tab) -> None:
    job = runner.take()
    tab.page.goto(f"/root/app/-/jobs/{job['id']}")
    expect(tab.page.locator("h1")).to_be_visible()
    tab.page.wait_for_timeout(2000)
    tab.page.evaluate("longestFrame = 0")
    tab.page.wait_for_timeout(2000)
    idle = float(tab.page.evaluate("longestFrame"))
    tab.page.evaluate("longestFrame = 0")
    size = number = 0
    began = time.perf_counter()
    while time.perf_counter() - began < GROWING_SECONDS:
        piece = b"".join(_line(number + place, 70) for place in range(GROWING_LINES // 5))
        assert runner.patch(job, size, piece).status == 202
        size, number = size + len(piece), number + GROWING_LINES // 5
        time.sleep(max(began + number / GROWING_LINES - time.perf_counter(), 0))
    rate = number / (time.perf_counter() - began)
    expect(tab.find("log")).to_have_attribute("data-lines", str(number), timeout=10_000)
    longest = float(tab.page.evaluate("longestFrame"))
    print_figure(
        f"following {rate:.0f} lines/s: longest time between frames", f"{longest:.0f} ms", f"idle {idle:.0f} ms"
    )
    print_figure("  memory of scripts and their buffers, page", f"{_memory(tab):.1f} MiB")


def _memory(tab: Tab) -> float:
    """MiB of the page's objects and buffers after a garbage collection, without those of its worker."""
    session = tab.context.new_cdp_session(tab.page)
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    usage = session.send("Runtime.getHeapUsage")
    names = ("usedSize", "embedderHeapUsedSize", "backingStorageSize")
    return float(sum(usage.get(name, 0) for name in names)) / 2**20


def _renderer_memory(page: Page) -> float:
    """MiB of anonymous memory of the largest renderer process, which is that of the tab with its worker."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    processes = page.context.browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]  # type: ignore[union-attr]
    sizes = []
    for process in processes:
        if process["type"] == "renderer":
            status = Path(f"/proc/{process['id']}/status").read_text()
            sizes.append(next(int(line.split()[1]) / 1024 for line in status.splitlines() if "RssAnon" in line))
    return max(sizes, default=0.0)
