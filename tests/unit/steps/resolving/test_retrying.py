import asyncio

import pytest

from remuda.lib.clock import VirtualClock
from remuda.steps.resolving.errors import ResolveError, TemporaryResolveError
from remuda.steps.resolving.retrying import TRUST, retry, select_env


class FailingCall:
    """A call that raises these errors, one per call, and then succeeds."""

    def __init__(self, *errors: ResolveError) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def run_retry(call: FailingCall, clock: VirtualClock, patience: float = 60.0) -> str:
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(retry(clock, call, patience_seconds=patience), name="retry")
        while not task.done():
            await clock.advance(1.0)
    return task.result()


async def test_temporary_errors_are_retried() -> None:
    call = FailingCall(*(TemporaryResolveError("away") for _ in range(4)))
    assert await run_retry(call, VirtualClock()) == "done"
    assert call.calls == 5


async def test_temporary_errors_are_retried_for_a_limited_time() -> None:
    call, clock = FailingCall(*(TemporaryResolveError("away") for _ in range(100))), VirtualClock()
    before = clock.now()
    with pytest.raises(ExceptionGroup) as error:
        await run_retry(call, clock)
    assert error.group_contains(TemporaryResolveError, match="away")
    assert clock.now() - before <= 61


@pytest.mark.parametrize("error", [ResolveError("no"), TemporaryResolveError("no git", is_away=False)])
async def test_permanent_errors_are_not_retried(error: ResolveError) -> None:
    call = FailingCall(error)
    with pytest.raises(ResolveError):
        await retry(VirtualClock(), call)
    assert call.calls == 1


async def test_without_patience_there_is_one_try() -> None:
    call = FailingCall(TemporaryResolveError("away"))
    with pytest.raises(TemporaryResolveError):
        await retry(VirtualClock(), call, patience_seconds=0.0)


async def test_retry_after_of_the_server_is_respected() -> None:
    call, clock = FailingCall(TemporaryResolveError("busy", retry_after=30.0)), VirtualClock()
    before = clock.now()
    assert await run_retry(call, clock) == "done"
    assert clock.now() - before >= 30


def test_only_some_variables_of_the_job_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
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
    env = select_env(job | {"DOCKER_AUTH_CONFIG": "{}"})
    assert (env["PATH"], env["https_proxy"], env["DOCKER_AUTH_CONFIG"]) == ("/agent/bin", "http://job", "{}")
    assert "/evil" not in env.values()
    assert not {"GIT_DIR", "UNRELATED"} & env.keys()


def test_a_proxy_or_ca_of_the_job_gets_no_configuration_of_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TRUST:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://agent")
    monkeypatch.setenv("HOME", "/home/agent")
    monkeypatch.setenv("DOCKER_CONFIG", "/etc/docker")
    assert select_env({"HTTPS_PROXY": "http://agent", "DOCKER_CONFIG": "/job"})["DOCKER_CONFIG"] == "/etc/docker"
    for name in ("HTTPS_PROXY", "SSL_CERT_FILE", "CI_SERVER_TLS_CA_FILE"):
        assert not {"HOME", "DOCKER_CONFIG"} & select_env({name: "of the job"}).keys()


AGENT_LOGINS = {"DOCKER_AUTH_CONFIG": "agent", "CI_REGISTRY_USER": "agent", "CI_REGISTRY_PASSWORD": "agent"}


@pytest.fixture
def agent_with_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TRUST:
        monkeypatch.delenv(name, raising=False)
    for name, value in (AGENT_LOGINS | {"CI_REGISTRY": "registry.example"}).items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("agent_with_logins")
@pytest.mark.parametrize("name", ["HTTPS_PROXY", "SSL_CERT_FILE"])
def test_a_proxy_or_ca_of_the_job_gets_only_the_jobs_logins(name: str) -> None:
    assert select_env({"UNRELATED": "x"}).items() >= AGENT_LOGINS.items()
    assert not AGENT_LOGINS.keys() & select_env({name: "of the job"}).keys()
    job = {"DOCKER_AUTH_CONFIG": "job", "CI_REGISTRY_PASSWORD": "job"}
    assert select_env({name: "of the job", **job}).items() >= job.items()
    assert "agent" not in select_env({name: "of the job", **job}).values()


@pytest.mark.usefixtures("agent_with_logins")
def test_a_registry_that_the_job_names_does_not_get_the_agents_password() -> None:
    assert select_env({"CI_REGISTRY": "registry.example"}).items() >= AGENT_LOGINS.items()
    env = select_env({"CI_REGISTRY": "evil.example"})
    assert not {"CI_REGISTRY_USER", "CI_REGISTRY_PASSWORD"} & env.keys()
    assert env["DOCKER_AUTH_CONFIG"] == "agent"
