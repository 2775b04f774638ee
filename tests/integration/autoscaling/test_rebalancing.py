"""A provider creates an extra machine and removes the one with a job; the log explains the likely cause."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remuda.cli.main import call
from remuda.testing.waiting import until


@pytest.mark.long
async def test_removal_by_provider_is_explained(site: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.configure(autoscaler='max_instances = 2\nupdate_interval = "1s"', policy='idle_time = "10m"')
    async with site.manager():
        script = f"[if mkdir {tmp_path}/first; then sleep 600; fi, hostname]"
        pipeline = await site.push(f"long: {{retry: 1, script: {script}}}\n")
        await until((tmp_path / "first").exists, seconds=60)
        [instance] = site.group.instances
        await site.group.increase(1)
        while len((await site.scaling()).instances) < 2:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.1)
        site.group.vanish(instance)
        assert (await site.jobs(pipeline))["long"]["status"] == "success"
        attempts = site.cell.api("GET", f"/projects/1/pipelines/{pipeline}/jobs?include_retried=true").json()
        first = min(attempts, key=lambda job: int(job["id"]))
        log = site.cell.api("GET", f"/projects/1/jobs/{first['id']}/trace").body.decode()
        assert "did not remove it: possibly its provider creates more instances than requested" in log
        await asyncio.to_thread(call, ["scale", "explain", "bench", "--data", str(site.data)])
        assert "Azure: overprovision = false" in capsys.readouterr().out
