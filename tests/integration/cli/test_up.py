"""`remuda up` as a process, and `remuda job` against it."""

import json
import re
import shlex
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import Clone

from remuda.cli.access.profiles import Profile, Profiles, write_profiles
from remuda.testing.waiting import wait_until


class Platform:
    """A `remuda up` process. The constructor waits until it serves."""

    def __init__(
        self,
        world: Any,
        address: str = "127.0.0.1:0",
        *,
        data: Sequence[str] = ("--data", "platform"),
        options: Sequence[str] = (),
        **variables: str,
    ) -> None:
        self.world = world
        self.process = world.start("up", *data, "--listen", address, *options, **variables)
        self.output = ""
        self.error_output = b""
        self._reader = threading.Thread(target=self._read_errors)
        self._reader.start()
        while "Ctrl-C stops it" not in self.output:
            line = self.process.stdout.readline().decode()
            assert line, f"remuda up ended with {self.process.wait(10)}"
            self.output += line
        match = re.search(r"up at (http://\S+),", self.output)
        assert match
        self.url = match[1]
        self.address = self.url.removeprefix("http://")

    def _read_errors(self) -> None:
        self.error_output = self.process.stderr.read()

    @property
    def token(self) -> str:
        return str(json.loads((self.world.folder / "platform" / "client.json").read_text())["token"])

    def job(self, *arguments: str, **variables: str) -> Any:
        return self.world.remuda("job", *arguments, "--data", "platform", **variables)

    def api(self, path: str) -> Any:
        request = urllib.request.Request(f"{self.url}/api/v4{path}", headers={"PRIVATE-TOKEN": self.token})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def push(self, folder: Path, name: str) -> str:
        """Commit a folder and push it, like the output of `remuda up` describes. Returns what git shows."""
        clone = Clone(folder, self.world.environment())
        clone.git("init", "--quiet", "--initial-branch=main")
        clone.commit()
        address = self.url.replace("http://", f"http://me:{self.token}@")
        return clone.run("push", f"{address}/root/{name}.git", "HEAD").stderr

    def stop(self) -> str:
        """Send SIGINT, wait for the end, and return what the process wrote to stderr."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(20) == 0
        self._reader.join()
        return self.error_output.decode()


@pytest.fixture
def platform(world: Any) -> Iterator[Platform]:
    started = Platform(world)
    yield started
    if started.process.poll() is None:
        started.stop()


def test_a_pushed_repository_runs_and_its_jobs_can_be_seen(platform: Platform, pipeline: Any) -> None:
    platform.push(pipeline("hello:\n  script: [echo first, sleep 1, echo last]\n"), "shop")

    log = platform.job("log", "1", "--follow")
    assert log.code == 0, log.err
    assert "first\n" in log.out
    assert log.out.endswith("Job succeeded\n")
    assert "section_start" not in log.out

    raw = platform.job("log", "1", "--raw")
    assert "section_start" in raw.out
    assert re.match(r"\d{4}-\d\d-\d\dT", raw.out)

    job_list = platform.job("list", "--project", "root/shop")
    assert re.search(r"^1 +success +hello +test +main +root/shop +1 ", job_list.out, re.MULTILINE)
    (job,) = json.loads(platform.job("list", "--output", "json").out)
    assert (job["id"], job["status"]) == (1, "success")
    assert platform.job("list", "--status", "failed").out.count("\n") == 1

    details = platform.job("show", "1")
    assert "job 1: hello" in details.out
    assert re.search(r"script +success +1\.\ds", details.out)
    steps = json.loads(platform.job("show", "1", "--output", "json").out)["steps"]
    assert [step["event"] for step in steps if step.get("name") == "step_script"] == ["started", "finished"]


def visit(link: str) -> str:
    """The title of the page to which a sign-in link leads."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    try:
        with opener.open(link, timeout=20) as answer:
            page = answer.read().decode()
    except urllib.error.HTTPError as error:
        page = error.read().decode()
    title = re.search("<title>(.*?) · Remuda</title>", page)
    assert title, page
    return title[1]


def test_links_to_the_pages_sign_in_once(world: Any) -> None:
    opened = world.folder / "opened"
    browser = world.folder / "browser"
    browser.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$1\" >> '{opened}'\n")
    browser.chmod(0o755)
    platform = Platform(world, options=["--open"], BROWSER=f"{browser} %s")
    try:
        match = re.search(r"^    (http://\S+/-/sign-in/link\?code=\S+)$", platform.output, re.MULTILINE)
        assert match
        wait_until(opened.exists, "the browser is opened")
        assert opened.read_text() == f"{match[1]}\n"
        assert visit(match[1]) == "Overview"
        assert visit(match[1]) == "Sign in"
        printed = world.remuda("open", "--print", "--data", "platform")
        assert printed.code == 0, printed.err
        assert visit(printed.out.strip()) == "Overview"
        shown = world.remuda("open", "--data", "platform", BROWSER="", DISPLAY="", WAYLAND_DISPLAY="")
        assert "there is no browser on this machine" in shown.err
        assert visit(shown.out.strip()) == "Overview"
        assert world.remuda("open", "--data", "platform", BROWSER=f"{browser} %s").out == ""
        wait_until(lambda: opened.read_text().count("\n") == 2, "the browser is opened again")
    finally:
        platform.stop()


