"""`remuda up` and `remuda job` beside it."""

import json
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import Clone

from remuda.testing.waiting import wait_until


class Platform:
    """A `remuda up` that serves."""

    def __init__(self, world: Any, address: str = "127.0.0.1:0") -> None:
        self.world = world
        self.process = world.start("up", "--data", "platform", "--listen", address)
        self.said = ""
        self.complained = b""
        self._reader = threading.Thread(target=self._read_errors)
        self._reader.start()
        while "Ctrl-C stops it" not in self.said:
            line = self.process.stdout.readline().decode()
            assert line, f"it ended early: {self.process.wait(10)}"
            self.said += line
        found = re.search(r"up at (http://\S+),", self.said)
        assert found
        self.url = found[1]
        self.address = self.url.removeprefix("http://")

    def _read_errors(self) -> None:
        self.complained = self.process.stderr.read()

    @property
    def token(self) -> str:
        return str(json.loads((self.world.folder / "platform" / "client.json").read_text())["token"])

    def job(self, *arguments: str, **more: str) -> Any:
        return self.world.remuda("job", *arguments, "--data", "platform", **more)

    def push(self, folder: Path, name: str) -> None:
        """Push a folder, as the welcome says."""
        clone = Clone(folder, self.world.environment())
        clone.git("init", "--quiet", "--initial-branch=main")
        clone.commit()
        address = self.url.replace("http://", f"http://me:{self.token}@")
        clone.git("push", "--quiet", f"{address}/root/{name}.git", "HEAD")

    def stop(self) -> str:
        """Ctrl-C; what it wrote to stderr."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(20) == 0
        self._reader.join()
        return self.complained.decode()


@pytest.fixture
def platform(world: Any) -> Iterator[Platform]:
    started = Platform(world)
    yield started
    if started.process.poll() is None:
        started.stop()


def test_a_pushed_repository_runs_and_its_jobs_can_be_seen(platform: Platform, pipeline: Any) -> None:
    platform.push(pipeline("hello:\n  script: [echo first, sleep 1, echo last]\n"), "shop")

    followed = platform.job("log", "1", "--follow")
    assert followed.code == 0, followed.err
    assert "first\n" in followed.out
    assert followed.out.endswith("Job succeeded\n")
    assert "section_start" not in followed.out

    raw = platform.job("log", "1", "--raw")
    assert "section_start" in raw.out
    assert re.match(r"\d{4}-\d\d-\d\dT", raw.out)

    listed = platform.job("list", "--project", "root/shop")
    assert re.search(r"^1 +success +hello +test +main +1 ", listed.out, re.MULTILINE)
    (as_json,) = json.loads(platform.job("list", "--output", "json").out)
    assert (as_json["id"], as_json["status"]) == (1, "success")
    assert platform.job("list", "--status", "failed").out.count("\n") == 1

    shown = platform.job("show", "1")
    assert "job 1: hello" in shown.out
    assert re.search(r"script +success +1\.\ds", shown.out)
    steps = json.loads(platform.job("show", "1", "--output", "json").out)["steps"]
    assert [step["event"] for step in steps if step.get("name") == "step_script"] == ["started", "finished"]


def test_what_does_not_exist_is_named(platform: Platform) -> None:
    for arguments in (["show", "77"], ["log", "77"], ["list", "--project", "root/none"], ["list", "--status", "odd"]):
        result = platform.job(*arguments)
        assert result.code == 2, arguments
        assert "refused" in result.err
        assert "Traceback" not in result.err


def test_a_wrong_token_is_named(platform: Platform) -> None:
    result = platform.world.remuda("job", "list", "--url", platform.url, REMUDA_TOKEN="glpat-wrong")
    assert result.code == 2
    assert "does not accept the token" in result.err


def test_the_token_is_shown_once_and_the_platform_comes_back_with_its_data(
    world: Any, platform: Platform, pipeline: Any
) -> None:
    token = platform.token
    platform.push(pipeline("hello:\n  script: [echo]\n"), "shop")
    assert platform.job("log", "1", "--follow").code == 0
    assert token in platform.stop()
    assert world.processes() == []

    again = Platform(world, platform.address)
    assert again.token == token
    assert "hello" in again.job("list").out
    assert token not in again.stop()


def test_a_cell_that_is_away_is_named_with_the_fix(world: Any, platform: Platform) -> None:
    platform.stop()
    result = platform.job("list")
    assert result.code == 1
    assert "Connection refused" in result.err
    assert "remuda up" in result.err
    nowhere = world.remuda("job", "list")
    assert nowhere.code == 2
    assert "which cell?" in nowhere.err


def test_a_port_in_use_and_a_folder_in_use_are_named(world: Any, platform: Platform) -> None:
    port = world.remuda("up", "--data", "other", "--listen", platform.address)
    assert port.code == 2
    assert f"cannot listen on {platform.address}: another process listens there" in port.err
    folder = world.remuda("up", "--data", "platform", "--listen", "127.0.0.1:0")
    assert folder.code == 2
    assert "in use by another process" in folder.err


def test_jobs_go_on_over_a_restart(world: Any, platform: Platform, pipeline: Any) -> None:
    begun, go = world.folder / "begun", world.folder / "go"
    script = f"[touch {begun}, 'while [ ! -e {go} ]; do sleep 0.1; done', echo it went on]"
    platform.push(pipeline(f"long:\n  script: {script}\n"), "shop")
    wait_until(begun.exists, "the job runs")
    assert "take over: 1" in platform.stop()
    go.touch()
    # Running jobs know the cell by its address, so the platform comes back where it was.
    again = Platform(world, platform.address)
    followed = again.job("log", "1", "--follow")
    assert "it went on" in followed.out
    assert followed.out.endswith("Job succeeded\n")
    again.stop()
