"""Jobs of a cell on machines that the scaler creates for them."""

import asyncio
from typing import Any

import pytest
from tests.integration.autoscaling.conftest import docker_start_command
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine

from remuda.cli.main import call
from remuda.testing.waiting import until

PIPELINE = """
one: {script: [hostname]}
two: {script: [hostname]}
three: {script: [hostname]}
four: {script: [hostname]}
"""


def polls_are_held(site: Any) -> bool:
    return b"\nremuda_cell_held_polls 0.0\n" not in site.cell.send("GET", "/-/metrics").body


async def test_machines_are_created_for_jobs_and_then_deleted(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    site.configure(autoscaler="max_instances = 2\nlog_internal_ip = true", policy='idle_time = "1s"')
    async with site.manager():
        jobs = await site.jobs(await site.push(PIPELINE))
        assert {job["status"] for job in jobs.values()} == {"success"}, jobs
        assert all("has the internal address 10.250.0." in job["log"] for job in jobs.values())
        assert 1 <= site.group.created <= 2
        await asyncio.to_thread(call, ["scale", "explain", "bench", "--data", str(site.data)])
        output = capsys.readouterr().out
        assert "Wanted: " in output
        assert "create " in output
        # The cell holds a request that has a slot reserved; such a request is no demand for a machine.
        await until(lambda: polls_are_held(site), seconds=60)
        await until(lambda: not site.group.instances, seconds=60)
        assert polls_are_held(site)
        await asyncio.to_thread(call, ["manager", "status", "--data", str(site.data)])
        assert "jobs that wait" in capsys.readouterr().out
    assert site.group.events[-1] == "shutdown"


@pytest.mark.long
async def test_a_machine_with_one_use_runs_one_job(site: Any) -> None:
    """With capacity 1 and max_use_count 1, no two jobs ever share a machine."""
    site.configure(autoscaler="max_instances = 1\ncapacity_per_instance = 1\nmax_use_count = 1")
    async with site.manager():
        jobs = await site.jobs(await site.push("one: {script: [hostname]}\ntwo: {script: [hostname]}\n"))
        assert {job["status"] for job in jobs.values()} == {"success"}, jobs
        assert site.group.created == 2


@pytest.mark.long
async def test_jobs_on_one_machine_cannot_read_each_others_files(site: Any, tmp_path: Any) -> None:
    """Each slot has its own user, who cannot read the files of the other slot's job."""
    site.configure(
        autoscaler="capacity_per_instance = 2\nmax_instances = 1",
        runner="[runners.remuda]\nfirst_uid = 21000\n",
    )
    both = f"{tmp_path}/both"
    wait = f"until [ -e {both}/one -a -e {both}/two ]; do sleep 0.1; done"
    mark = f"touch {both}/$CI_JOB_NAME"
    other = "[ $d = $PWD ] || { echo looked at $d; if cat $d/secret; then exit 1; fi; }"
    look = f"for d in /var/lib/remuda-machine/builds/*/*/*/app; do {other}; done"
    script = f'["umask 077; echo x >secret; id -u", "{mark}", "{wait}", "{look}"]'
    (tmp_path / "both").mkdir(mode=0o777)
    (tmp_path / "both").chmod(0o777)
    tmp_path.chmod(0o755)
    async with site.manager():
        jobs = await site.jobs(await site.push(f"one: {{script: {script}}}\ntwo: {{script: {script}}}\n"))
        logs = "".join(job["log"] for job in jobs.values())
        assert {job["status"] for job in jobs.values()} == {"success"}, logs
        assert "21000" in logs
        assert "21001" in logs
        assert logs.count("looked at /var/lib/remuda-machine/builds/") == 2
        assert site.group.created == 1


@pytest.mark.long
async def test_a_vanished_machine_fails_its_job_which_is_retried(site: Any, tmp_path: Any) -> None:
    """The job of a vanished instance fails with that reason, and is retried on another machine."""
    site.configure(autoscaler="max_instances = 1")
    async with site.manager():
        script = f"[if mkdir {tmp_path}/first; then sleep 600; fi, hostname]"
        pipeline = await site.push(f"long: {{retry: 1, script: {script}}}\n")
        await until((tmp_path / "first").exists, seconds=60)
        [instance] = site.group.instances
        site.group.vanish(instance)
        assert (await site.jobs(pipeline))["long"]["status"] == "success"
        attempts = site.cell.api("GET", f"/projects/1/pipelines/{pipeline}/jobs?include_retried=true").json()
        first = min(attempts, key=lambda job: int(job["id"]))
        assert (first["status"], first["failure_reason"]) == ("failed", "runner_system_failure")
        log = site.cell.api("GET", f"/projects/1/jobs/{first['id']}/trace").body.decode()
        assert f"the machine lab/{instance} is lost: the instance" in log
        assert instance not in site.group.instances


@pytest.mark.long
async def test_cancelled_and_timed_out_jobs_do_not_report_a_lost_machine(site: Any, tmp_path: Any) -> None:
    """A cancelled and a timed-out job have these statuses, and do not report a lost machine."""
    site.configure(autoscaler="capacity_per_instance = 2\nmax_instances = 1")
    script = f"script: [touch {tmp_path}/$CI_JOB_NAME, sleep 600]"
    async with site.manager():
        pipeline = await site.push(f"canceled: {{{script}}}\nlate: {{{script}, timeout: 10 seconds}}\n")
        await until(lambda: (tmp_path / "canceled").exists() and (tmp_path / "late").exists(), seconds=60)
        running = await site.jobs(pipeline, until=("running",))
        site.cell.api("POST", f"/projects/1/jobs/{running['canceled']['id']}/cancel")
        jobs = await site.jobs(pipeline)
        assert jobs["canceled"]["status"] == "canceled"
        assert (jobs["late"]["status"], jobs["late"]["failure_reason"]) == ("failed", "job_execution_timeout")


@pytest.mark.long
async def test_containers_of_timed_out_job_are_gone(site: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers and processes of a timed-out job are removed before the next job gets its slot."""
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    start_docker = docker_start_command(tmp_path)
    site.configure(
        executor="docker-autoscaler",
        runner='[runners.docker]\npull_policy = "never"\n',
        autoscaler=f"max_instances = 1\ninstance_ready_command = '''{start_docker}'''",
    )
    late = f"late: {{image: '{BUSYBOX}', stage: build, timeout: 10s, allow_failure: true, script: [sleep 600]}}\n"
    after = f"after: {{image: '{BUSYBOX}', stage: test, script: ['true']}}\n"
    async with site.manager():
        jobs = await site.jobs(await site.push(late + after))
        assert jobs["late"]["failure_reason"] == "job_execution_timeout", jobs["late"]["log"]
        assert jobs["after"]["status"] == "success", jobs["after"]["log"]
        [machine] = site.group.instances.values()
        assert machine.run("docker ps -aq").stdout == ""
        assert machine.run("pgrep -f 'sleep 600'", check=False).stdout == ""


@pytest.mark.long
async def test_the_scaler_uses_the_demand_of_the_cell(site: Any) -> None:
    """The scaler creates machines for jobs that wait at the cell; no job is requested without a ready machine."""
    site.configure(autoscaler="max_instances = 2", policy='idle_time = "1s"\npreemptive_mode = true')
    async with site.manager():
        jobs = await site.jobs(await site.push("one: {script: [hostname]}\n"))
        assert jobs["one"]["status"] == "success"
        status = await site.scaling()
        assert any(decision.reason == "ready_jobs" for decision in status.decisions)
