"""Runner entries of a configuration file with a real cell: verify, unregister, list, and new tokens."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.support.cells.served_cell import ADMIN_TOKEN, ServedCell
from tests.support.runners.manager_harness import ManagerHarness

from remuda.cli.main import call
from remuda.lib.clock import VirtualClock
from remuda.manager.config.load import load
from remuda.manager.errors import ConfigError, RegisterError
from remuda.manager.registration.token_rotation import LOOK_SECONDS, TokenRotation
from remuda.testing.lab import free_port
from remuda.testing.waiting import until
from remuda.wire.runner_client import RunnerClient, RunnerReply

HEAD = "# mine\nconcurrent = 2 # two\n"


def runner_section(url: str, token: str, name: str, more: str = "") -> str:
    return (
        f'\n[[runners]]\n  # the runner {name}\n  name = "{name}"\n  url = "{url}"\n  token = "{token}"\n'
        f'  executor = "shell"\n{more}'
    )


@pytest.fixture
def config(tmp_path: Path, cell: ServedCell) -> Path:
    """A file with two runners of the cell, and one that the cell does not know."""
    path = tmp_path / "config.toml"
    first, second = cell.new_runner().token, cell.new_runner().token
    path.write_text(
        HEAD
        + runner_section(cell.url, first, "one")
        + runner_section(cell.url, second, "two")
        + runner_section(cell.url, "glrt-t1_never-heard-of-it", "lost")
    )
    return path


def names(path: Path) -> list[str]:
    return [runner.name for runner in load(path).config.runners]


def test_verify_reports_each_runner(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["manager", "verify", "--config", str(config), "--name", "one"]) == 0
    assert call(["manager", "verify", "--config", str(config)]) == 1
    out = capsys.readouterr().out
    assert out.count("is known there") == 3
    assert "lost (never-hea)" in out
    assert "the token is not valid there" in out
    assert names(config) == ["one", "two", "lost"]


def test_verify_with_delete_removes_unknown_runners(config: Path) -> None:
    assert call(["manager", "verify", "--config", str(config), "--delete"]) == 1
    assert names(config) == ["one", "two"]
    text = config.read_text()
    assert text.startswith(HEAD)
    assert "# the runner two" in text
    assert call(["manager", "verify", "--config", str(config)]) == 0


def test_an_unreachable_server_removes_nothing(config: Path) -> None:
    config.write_text(config.read_text().replace("http://127.0.0.1:", "http://127.0.0.1:1/").replace("1//", "1/"))
    before = config.read_text()
    with pytest.raises(RegisterError, match="cannot be reached"):
        call(["manager", "verify", "--config", str(config), "--delete"])
    assert config.read_text() == before


def test_unregister_leaves_the_runner_on_the_server(config: Path, cell: ServedCell) -> None:
    token = load(config).config.runners[0].token
    call(["manager", "verify", "--config", str(config), "--name", "one"])
    call(["manager", "unregister", "--config", str(config), "--name", "one"])
    assert names(config) == ["two", "lost"]
    assert cell.api("POST", "/runners/verify", {"token": token}).status == 200
    call(["manager", "unregister", "--config", str(config), "--all-runners"])
    assert config.read_text().rstrip() == HEAD.rstrip()
    with pytest.raises(RegisterError, match="there is no runner one"):
        call(["manager", "unregister", "--config", str(config), "--name", "one"])


def test_unregister_deletes_a_registered_runner(tmp_path: Path, cell: ServedCell) -> None:
    cell.api("PUT", "/application/settings", {"allow_runner_registration_token": True})
    token = cell.send("GET", "/api/remuda/v1/registration_token", None, PRIVATE_TOKEN=ADMIN_TOKEN).json()["token"]
    config = tmp_path / "config.toml"
    words = ["manager", "register", "--url", cell.url, "--registration-token", token, "--config", str(config)]
    call([*words, "--tag-list", "linux, big", "--maximum-timeout", "3600", "--name", "old way"])
    [runner] = load(config).config.runners
    created = cell.api("GET", f"/runners/{runner.id}", None).json()
    assert (created["tag_list"], created["maximum_timeout"], created["run_untagged"]) == (["linux", "big"], 3600, False)
    call(["manager", "unregister", "--config", str(config), "--url", cell.url, "--token", runner.token])
    assert cell.api("GET", f"/runners/{runner.id}", None).status == 404


def test_environment_fills_in_options(tmp_path: Path, cell: ServedCell, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.toml"
    server = {"CI_SERVER_URL": cell.url, "CI_SERVER_TOKEN": cell.new_runner().token, "CONFIG_FILE": str(config)}
    for name, value in (server | {"RUNNER_EXECUTOR": "docker", "DOCKER_IMAGE": "alpine:3"}).items():
        monkeypatch.setenv(name, value)
    call(["manager", "register", "--non-interactive", "--docker-volumes", "/cache", "--docker-volumes", "/more"])
    [runner] = load(config).config.runners
    assert (runner.url, runner.executor, runner.docker.image) == (cell.url, "docker", "alpine:3")
    assert runner.docker.volumes == ("/cache", "/more")


def test_reset_token_replaces_the_token(config: Path, cell: ServedCell) -> None:
    old = load(config).config.runners[0].token
    call(["manager", "reset-token", "--config", str(config), "--name", "one"])
    new = load(config).config.runners[0].token
    assert new != old
    assert cell.api("POST", "/runners/verify", {"token": old}).status == 403
    assert cell.api("POST", "/runners/verify", {"token": new}).status == 200
    assert config.read_text().startswith(HEAD)
    assert config.stat().st_mode & 0o777 == 0o600


def test_an_invalid_token_is_reset_with_a_personal_token(config: Path, cell: ServedCell) -> None:
    runner = load(config).config.runners[0]
    number = cell.api("POST", "/runners/verify", {"token": runner.token}).json()["id"]
    text = (
        config.read_text()
        .replace(runner.token, "glrt-t1_spoilt")
        .replace('name = "one"', f'name = "one"\nid = {number}')
    )
    config.write_text(text)
    with pytest.raises(RegisterError, match=r"token is not valid there.*--pat"):
        call(["manager", "reset-token", "--config", str(config), "--name", "one"])
    call(["manager", "reset-token", "--config", str(config), "--name", "one", "--pat", ADMIN_TOKEN])
    assert call(["manager", "verify", "--config", str(config), "--name", "one"]) == 0


def test_environments_token_cannot_be_reset(config: Path, cell: ServedCell, monkeypatch: pytest.MonkeyPatch) -> None:
    token = cell.new_runner().token
    monkeypatch.setenv("THE_TOKEN", token)
    config.write_text(HEAD + runner_section("${THE_URL}", "$THE_TOKEN", "one"))
    monkeypatch.setenv("THE_URL", cell.url)
    assert call(["manager", "verify", "--config", str(config)]) == 0
    with pytest.raises(RegisterError, match="comes from the environment"):
        call(["manager", "reset-token", "--config", str(config), "--all-runners"])
    assert cell.api("POST", "/runners/verify", {"token": token}).status == 200


def test_the_list_shows_no_token(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = [runner.token for runner in load(config).config.runners]
    call(["manager", "list", "--config", str(config)])
    call(["manager", "list", "--config", str(config), "--output", "json"])
    out = capsys.readouterr().out
    assert not any(token in out for token in tokens)
    assert [entry["name"] for entry in json.loads(out[out.index("[\n") :])] == ["one", "two", "lost"]
    with pytest.raises(ConfigError, match="there is no such file"):
        call(["manager", "list", "--config", f"{config}.none"])


async def test_the_manager_renews_a_token_before_it_expires(tmp_path: Path, cell: ServedCell) -> None:
    """Renewal is at three quarters of its lifetime. Other runners keep their tokens."""
    clock = VirtualClock()
    config = tmp_path / "config.toml"
    ending, lasting = cell.new_runner().token, cell.new_runner().token
    times = "  token_obtained_at = 2025-06-01T00:00:00Z\n  token_expires_at = {}\n"
    ends, never = times.format("2025-07-01T00:00:00Z"), times.format("0001-01-01T00:00:00Z")
    config.write_text(
        HEAD + runner_section(cell.url, ending, "ends", ends) + runner_section(cell.url, lasting, "lasts", never)
    )
    saved: list[bool] = []
    rotation = TokenRotation(config, clock, on_save=saved.append)
    await rotation.renew_due()
    assert [runner.token for runner in load(config).config.runners] == [ending, lasting]
    await clock.advance(9 * 24 * 3600 + LOOK_SECONDS)
    await rotation.renew_due()
    after = load(config).config.runners
    assert after[0].token not in (ending, "")
    assert after[1].token == lasting
    assert cell.api("POST", "/runners/verify", {"token": after[0].token}).status == 200
    assert "# the runner ends" in config.read_text()
    await rotation.renew_due()
    assert load(config).config.runners == after
    assert saved == [True]


async def test_a_running_manager_uses_the_new_token(tmp_path: Path, cell: ServedCell) -> None:
    old = cell.new_runner().token
    times = "  token_obtained_at = 2020-01-01T00:00:00Z\n  token_expires_at = 2020-02-01T00:00:00Z\n"
    harness = ManagerHarness(tmp_path, cell)
    port = free_port()
    harness.config.write_text(
        f'listen_address = "127.0.0.1:{port}"\n' + HEAD + runner_section(cell.url, old, "ends", times)
    )
    async with harness.manager():
        await until(lambda: load(harness.config).config.runners[0].token != old)
        metrics = await asyncio.to_thread(urlopen, f"http://127.0.0.1:{port}/metrics")
        assert b"gitlab_runner_configuration_saved_total 1" in metrics.read()
        assert cell.api("POST", "/runners/verify", {"token": old}).status == 403
        await asyncio.to_thread(cell.new_project, "app", "job: {script: [echo renewed]}")
        assert (await cell.wait_for_jobs())["job"]["status"] == "success"
    await harness.close()


def test_changes_of_the_file_in_a_reset_stay(config: Path, cell: ServedCell, monkeypatch: pytest.MonkeyPatch) -> None:
    reset = RunnerClient.reset_token
    before = load(config).config.runners

    async def reset_and_edit(client: RunnerClient, *, runner_id: int = 0, personal: str = "") -> RunnerReply:
        reply = await reset(client, runner_id=runner_id, personal=personal)
        config.write_text(config.read_text().replace("concurrent = 2", "concurrent = 7"))
        return reply

    monkeypatch.setattr(RunnerClient, "reset_token", reset_and_edit)
    call(["manager", "reset-token", "--config", str(config), "--name", "two"])
    loaded = load(config).config
    assert loaded.concurrent == 7
    assert loaded.runners[0] == before[0]
    assert loaded.runners[1].token != before[1].token
    assert call(["manager", "verify", "--config", str(config), "--name", "two"]) == 0


def test_new_token_outlives_an_invalid_file(config: Path, cell: ServedCell, monkeypatch: pytest.MonkeyPatch) -> None:
    reset = RunnerClient.reset_token

    async def reset_and_break(client: RunnerClient, *, runner_id: int = 0, personal: str = "") -> RunnerReply:
        reply = await reset(client, runner_id=runner_id, personal=personal)
        config.write_text("concurrent = ")
        return reply

    monkeypatch.setattr(RunnerClient, "reset_token", reset_and_break)
    call(["manager", "reset-token", "--config", str(config), "--name", "two"])
    assert call(["manager", "verify", "--config", str(config), "--name", "two"]) == 0


def _write_during_call(config: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Change the file during the client method `name`, as a manager does that renews another token meanwhile."""
    original = getattr(RunnerClient, name)

    async def call_and_write(client: RunnerClient, *arguments: Any) -> RunnerReply:
        reply: RunnerReply = await original(client, *arguments)
        config.write_text(config.read_text().replace("# the runner two", "renewed = true"))
        return reply

    monkeypatch.setattr(RunnerClient, name, call_and_write)


