"""A shell in a job, in the page: a real shell on a pseudo-terminal behind a scripted runner manager."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.support.browser import PHONE_WIDTH, Tab
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

from remuda.wire.shell import DATA, OPENED, SIZE, TO_COMMAND, Frames, exit_frame, frame, size_of

SYSTEM = "s_0123456789ab"


class ShellManager:
    """Serves the next shell that a user opens, with /bin/sh, in threads of its own."""

    def __init__(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        self._cell, self._token = cell, runner.token
        self.size = (0, 0)
        self._sent = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        shells: list[dict[str, Any]] = []
        while not shells:
            body = {"token": self._token, "system_id": SYSTEM}
            shells = self._cell.send("POST", "/api/remuda/v1/runners/wanted", body).json()["shells"]
        shell = shells[0]
        self.size = (shell["columns"], shell["rows"])
        master, slave = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "TERM": shell["term"], "PS1": "$ "}
        process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", "/bin/sh"], stdin=slave, stdout=slave, stderr=slave, env=environment
        )
        os.close(slave)
        self._send(shell["id"], frame(OPENED))
        feeding = threading.Thread(target=self._feed, args=(shell["id"], master), daemon=True)
        feeding.start()
        with suppress(OSError):
            while data := os.read(master, 4096):
                self._send(shell["id"], frame(DATA, data))
        self._send(shell["id"], exit_frame(process.wait()))
        feeding.join(30)

    def join(self) -> None:
        """Wait until the shell has ended."""
        self._thread.join(30)
        assert not self._thread.is_alive(), "the shell goes on"

    def _feed(self, shell: str, master: int) -> None:
        offset, frames = 0, Frames(TO_COMMAND)
        while True:
            answer = self._call("GET", f"{shell}/input", None, f"&offset={offset}")
            offset += len(answer.body)
            for kind, data in frames.feed(answer.body):
                if kind == DATA:
                    os.write(master, data)
                elif kind == SIZE:
                    self.size = size_of(data)
                    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", self.size[1], self.size[0], 0, 0))
            if answer.headers["X-Remuda-Shell-State"] == "over":
                with suppress(OSError):  # it has ended by itself
                    os.write(master, b"\x03\nexit\n")
                return

    def _send(self, shell: str, data: bytes) -> None:
        content_range = f"{self._sent}-{self._sent + len(data) - 1}"
        self._call("PATCH", f"{shell}/output", data, Content_Range=content_range)
        self._sent += len(data)

    def _call(self, method: str, path: str, body: bytes | None, query: str = "", **headers: str) -> Answer:
        address = f"/api/remuda/v1/runners/shells/{path}?system_id={SYSTEM}{query}"
        return self._cell.send(method, address, body, RUNNER_TOKEN=self._token, **headers)


@pytest.fixture
def manager(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> Iterator[ShellManager]:
    """The manager of a job that runs, whose page is open."""
    cell.new_project("app", "build:\n  script: [make]\n")
    runner.put(runner.take(), "running")
    manager = ShellManager(cell, runner)
    tab.page.goto("/root/app/-/jobs/1")
    tab.find("shell").click()
    tab.find("shell-open").click()
    yield manager
    # Leaving the page closes the shell.
    tab.page.goto("about:blank")
    manager.join()


def run(tab: Tab, command: str) -> None:
    tab.find("shell-keys").press_sequentially(command)
    tab.find("shell-keys").press("Enter")


def test_commands_colours_and_the_end(tab: Tab, manager: ShellManager) -> None:
    screen = tab.find("shell-screen")
    expect(screen).to_contain_text("$")
    run(tab, "echo $((40 + 2)) $TERM; printf '\\033[31mred\\033[0m\\n<b>bold</b>\\n'")
    expect(screen).to_contain_text("42 xterm-256color")
    expect(screen.locator(".f-1")).to_have_text("red")
    expect(screen.locator("b")).to_have_count(0)
    run(tab, "cat")
    tab.find("shell-keys").press("Control+c")
    run(tab, "exit 3")
    expect(tab.find("shell-notice")).to_have_text("The shell has ended with exit code 3.")
    expect(tab.find("shell-open")).to_be_focused()


def test_sizes_and_full_screen_programs(tab: Tab, manager: ShellManager) -> None:
    screen = tab.find("shell-screen")
    expect(screen).to_contain_text("$")
    columns, rows = manager.size
    tab.page.set_viewport_size({"width": 700, "height": 600})
    expect(screen.locator(".term-line")).not_to_have_count(rows)
    run(tab, "stty size")
    expect(screen).to_contain_text(re.compile(r"\d+ \d+"))
    assert manager.size[0] < columns
    assert manager.size[1] < rows
    run(tab, "printf '\\033[?1049h\\033[2J\\033[3;5Hfull screen'; read x; printf '\\033[?1049l'")
    expect(screen.locator(".term-line").nth(2)).to_have_text("    full screen")
    expect(screen).not_to_contain_text("stty")
    tab.find("shell-keys").press("Enter")
    expect(screen).to_contain_text("stty")


def test_paste_and_close(tab: Tab, manager: ShellManager) -> None:
    screen = tab.find("shell-screen")
    expect(screen).to_contain_text("$")
    tab.find("shell-keys").evaluate(
        """(keys) => {
          const data = new DataTransfer();
          data.setData("text", "echo pas" + "ted\\n");
          keys.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
        }"""
    )
    expect(screen).to_contain_text("echo pasted")
    tab.find("shell-keys").press("Shift+Escape")
    expect(tab.find("shell-close")).to_be_focused()
    tab.check_accessibility()
    tab.page.keyboard.press("Enter")
    expect(tab.find("shell-notice")).to_have_text("You have closed the shell.")
    tab.page.set_viewport_size({"width": PHONE_WIDTH, "height": 800})
    tab.check_width()
    tab.check_accessibility()


def test_a_job_without_an_environment(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("app", "build:\n  script: [make]\n")
    tab.page.goto("/root/app/-/jobs/1/shell")
    expect(tab.find("empty")).to_contain_text("no environment")
