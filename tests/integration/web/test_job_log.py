"""The viewer of a job's log."""

import re

import pytest
from playwright.sync_api import Locator, expect
from tests.support.browser import Tab
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.testing.waiting import wait_until

STAMP = b"2026-11-15T09:40:00.123456Z 01O "
SECTIONS = (
    b"section_start:10:build\r\x1b[0KBuild\n"
    b"inside one\n"
    b"section_start:11:inner[collapsed=true]\r\x1b[0KInner\nhidden line\nsection_end:14:inner\r\x1b[0K\n"
    b"section_end:20:build\r\x1b[0K\n"
    b"after\n"
)
HOSTILE = [
    b"<script>alert(1)</script>",
    b'"><img src=x onerror=alert(1)>',
    b"\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07",
    b'\x1b]8;;https://x/"onmouseover=alert(1)\x07click\x1b]8;;\x07',
    b"\x1b]0;title\x07\x1b]52;c;aGk=\x07\x1b[2J\x1b[10;10H\x1bc\x1b(0",
    b"\x1b[38;2;1;1;1;" + b"9;" * 5000 + b"mx",
    b"\x1b[" * 10000,
    b"\xff\xfe\x00\x01 not utf-8 \xc3",
    "\u202eevil\u2066 \u0e47".encode() + "\u0489".encode() * 500,
    b"section_start:1:<img src=x onerror=alert(1)>\r\x1b[0K",
    b"section_start:999999999999:" + b"a" * 5000 + b"\r",
    b"section_end:1:never\r\x1b[0K",
    b"=" * 1_000_000,
    b"\r".join(b"%d%%" % number for number in range(100)) + b"\r\n",
]


@pytest.fixture
def job(cell: ServedCell, runner: ScriptedRunner) -> dict[str, str]:
    cell.new_project("app", "build:\n  script: [make]\n")
    return runner.take()


class Log:
    """A job that writes a log, and the page that shows it."""

    def __init__(self, tab: Tab, runner: ScriptedRunner, job: dict[str, str]) -> None:
        self.tab = tab
        self.lines = tab.find("log-lines")
        self._runner = runner
        self._job = job
        self._size = 0

    def write(self, data: bytes) -> None:
        for start in range(0, len(data), 500_000):
            piece = data[start : start + 500_000]
            assert self._runner.patch(self._job, self._size, piece).status == 202
            self._size += len(piece)

    def end(self, state: str = "success") -> None:
        self._runner.put(self._job, state)

    def open(self, hash_part: str = "") -> None:
        # A change of the hash alone would not load the page.
        self.tab.page.goto("about:blank")
        self.tab.page.goto(f"/root/app/-/jobs/1{hash_part}")

    def row(self, number: int) -> Locator:
        return self.tab.page.locator(f'.row[data-line="{number}"] .text')


@pytest.fixture
def log(tab: Tab, runner: ScriptedRunner, job: dict[str, str]) -> Log:
    return Log(tab, runner, job)


def test_colours_and_progress_bars(log: Log) -> None:
    log.write(STAMP + b"\x1b[31;1mred\x1b[0m plain\n" + STAMP + b"10%\r100%\n" + STAMP[:-1] + b"+ done\n\x1b[34;7mx\n")
    log.end()
    log.open()
    expect(log.row(1).locator(".bold.f-1")).to_have_text("red")
    expect(log.row(1)).to_have_text("red plain")
    expect(log.row(2)).to_have_text("100% done")
    expect(log.row(3).locator(".inverse-f-back.inverse-g-4")).to_have_text("x")
    log.tab.check_accessibility()


def test_times(log: Log) -> None:
    log.write(STAMP + b"one\n")
    log.end()
    log.open()
    expect(log.row(1)).to_have_text("one")
    log.tab.find("log-times").click()
    time = log.tab.page.locator(".row .time")
    expect(time).to_have_text(re.compile(r"^\d\d:40:00\.123$"))
    expect(time).to_have_attribute("title", "2026-11-15T09:40:00.123456Z")


def test_sections_collapse(log: Log) -> None:
    log.write(SECTIONS)
    log.end()
    log.open()
    sections = log.tab.find("section")
    expect(sections).to_have_count(2)
    expect(log.lines).to_contain_text("10 s")
    expect(log.lines).not_to_contain_text("hidden line")
    expect(log.row(5)).to_have_text("after")
    sections.nth(1).click()
    expect(log.row(4)).to_have_text("hidden line")
    sections.nth(0).press("Enter")
    expect(log.lines).not_to_contain_text("inside one")
    expect(sections.nth(0)).to_have_attribute("aria-expanded", "false")
    expect(sections.nth(0)).to_be_focused()


def test_links_to_lines(log: Log) -> None:
    log.write(SECTIONS + b"".join(b"line %d\n" % number for number in range(3000)))
    log.end()
    log.open("#L2000-L2002")
    expect(log.tab.page.locator(".row.chosen")).to_have_count(3)
    expect(log.row(2000)).to_be_in_viewport()
    log.tab.page.locator('.row[data-line="1999"] .number').click()
    assert log.tab.page.url.endswith("#L1999")
    log.tab.page.locator('.row[data-line="2003"] .number').click(modifiers=["Shift"])
    assert log.tab.page.url.endswith("#L1999-L2003")
    expect(log.tab.page.locator(".row.chosen")).to_have_count(5)
    log.open("#L4")
    expect(log.row(4)).to_have_text("hidden line")
    log.tab.find("log-line").fill("2500")
    log.tab.find("log-line").press("Enter")
    expect(log.row(2500)).to_be_in_viewport()
    assert log.tab.page.url.endswith("#L2500")


