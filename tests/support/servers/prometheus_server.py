"""A real Prometheus (Debian's) that scrapes one address, and what it knows of it."""

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
"""What Prometheus itself puts on every series."""


class Prometheus:
    """A running one."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its API."""
        async with self._session.get(f"{self._url}/api/v1/{path}", params=query) as answer:
            told = json.loads(await answer.text())
        assert told["status"] == "success", told
        return told["data"]

    async def until_known(self, name: str, seconds: float = 60.0) -> None:
        """Wait until it has stored a metric."""
        async with asyncio.timeout(seconds):
            while not await self._knows(name):  # noqa: ASYNC110 - another process stores it, and tells nobody
                await asyncio.sleep(0.05)

    async def _knows(self, name: str) -> bool:
        try:
            return await self.value(f"count({name})") is not None
        except (aiohttp.ClientError, ValueError):
            return False

    async def series(self) -> dict[str, list[dict[str, str]]]:
        """The labels of every series, by name."""
        found: dict[str, list[dict[str, str]]] = {}
        for one in (await self.ask("query", query='{job="manager"}'))["result"]:
            labels = {name: value for name, value in one["metric"].items() if name not in OWN_LABELS}
            found.setdefault(one["metric"]["__name__"], []).append(labels)
        return found

    async def types(self) -> dict[str, str]:
        """The kind of every metric."""
        return {name: about[0]["type"] for name, about in (await self.ask("metadata")).items()}

    async def value(self, expression: str) -> float | None:
        """What an expression that is one number is now."""
        result = (await self.ask("query", query=expression))["result"]
        return float(result[0]["value"][1]) if result else None


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[Prometheus]:
    """One that scrapes `host:port`, until it is left."""
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