def test_without_web_pages_there_is_no_link(world: Any) -> None:
    platform = Platform(world, options=["--open"], REMUDA_WEB_ENABLED="false")
    try:
        assert "sign-in/link" not in platform.output
        refused = world.remuda("open", "--data", "platform")
        assert refused.code != 0
        assert "serves no web pages" in refused.err
    finally:
        errors = platform.stop()
    assert "nothing to open: this cell serves no web pages" in errors


def test_the_commands_that_it_names_find_it(platform: Platform, pipeline: Any) -> None:
    platform.push(pipeline("hello:\n  script: [echo first]\n"), "shop")
    listing, log = re.findall(r"^    remuda (job .*)$", platform.output, re.MULTILINE)
    assert platform.world.remuda(*shlex.split(log.replace("NUMBER", "1"))).code == 0
    assert "hello" in platform.world.remuda(*shlex.split(listing)).out


def test_the_commands_that_it_names_find_it_although_a_profile_is_current(
    world: Any, platform: Platform, pipeline: Any
) -> None:
    profiles = Profiles(current="work", profiles={"work": Profile(url=platform.url, token=platform.token)})
    write_profiles(world.folder / ".config" / "remuda" / "profiles.json", profiles)
    own = Platform(world, data=())
    folder = world.folder / "remuda"
    assert f"Without --data, commands call the cell at {platform.url}." in own.output
    commands = re.findall(r"^    remuda (job .*)$", own.output, re.MULTILINE)
    assert commands == [f"job list --data {folder}", f"job log NUMBER --follow --data {folder}"]
    platform.push(pipeline("theirs: {script: [echo theirs]}\n"), "shop")
    for environment in ({}, {"REMUDA_URL": platform.url, "REMUDA_TOKEN": platform.token}):
        listed = world.remuda(*shlex.split(commands[0]), **environment)
        assert (listed.code, listed.out) == (0, "there are no jobs in your projects\n"), listed.err
    assert "theirs" in world.remuda("job", "list").out

    platform.stop()
    lost = world.remuda("job", "list")
    assert lost.code == 1
    assert f"cannot reach the cell at {platform.url}" in lost.err
    assert "The profile work of `remuda login`" in lost.err
    assert "`remuda login --use" in lost.err
    assert f"--data {folder}" in lost.err
    own.stop()


def test_missing_jobs_and_projects_are_reported(platform: Platform) -> None:
    for arguments in (["show", "77"], ["log", "77"], ["list", "--project", "root/none"], ["list", "--status", "odd"]):
        result = platform.job(*arguments)
        assert result.code == 2, arguments
        assert re.search(r"there is no (job 77|project root/none)|odd", result.err), result.err
        assert "Traceback" not in result.err


def test_a_wrong_token_is_reported(platform: Platform) -> None:
    result = platform.world.remuda("job", "list", "--url", platform.url, REMUDA_TOKEN="glpat-wrong")
    assert result.code == 2
    assert "does not accept the token" in result.err


def test_the_token_is_printed_once_and_a_restart_keeps_the_data(world: Any, platform: Platform, pipeline: Any) -> None:
    token = platform.token
    platform.push(pipeline("hello:\n  script: [echo]\n"), "shop")
    assert platform.job("log", "1", "--follow").code == 0
    assert token in platform.stop()
    assert world.processes() == []

    restarted = Platform(world, platform.address)
    assert restarted.token == token
    assert "hello" in restarted.job("list").out
    assert token not in restarted.stop()


def test_a_restart_leaves_one_manager_and_one_runner(world: Any, platform: Platform) -> None:
    platform.stop()
    restarted = Platform(world, platform.address)
    [runner] = restarted.api("/runners/all")
    [manager] = restarted.api(f"/runners/{runner['id']}/managers")
    assert re.fullmatch("[sr]_[0-9a-zA-Z]{12}", manager["system_id"])
    restarted.stop()


def test_jobs_with_tags_run_unless_that_is_switched_off(world: Any, platform: Platform, pipeline: Any) -> None:
    folder = pipeline("render:\n  tags: [gpu, linux]\n  script: [echo drawn]\n")
    assert "warning" not in platform.push(folder, "shop")
    assert "drawn\n" in platform.job("log", "1", "--follow").out
    platform.stop()

    strict = Platform(world, platform.address, options=("--no-tagged",))
    assert "no runner has the tags gpu, linux" in strict.push(folder, "game").replace("\nremote:", "")
    assert "no runner has the tags gpu, linux" in strict.job("why", "2").out
    strict.stop()

    again = Platform(world, platform.address)
    assert again.job("log", "2", "--follow").out.endswith("Job succeeded\n")
    again.stop()


