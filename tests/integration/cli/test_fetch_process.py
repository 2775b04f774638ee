"""`git fetch` of local commands against servers on loopback that do not behave."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.servers.http_server import PlainHandler, run_http_server

from remuda.localrun.sources.fetch_process import fetch

REFS = ("+refs/heads/*:refs/heads/*",)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "copy.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(place)], check=True)
    return place


@contextmanager
def serve_redirects(target: str) -> Iterator[str]:
    """Serve redirects of all requests to `target`, the address of a server, and yield the own address."""

    class Redirector(PlainHandler):
        def respond(self) -> None:
            self.answer(302, headers={"Location": f"{target}{self.path}"})

    with run_http_server(Redirector) as listening:
        yield f"http://127.0.0.1:{listening.server_address[1]}"


def test_redirects_to_other_servers_are_not_followed(repository: Path) -> None:
    requests: list[str] = []

    class Other(PlainHandler):
        def respond(self) -> None:
            requests.append(self.path)
            self.answer(404)

    with (
        run_http_server(Other) as other,
        serve_redirects(f"http://127.0.0.1:{other.server_address[1]}") as address,
    ):
        failure = fetch(repository, f"{address}/acme/ci.git", REFS, can_ask=False)
    assert requests == []
    assert failure is not None
    assert "302" in failure.reason