@pytest.mark.parametrize(
    ("method", "words", "expected"),
    [
        ("unregister", ["unregister", "--name", "lost"], ["one", "two"]),
        ("verify", ["verify", "--delete"], ["one", "two"]),
        ("verify", ["register", "--name", "new"], ["one", "two", "lost", "new"]),
    ],
)
def test_changes_of_the_file_during_a_call_are_kept(
    config: Path, cell: ServedCell, monkeypatch: pytest.MonkeyPatch, method: str, words: list[str], expected: list[str]
) -> None:
    if words[0] == "register":
        words = [*words, "--url", cell.url, "--token", cell.new_runner().token, "--non-interactive"]
    _write_during_call(config, monkeypatch, method)
    call(["manager", *words, "--config", str(config)])
    assert names(config) == expected
    assert "renewed = true" in config.read_text()
    assert [path.name for path in config.parent.glob("*lock*")] == []


async def test_manager_stores_token_at_stop(tmp_path: Path, cell: ServedCell, monkeypatch: pytest.MonkeyPatch) -> None:
    old = cell.new_runner().token
    times = "  token_obtained_at = 2020-01-01T00:00:00Z\n  token_expires_at = 2020-02-01T00:00:00Z\n"
    harness = ManagerHarness(tmp_path, cell)
    harness.config.write_text(HEAD + runner_section(cell.url, old, "ends", times))
    reset, is_reset, may_arrive = RunnerClient.reset_token, asyncio.Event(), asyncio.Event()

    async def reset_slowly(client: RunnerClient, *, runner_id: int = 0, personal: str = "") -> RunnerReply:
        reply = await reset(client, runner_id=runner_id, personal=personal)
        is_reset.set()
        await may_arrive.wait()
        return reply

    monkeypatch.setattr(RunnerClient, "reset_token", reset_slowly)
    async with harness.manager() as events:
        await is_reset.wait()
        events.stop.set()
        asyncio.get_running_loop().call_later(0.2, may_arrive.set)
    new = load(harness.config).config.runners[0].token
    assert new != old
    assert cell.api("POST", "/runners/verify", {"token": new}).status == 200
    await harness.close()
