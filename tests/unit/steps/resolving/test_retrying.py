import asyncio

import pytest

from remuda.lib.clock import VirtualClock
from remuda.steps.resolving.errors import ResolveError, TemporaryResolveError
from remuda.steps.resolving.retrying import TRUST, retry, select_env


class Failing:
    """A call that fails a number of times."""

    def __init__(self, *errors: ResolveError) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def outcome(call: Failing, clock: VirtualClock, patience: float = 60.0) -> str:
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(retry(clock, call, patience_seconds=patience), name="patiently")
        while not task.done():
            await clock.advance(1.0)
    return task.result()


async def test_what_may_pass_is_tried_again() -> None:
    call = Failing(*(TemporaryResolveError("away") for _ in range(4)))
    assert await outcome(call, VirtualClock()) == "done"
    assert call.calls == 5


async def test_only_for_a_while() -> None:
    call, clock = Failing(*(TemporaryResolveError("away") for _ in range(100))), VirtualClock()
    before = clock.now()
    with pytest.raises(ExceptionGroup) as error:
        await outcome(call, clock)
    assert error.group_contains(TemporaryResolveError, match="away")
    assert clock.now() - before <= 61


@pytest.mark.parametrize("error", [ResolveError("no"), TemporaryResolveError("no git", is_away=False)])
async def test_what_stays_is_not(error: ResolveError) -> None:
    call = Failing(error)
    with pytest.raises(ResolveError):
        await retry(VirtualClock(), call)
    assert call.calls == 1


async def test_without_patience_there_is_one_try() -> None:
    call = Failing(TemporaryResolveError("away"))
    with pytest.raises(TemporaryResolveError):
        await retry(VirtualClock(), call, patience_seconds=0.0)


async def test_a_server_that_says_when() -> None:
    call, clock = Failing(TemporaryResolveError("busy", retry_after=30.0)), VirtualClock()
    before = clock.now()
    assert await outcome(call, clock) == "done"
    assert clock.now() - before >= 30


def test_what_of_a_jobs_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/agent/bin")
    monkeypatch.setenv("https_proxy", "http://agent")
    monkeypatch.setenv("UNRELATED", "x")
    job = {
        "PATH": "/evil",
        "HOME": "/evil",
        "LD_LIBRARY_PATH": "/evil",
        "GIT_DIR": "/evil",
        "https_proxy": "http://job",
    }
    found = select_env(job | {"DOCKER_AUTH_CONFIG": "{}"})
    assert (found["PATH"], found["https_proxy"], found["DOCKER_AUTH_CONFIG"]) == ("/agent/bin", "http://job", "{}")
    assert "/evil" not in found.values()
    assert not {"GIT_DIR", "UNRELATED"} & found.keys()


def test_a_job_that_bends_the_way_does_not_get_the_agents_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TRUST:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://agent")
    monkeypatch.setenv("HOME", "/home/agent")
    monkeypatch.setenv("DOCKER_CONFIG", "/etc/docker")
    assert select_env({"HTTPS_PROXY": "http://agent", "DOCKER_CONFIG": "/job"})["DOCKER_CONFIG"] == "/etc/docker"
    for name in ("HTTPS_PROXY", "SSL_CERT_FILE", "CI_SERVER_TLS_CA_FILE"):
        assert not {"HOME", "DOCKER_CONFIG"} & select_env({name: "of the job"}).keys()
