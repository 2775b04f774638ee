"""Jobs of a cell on machines that a scaler has created for them; the names of tests are those of known complaints."""

import asyncio
from typing import Any

import pytest
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine, busybox_files

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


async def test_machines_come_with_jobs_and_go_after_them(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    site.configure(autoscaler="max_instances = 2\nlog_internal_ip = true", policy='idle_time = "1s"')
    async with site.manager():
        jobs = await site.jobs(await site.push(PIPELINE))
        assert {job["status"] for job in jobs.values()} == {"success"}, jobs
        assert all("has the internal address 10.250.0." in job["log"] for job in jobs.values())
        assert 1 <= site.group.made <= 2
        await asyncio.to_thread(call, ["scale", "explain", "bench", "--data", str(site.data)])
        said = capsys.readouterr().out
        assert "Wanted: " in said
        assert "create " in said
        # The cell holds a request that has a slot reserved, which is no demand for a machine.
        await until(lambda: polls_are_held(site), seconds=60)
        await until(lambda: not site.group.instances, seconds=60)
        assert polls_are_held(site)
        await asyncio.to_thread(call, ["manager", "status", "--data", str(site.data)])
        assert "jobs that wait" in capsys.readouterr().out
    assert site.group.events[-1] == "shutdown"


@pytest.mark.long
async def test_a_machine_of_its_own_is_used_by_one_job(site: Any) -> None:
    """So that a job has neither a neighbour nor anything of an earlier job."""
    site.configure(autoscaler="max_instances = 1\ncapacity_per_instance = 1\nmax_use_count = 1")
    async with site.manager():
        jobs = await site.jobs(await site.push("one: {script: [hostname]}\ntwo: {script: [hostname]}\n"))
        assert {job["status"] for job in jobs.values()} == {"success"}, jobs
        assert site.group.made == 2


@pytest.mark.long
async def test_jobs_on_one_machine_are_kept_apart(site: Any, tmp_path: Any) -> None:
    """Each slot has a user of its own, who cannot read what the other's job has."""
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
        assert site.group.made == 1


@pytest.mark.long
async def test_vanished_noticed_fast(site: Any, tmp_path: Any) -> None:
    """The job of an instance that is gone ends with that cause, and is tried again on another machine."""
    site.configure(autoscaler="max_instances = 1")
    async with site.manager():
        script = f"[if mkdir {tmp_path}/first; then sleep 600; fi, hostname]"
        pipeline = await site.push(f"long: {{retry: 1, script: {script}}}\n")
        await until((tmp_path / "first").exists, seconds=60)
        [instance] = site.group.instances
        site.group.vanish(instance)
        assert (await site.jobs(pipeline))["long"]["status"] == "success"
        tried = site.cell.api("GET", f"/projects/1/pipelines/{pipeline}/jobs?include_retried=true").json()
        first = min(tried, key=lambda job: int(job["id"]))
        assert (first["status"], first["failure_reason"]) == ("failed", "runner_system_failure")
        log = site.cell.api("GET", f"/projects/1/jobs/{first['id']}/trace").body.decode()
        assert f"the machine lab/{instance} is lost: the instance" in log
        assert instance not in site.group.instances


@pytest.mark.long
async def test_cancel_is_cancel(site: Any, tmp_path: Any) -> None:
    """A job that is canceled and one that runs into its timeout say so, and not that their machine is lost."""
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
async def test_leftover_containers_gone(site: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a job that timed out has started is gone before the next one gets its slot."""
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    (tmp_path / "image.tar").write_bytes(busybox_files())
    begin = (
        "setsid dockerd --shutdown-timeout 1 >/root/dockerd.log 2>&1 </dev/null & "
        "until docker info >/dev/null 2>&1; do sleep 0.1; done; "
        f"docker import {tmp_path}/image.tar {BUSYBOX} >&2"
    )
    site.configure(
        executor="docker-autoscaler",
        runner='[runners.docker]\npull_policy = "never"\n',
        autoscaler=f"max_instances = 1\ninstance_ready_command = '''{begin}'''",
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
async def test_a_cell_is_asked_for_its_demand(site: Any) -> None:
    """Machines for jobs that wait at the cell come before the jobs do: no job is asked for without a ready machine."""
    site.configure(autoscaler="max_instances = 2", policy='idle_time = "1s"\npreemptive_mode = true')
    async with site.manager():
        jobs = await site.jobs(await site.push("one: {script: [hostname]}\n"))
        assert jobs["one"]["status"] == "success"
        status = await site.scaling()
        assert any(one.reason == "ready_jobs" for one in status.decisions)
