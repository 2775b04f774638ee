"""Real servers for step packages, and a resolver with its own cache."""

import ssl
from collections.abc import Callable, Coroutine, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from tests.support.servers.http_server import PlainHandler, run_http_server
from tests.support.servers.step_server import StepServer, run_step_server
from tests.support.step_packages import (
    Project,
    StepRegistry,
    a_certificate,
    basic_registry,
    has_registry,
    step_registry,
    token_registry,
)

from remuda.steps.language.references import parse_reference
from remuda.steps.resolving.resolver import Resolver
from remuda.steps.resolving.values import Resolved

FUNC = "spec: {}\n---\nexec:\n  command: [echo, hello]\n"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def resolver(cache: Path) -> Resolver:
    return Resolver(cache, patience_seconds=5.0)


@pytest.fixture
def resolve(resolver: Resolver, tmp_path: Path) -> Callable[..., Coroutine[None, None, Resolved]]:
    """Resolve a step reference as a call in the job's own steps."""

    async def call(reference: Any, **options: Any) -> Resolved:
        arguments = {"base": tmp_path, "root": None, "env": {}} | options
        return await resolver.resolve(parse_reference(reference, "test"), **arguments)

    return call


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StepServer]:
    with run_step_server(tmp_path / "served") as state:
        yield state


@pytest.fixture
def project(server: StepServer, tmp_path: Path) -> Project:
    """A repository with the step steps/hello on main."""
    new_project = Project.new(server, tmp_path / "work")
    new_project.commit(files={"steps/hello/func.yml": FUNC})
    return new_project


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[StepRegistry]:
    if not has_registry():
        pytest.skip("docker-registry is not installed: make packages")
    with step_registry(tmp_path / "registry") as running_registry:
        yield running_registry


@pytest.fixture(params=["basic", "token"])
def closed_registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StepRegistry]:
    """A registry that needs credentials; the test may push to tools/hello."""
    if not has_registry():
        pytest.skip("docker-registry is not installed: make packages")
    folder = tmp_path / "registry"
    registry = basic_registry(folder) if request.param == "basic" else token_registry(folder, repository="tools/hello")
    with registry as running_registry:
        yield running_registry


@pytest.fixture
def untrusted_server(tmp_path: Path) -> Iterator[str]:
    """host:port of a TLS server whose certificate no CA has signed."""
    key, certificate = a_certificate("127.0.0.1")
    file = tmp_path / "untrusted.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Print nothing: clients close their connections during the handshake."""

        def server_activate(self) -> None:
            super().server_activate()
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    with run_http_server(PlainHandler, Quiet) as server:
        yield f"127.0.0.1:{server.server_port}"