def test_an_unreachable_cell_is_reported_with_the_fix(world: Any, platform: Platform) -> None:
    platform.stop()
    result = platform.job("list")
    assert result.code == 1
    assert "refused the connection" in result.err
    assert "remuda up" in result.err
    without_url = world.remuda("job", "list")
    assert without_url.code == 2
    assert "which cell?" in without_url.err


def test_a_port_in_use_and_a_folder_in_use_are_reported(world: Any, platform: Platform) -> None:
    port = world.remuda("up", "--data", "other", "--listen", platform.address)
    assert port.code == 2
    assert f"cannot listen on {platform.address}: another process listens there" in port.err
    folder = world.remuda("up", "--data", "platform", "--listen", "127.0.0.1:0")
    assert folder.code == 2
    assert "in use by another process" in folder.err


@pytest.fixture
def default_port() -> Iterator[str]:
    """The default address of a cell, on which something else listens: this fixture, or another process already."""
    address = "127.0.0.1:8929"
    with socket.socket() as listener:
        with suppress(OSError):
            listener.bind(("127.0.0.1", 8929))
            listener.listen()
        with socket.create_connection(("127.0.0.1", 8929), timeout=5):
            pass
        yield address


def test_what_listens_on_the_default_port_disturbs_nothing_else(
    world: Any, platform: Platform, pipeline: Any, default_port: str
) -> None:
    taken = world.remuda("up", "--data", "other")
    assert (taken.code, taken.out) == (2, "")
    assert f"cannot listen on {default_port}: another process listens there; stop it, " in taken.err
    assert "or give another --listen HOST:PORT (0: any free port)" in taken.err
    folder = pipeline("hello: {script: [echo first]}")
    local = world.remuda("run", folder)
    assert local.code == 0, local.err
    assert "\nfirst\n" in local.out
    # The platform that this test has started listens elsewhere.
    assert platform.address != default_port
    platform.push(folder, "shop")
    assert "first\n" in platform.job("log", "1", "--follow").out


def test_jobs_continue_over_a_restart(world: Any, platform: Platform, pipeline: Any) -> None:
    begun, go = world.folder / "begun", world.folder / "go"
    script = f"[touch {begun}, 'while [ ! -e {go} ]; do sleep 0.1; done', echo it went on]"
    platform.push(pipeline(f"long:\n  script: {script}\n"), "shop")
    wait_until(begun.exists, "the job runs")
    assert "takes them over: 1" in platform.stop()
    go.touch()
    # Running jobs use the address of the cell, so the platform must restart at the same address.
    restarted = Platform(world, platform.address)
    log = restarted.job("log", "1", "--follow")
    assert "it went on" in log.out
    assert log.out.endswith("Job succeeded\n")
    restarted.stop()


IMAGE = "build:\n  image: python:3.12\n  services: [postgres:16]\n  script: [echo hello]\n"


def test_every_command_marks_a_job_whose_image_was_ignored(world: Any, pipeline: Any) -> None:
    platform = Platform(world, options=("--no-containers",))
    platform.push(pipeline(IMAGE), "shop")
    mark = "image python:3.12 ignored, service postgres:16 not started"
    watched = world.remuda("pipeline", "watch", "1", "--data", "platform")
    assert watched.code == 0, watched.err
    [row] = [line for line in watched.out.splitlines() if line.startswith("1 ")]
    assert row.endswith(mark)
    for words in (("job", "list"), ("job", "show", "1"), ("job", "why", "1"), ("pipeline", "show", "1")):
        assert mark in world.remuda(*words, "--data", "platform").out, words
    for command in ("show", "why"):
        document = json.loads(platform.job(command, "1", "-o", "json").out)
        assert document["warnings"] == ["image python:3.12 ignored", "service postgres:16 not started"]
    platform.stop()


def test_a_job_without_an_engine_says_why_it_failed_and_what_to_do(world: Any, pipeline: Any) -> None:
    platform = Platform(world, DOCKER_HOST=f"unix://{world.folder}/none.sock")
    platform.push(pipeline(IMAGE), "shop")
    assert "no container engine answers" in platform.job("log", "1", "--follow").out
    for command in ("why", "show"):
        shown = platform.job(command, "1").out
        assert "no container engine answers" in shown, command
        assert "--no-containers" in shown, command
    assert "  details    Tried: unix:" in platform.job("why", "1").out
    listed = world.remuda("pipeline", "show", "1", "--data", "platform").out
    assert "runner_configuration_error, image: or services: needs containers, but no container engine" in listed
    platform.stop()
