"""Services of a job: network names, health checks, logs, and their stop."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine, busybox_files

SERVER = "echo serving; while :; do nc -l -p 8000 -e echo hello; done"


def start_service(job: Any, image: str = BUSYBOX, **inputs: Any) -> Any:
    return job.step("service", image=image, **{"pull_policy": ["never"]} | inputs)


def test_a_service_is_reached_by_its_names_and_stopped(engine: DockerEngine, job: Any) -> None:
    name = "127.0.0.1:5000/group/web"
    engine.api.call("POST", f"/images/{BUSYBOX}/tag", query={"repo": name, "tag": "1"})
    started = start_service(
        job,
        f"{name}:1",
        alias=["web, www"],
        entrypoint=["sh", "-c"],
        command=['echo "$GREETING"; ' + SERVER],
        variables={"GREETING": "good morning", "HEALTHCHECK_TCP_PORT": "8000"},
    )
    assert started.code == 0, started.text
    assert started.outputs["aliases"] == ["web", "www", "127.0.0.1__group__web", "127.0.0.1-group-web"]
    assert (started.outputs["healthy"], started.outputs["checked"]) == (True, "port 8000")
    opened = job.open(network="job")
    for alias in ("web", "www", "127.0.0.1-group-web"):
        assert job.run(opened, "nc", alias, "8000").text == "hello\n"
    job.close()
    stopped = job.step("service_stop")
    assert stopped.code == 0, stopped.text
    assert "Last log lines of the service web:\n  good morning\n  serving\n" in stopped.text
    assert [(service["name"], service["running"]) for service in stopped.outputs["services"]] == [("web", True)]
    assert (engine.containers(), engine.networks()) == ([], [])
    engine.api.call("DELETE", f"/images/{name}:1")


@pytest.mark.long
def test_exposed_ports_and_health_checks_of_the_image_are_waited_for(engine: DockerEngine, job: Any) -> None:
    engine.add_image("slow:1", busybox_files(), f"CMD sleep 1; {SERVER}", "EXPOSE 9999/udp", "EXPOSE 8000")
    assert start_service(job, "slow:1").outputs["checked"] == "port 8000"
    check = "HEALTHCHECK --interval=1s CMD test -f /tmp/well"
    engine.add_image("checked:1", busybox_files(), "CMD sleep 1; touch /tmp/well; sleep 1000", check)
    started = start_service(job, "checked:1")
    assert (started.outputs["healthy"], started.outputs["checked"]) == (True, "its health check")
    ill = start_service(job, "checked:1", command=["sleep", "1000"], wait_seconds=2, alias=["ill"])
    assert (ill.code, ill.outputs["healthy"]) == (0, False)
    assert "its health check has not succeeded after 2 s" in ill.text
    assert job.step("service_stop", log_lines=0).code == 0
    assert engine.containers() == []


def test_a_port_that_only_the_service_itself_can_reach_is_not_open(engine: DockerEngine, job: Any) -> None:
    command = ["httpd", "-f", "-p", "127.0.0.1:8000"]
    started = start_service(job, command=command, variables={"HEALTHCHECK_TCP_PORT": "8000"}, wait_seconds=1)
    assert started.outputs["problem"] == "port 8000 is not open after 1 s"


def test_a_service_that_dies_is_a_warning_with_its_log(engine: DockerEngine, job: Any) -> None:
    """As in GitLab, the job continues."""
    started = start_service(job, command=["sh", "-c", "echo no configuration; exit 9"], alias=["db"])
    assert started.code == 0
    assert "probably did not start properly: it has ended with exit code 9" in started.text
    assert "no configuration" in started.text
    assert started.outputs["healthy"] is False
    stopped = job.step("service_stop")
    assert "which had ended with exit code 9" in stopped.text
    assert stopped.outputs["services"][0]["exit_code"] == 9
    assert engine.containers() == []


def test_a_service_that_cannot_be_started_ends_the_job(engine: DockerEngine, job: Any) -> None:
    absent = start_service(job, "nowhere/absent:1")
    assert (absent.code, "not on this machine" in absent.text) == (1, True)
    broken = start_service(job, command=["/no/such/program"])
    assert broken.code == 1
    assert "cannot start the service" in broken.text
    assert engine.containers() == []


def test_several_services_of_one_image(engine: DockerEngine, job: Any) -> None:
    for alias in ("one", "two"):
        assert start_service(job, command=["sleep", "1000"], alias=[alias]).code == 0
    assert len(engine.containers()) == 2
    # The same step again, as after a crash, replaces its first container.
    assert start_service(job, command=["sleep", "1000"], alias=["two"]).code == 0
    assert len(engine.containers()) == 2
    assert len(job.step("service_stop").outputs["services"]) == 2


def test_jobs_do_not_see_each_others_services(engine: DockerEngine, job: Any, new_job: Callable[..., Any]) -> None:
    other = new_job(engine, "2")
    assert start_service(other, command=["sleep", "1000"], alias=["db"]).code == 0
    assert start_service(job, command=["sleep", "1000"], alias=["cache"]).code == 0
    opened = job.open(network="job")
    assert job.run(opened, "ping", "-c", "1", "cache").code == 0
    networks = [engine.api.call("GET", f"/networks/{name}") for name in engine.networks()]
    assert sorted(len(network["Containers"]) for network in networks) == [1, 2]
    assert job.close().code == 0
    assert job.step("service_stop").code == 0
    assert [container["Labels"]["remuda.service"] for container in engine.containers()] == ["db"]


def test_stop_without_services(job: Any) -> None:
    stopped = job.step("service_stop")
    assert (stopped.code, stopped.outputs) == (0, {"services": []})


def test_a_log_without_end_is_cut(engine: DockerEngine, job: Any) -> None:
    start_service(job, command=["sh", "-c", "yes 0123456789012345678901234567890123456789 | head -n 5000; sleep 1000"])
    stopped = job.step("service_stop", log_lines=2000)
    assert "[...]" in stopped.text
    assert len(stopped.text) < 20_000


def test_limits_of_a_policy_hold_for_services(engine: DockerEngine, job: Any) -> None:
    job.env["REMUDA_LIMITS"] = '{"memory_bytes": 33554432, "network": [[]]}'
    started = start_service(job, command=["sleep", "1000"])
    assert started.code == 0, started.text
    host = engine.api.call("GET", f"/containers/{started.outputs['container']}/json")["HostConfig"]
    assert (host["Memory"], host["NetworkMode"]) == (33554432, "none")
