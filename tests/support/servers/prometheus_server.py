"""Runs a real Prometheus (Debian's) that scrapes one address, with queries for the stored metrics."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from remuda.testing.lab import free_port

PROGRAM = shutil.which("prometheus")
OWN_LABELS = frozenset({"__name__", "instance", "job"})
"""Labels that Prometheus adds to every series."""


class Prometheus:
    """Client of a running Prometheus."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def get(self, path: str, **query: str) -> Any:
        """Call its API. Returns `data` of the answer, which must be a success."""
        async with self._session.get(f"{self._url}/api/v1/{path}", params=query) as answer:
            body = json.loads(await answer.text())
        assert body["status"] == "success", body
        return body["data"]

    async def wait_for_metric(self, name: str, seconds: float = 60.0) -> None:
        """Wait until it has stored a metric."""
        async with asyncio.timeout(seconds):
            while not await self._knows(name):  # noqa: ASYNC110 - another process stores it
                await asyncio.sleep(0.05)

    async def _knows(self, name: str) -> bool:
        try:
            return await self.value(f"count({name})") is not None
        except (aiohttp.ClientError, ValueError):
            return False

    async def series(self) -> dict[str, list[dict[str, str]]]:
        """Labels of every series by metric name."""
        series: dict[str, list[dict[str, str]]] = {}
        for result in (await self.get("query", query='{job="manager"}'))["result"]:
            labels = {name: value for name, value in result["metric"].items() if name not in OWN_LABELS}
            series.setdefault(result["metric"]["__name__"], []).append(labels)
        return series

    async def types(self) -> dict[str, str]:
        """Type of every metric by name."""
        return {name: metadata[0]["type"] for name, metadata in (await self.get("metadata")).items()}

    async def value(self, expression: str) -> float | None:
        """Present value of an expression with a single result; None if there is none."""
        result = (await self.get("query", query=expression))["result"]
        return float(result[0]["value"][1]) if result else None


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[Prometheus]:
    """Run a Prometheus that scrapes `target` (`host:port`) while the block runs."""
    assert PROGRAM is not None, "Prometheus is not installed: make packages"
    folder.mkdir()
    config = folder / "prometheus.yml"
    scrape = [{"job_name": "manager", "static_configs": [{"targets": [target]}]}]
    config.write_text(
        json.dumps({"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"}, "scrape_configs": scrape})
    )
    address = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        async with aiohttp.ClientSession() as session:
            yield Prometheus(f"http://{address}", session)
    finally:
        process.kill()
        await process.wait()