def test_search_finds_all_lines(log: Log) -> None:
    lines = [
        b"line %d %s\n" % (number, b"N\x1b[1mee\x1b[0mdle" if number % 1000 == 7 else b"hay") for number in range(5000)
    ]
    log.write(b"".join(STAMP + line for line in lines))
    log.end()
    log.open()
    search = log.tab.find("log-search")
    search.fill("needle")
    hits = log.tab.find("log-hits")
    expect(hits).to_have_text("1 of 5 lines")
    expect(log.row(8).locator("mark")).to_have_text(["N", "ee", "dle"])
    log.tab.find("log-next").click()
    expect(hits).to_have_text("2 of 5 lines")
    expect(log.row(1008)).to_be_in_viewport()
    log.tab.find("log-previous").click()
    log.tab.find("log-previous").click()
    expect(hits).to_have_text("5 of 5 lines")
    search.fill("2026-11-15")
    expect(hits).to_have_text("not found")
    search.fill("line 4999")
    expect(hits).to_have_text("1 of 1 lines")
    expect(log.row(5000)).to_be_in_viewport()


def test_the_end_is_followed_until_the_reader_scrolls_up(log: Log) -> None:
    log.write(b"".join(b"line %d\n" % number for number in range(500)))
    log.open()
    expect(log.row(500)).to_be_in_viewport()
    log.write(b"new line\n")
    expect(log.row(501)).to_be_in_viewport()
    log.lines.hover()
    log.tab.page.mouse.wheel(0, -2000)
    expect(log.tab.find("log-follow")).to_be_visible()
    log.write(b"another\n")
    expect(log.tab.find("log-size")).to_contain_text("502 lines")
    expect(log.row(502)).to_have_count(0)
    log.tab.find("log-follow").click()
    expect(log.row(502)).to_be_in_viewport()
    log.end()
    expect(log.tab.find("log")).to_have_attribute("data-state", "success")


def test_an_open_line_grows(log: Log) -> None:
    log.write(b"one\ntwo")
    log.open()
    expect(log.row(2)).to_have_text("two")
    log.write(b" three")
    expect(log.row(2)).to_have_text("two three")


def test_a_long_line_is_cut_and_can_be_read(log: Log) -> None:
    log.write(b"a" * 100_000 + b"b" * 50_000 + b"\nnext\n")
    log.end()
    log.open()
    expect(log.row(2)).to_have_text("next")
    assert len(log.row(1).inner_text()) < 6000
    log.tab.find("whole-line").click()
    expect(log.tab.find("whole")).to_contain_text("part 1 of 3")
    log.tab.page.get_by_role("button", name="Next part").click()
    log.tab.page.get_by_role("button", name="Next part").click()
    expect(log.tab.find("whole").locator("pre")).to_have_text(re.compile("^b+\\s*$"))


def test_wrap_and_full(log: Log) -> None:
    log.write(b"x" * 3000 + b"\nend\n")
    log.end()
    log.open()
    expect(log.row(2)).to_have_text("end")
    flat = wait_until(log.row(1).bounding_box, "the line is shown")
    assert flat is not None
    log.tab.find("log-wrap").click()
    expect(log.tab.find("log-wrap")).to_have_attribute("aria-pressed", "true")

    def is_wrapped() -> bool:
        # The rows are built again meanwhile.
        box = log.row(1).bounding_box()
        return box is not None and box["height"] > 2 * flat["height"] and box["width"] < flat["width"]

    wait_until(is_wrapped, "the line is wrapped")
    log.tab.find("log-full").click()
    box = log.tab.find("log").bounding_box()
    assert box is not None
    assert (box["x"], box["y"], box["height"]) == (0, 0, 900)
    log.tab.page.keyboard.press("Escape")
    expect(log.tab.find("log")).not_to_have_class(re.compile("full"))


def test_hostile_logs(log: Log) -> None:
    log.write(b"".join(line + b"\n" for line in HOSTILE))
    log.write(b"".join(STAMP + line + b"\n" for line in HOSTILE) + b"the end\n")
    log.end("failed")
    log.open()
    expect(log.lines).to_contain_text("the end")
    log.open("#L1")
    expect(log.row(1)).to_have_text("<script>alert(1)</script>")
    assert log.lines.locator("img, script, [onerror], [onmouseover]").count() == 0
    assert all(str(link.get_attribute("href")).startswith("https://x/") for link in log.lines.locator("a").all())
    log.tab.find("log-search").fill("evil")
    expect(log.tab.find("log-hits")).to_have_text("1 of 2 lines")
    log.tab.find("log-wrap").click()
    log.tab.check_width()


def test_the_log_of_an_erased_job(log: Log, cell: ServedCell) -> None:
    log.write(b"one\n")
    log.end()
    cell.api("POST", "/projects/1/jobs/1/erase")
    log.open()
    expect(log.tab.find("log-empty")).to_contain_text("no log")
