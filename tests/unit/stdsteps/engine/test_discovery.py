"""`remuda.stdsteps.engine.discovery`, with servers on real sockets that answer like engines."""

import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from remuda.stdsteps.engine.discovery import Place, find_engine, list_places

DEFAULT = "unix:///var/run/docker.sock"
PODMAN = {"Version": "4.3.1", "Components": [{"Name": "Podman Engine"}]}
DOCKER = {"Version": "20.10.24", "Components": [{"Name": "Engine"}]}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start an engine that answers every request with its version, and return its address."""
    servers: list[socket.socket] = []

    def answer(server: socket.socket, version: dict[str, object]) -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(65536)
                    body = json.dumps(version).encode()
                    head = "HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Type: application/json\r\n"
                    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def start(version: dict[str, object], path: Path = tmp_path / "engine.sock") -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()
        servers.append(server)
        threading.Thread(target=answer, args=(server, version), daemon=True).start()
        return f"unix://{path}"

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def write_context(home: Path, name: str, host: str, *, has_tls: bool = False, is_current: bool = True) -> None:
    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = home / ".docker/contexts/meta" / digest / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}))
    if has_tls:
        (home / ".docker/contexts/tls" / digest / "docker").mkdir(parents=True)
    if is_current:
        (home / ".docker/config.json").write_text(json.dumps({"currentContext": name}))


def sources(home: Path, **environ: str) -> list[tuple[str, str]]:
    return [(place.source, place.address) for place in list_places({"HOME": str(home), **environ})]


def test_the_order_of_places(tmp_path: Path) -> None:
    usual = [
        ("Docker", DEFAULT),
        ("Podman of this user", "unix:///run/user/7/podman/podman.sock"),
        ("Podman of root", "unix:///run/podman/podman.sock"),
    ]
    assert sources(tmp_path, XDG_RUNTIME_DIR="/run/user/7") == usual
    write_context(tmp_path, "rootless", "unix:///run/user/7/docker.sock")
    assert sources(tmp_path, XDG_RUNTIME_DIR="/run/user/7") == [
        ("docker context rootless", "unix:///run/user/7/docker.sock"),
        *usual,
    ]


def test_an_address_in_the_environment_is_the_only_place(tmp_path: Path) -> None:
    write_context(tmp_path, "one", "unix:///one.sock")
    write_context(tmp_path, "two", "unix:///two.sock", is_current=False)
    assert sources(tmp_path, DOCKER_HOST="tcp://127.0.0.1:2375") == [("DOCKER_HOST", "tcp://127.0.0.1:2375")]
    assert sources(tmp_path, DOCKER_CONTEXT="two") == [("docker context two", "unix:///two.sock")]
    assert sources(tmp_path, DOCKER_CONTEXT="default") == [("Docker", DEFAULT)]
    assert sources(tmp_path, DOCKER_CONFIG="/nowhere", DOCKER_CONTEXT="default") == [("Docker", DEFAULT)]


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("ssh://me@build", "only unix:///path and tcp://host:port without TLS are supported"),
        ("tcp://10.0.0.7:2375", "it is on another machine, where the working directory of the job does not exist"),
        ("tcp://build.example:2375", "it is on another machine, where the working directory of the job does not exist"),
        ("tcp://localhost:2375", ""),
        ("tcp://[::1]:2375", ""),
    ],
)
def test_addresses_that_cannot_be_used(host: str, problem: str) -> None:
    assert list(list_places({"DOCKER_HOST": host})) == [Place(address=host, source="DOCKER_HOST", problem=problem)]


def test_tls_is_not_supported(tmp_path: Path) -> None:
    (place,) = list_places({"DOCKER_HOST": "tcp://127.0.0.1:2376", "DOCKER_TLS_VERIFY": "1"})
    assert place.problem == "an engine with TLS is not supported"
    write_context(tmp_path, "far", "tcp://127.0.0.1:2376", has_tls=True)
    assert next(iter(list_places({"HOME": str(tmp_path)}))).problem == "an engine with TLS is not supported"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"currentContext": 7}', '{"currentContext": "gone"}'])
def test_a_damaged_configuration_is_no_error(tmp_path: Path, content: str) -> None:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(content)
    assert DEFAULT in [address for _, address in sources(tmp_path)]


def test_the_first_engine_that_answers_is_used(
    tmp_path: Path, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # This machine may have a Docker engine at the usual address.
    monkeypatch.setattr("remuda.stdsteps.engine.discovery.DEFAULT_HOST", f"unix://{tmp_path}/docker.sock")
    (tmp_path / ".docker").mkdir()
    write_context(tmp_path, "stopped", f"unix://{tmp_path}/stopped.sock")
    address = serve(PODMAN, tmp_path / "run/podman/podman.sock")
    search = find_engine({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": f"{tmp_path}/run"})
    assert str(search.engine) == f"Podman 4.3.1 at {address} (Podman of this user)"
    assert [(place.source, why) for place, why in search.tried] == [
        ("docker context stopped", "the socket does not exist"),
        ("Docker", "the socket does not exist"),
    ]


def test_what_a_search_without_result_explains(tmp_path: Path, serve: Callable[..., str]) -> None:
    assert find_engine({"DOCKER_HOST": serve(DOCKER)}).engine is not None
    search = find_engine({"DOCKER_HOST": f"unix://{tmp_path}/gone.sock"})
    assert search.engine is None
    assert search.explain().startswith(
        f"no container engine answers. Tried: unix://{tmp_path}/gone.sock (DOCKER_HOST): the socket does not exist. "
        "Start Docker or Podman"
    )


def test_a_server_that_is_no_engine(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/x.sock")
        server.listen()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        search = find_engine({"DOCKER_HOST": f"unix://{tmp_path}/x.sock"})
        thread.join()
    assert search.engine is None
    assert "does not answer like a container engine" in search.explain()
