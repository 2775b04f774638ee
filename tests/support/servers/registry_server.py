"""Runs a real Docker registry for tests (Debian's docker-registry), with a client that pushes and pulls as docker does.

The registry accepts tokens of one cell. The client requests a token from that cell when the registry answers 401.
"""

import hashlib
import http.client
import json
import re
import shutil
import subprocess
import time
from base64 import b64encode
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode, urlsplit

from remuda.testing.lab import free_port

PROGRAM = "docker-registry"
_START_SECONDS = 20
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_CONFIGURATION = """version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: "{folder}/images"}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}", secret: test}}
auth:
  token: {{realm: "{cell}/jwt/auth", service: "{service}", issuer: "{cell}", rootcertbundle: "{folder}/cell.pem"}}
"""


class RegistryServer:
    """A registry that runs from `serve` to the end of the `with` block."""

    def __init__(self, folder: Path, *, service: str = "container_registry") -> None:
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"
        self.service = service
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def is_installed() -> bool:
        """True if docker-registry is installed."""
        return shutil.which(PROGRAM) is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def serve(self, *, cell: str, certificate: bytes) -> None:
        """Start the registry, which trusts tokens of this cell, and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "cell.pem").write_bytes(certificate)
        file = self._folder / "registry.yml"
        file.write_text(_CONFIGURATION.format(folder=self._folder, port=self.port, cell=cell, service=self.service))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([PROGRAM, "serve", file], stdout=log, stderr=log)
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                raise AssertionError(f"docker-registry does not serve; see {self._folder / 'log'}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return send(self.url, "GET", "/v2/").status == 401
        except OSError:
            return False


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


def send(server: str, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    """Send a request. In header names, underscores stand for hyphens."""
    connection = http.client.HTTPConnection(urlsplit(server).netloc, timeout=30)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


class RegistryClient:
    """Pushes and pulls with a name and a password, or anonymously."""

    def __init__(self, registry: RegistryServer, name: str = "", password: str = "") -> None:
        self._registry = registry
        self._basic = f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}" if name else ""

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send a request; if the registry answers 401, again with a token of the cell. Returns the cell's answer if it
        refuses the token."""
        first = send(self._registry.url, method, path, body, **headers)
        if first.status != 401:
            return first
        answer = self.token(**dict(_CHALLENGE.findall(first.headers["WWW-Authenticate"])))
        if answer.status != 200:
            return answer
        bearer = f"Bearer {json.loads(answer.body)['token']}"
        return send(self._registry.url, method, path, body, Authorization=bearer, **headers)

    def token(self, *, realm: str, service: str, scope: str = "", **_: str) -> Answer:
        """Request a token from the cell. Returns its answer."""
        query = urlencode({"service": service} | ({"scope": scope} if scope else {}))
        address = urlsplit(realm)
        headers = {"Authorization": self._basic} if self._basic else {}
        return send(f"{address.scheme}://{address.netloc}", "GET", f"{address.path}?{query}", None, **headers)

    def push(self, image: str, layer: bytes, tag: str = "latest") -> int:
        """Push an image of one layer. Returns the status of the last request, or of the first that fails."""
        config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}})
        descriptors = [self._push_blob(image, config.encode()), self._push_blob(image, layer)]
        for descriptor in descriptors:
            if isinstance(descriptor, int):
                return descriptor
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": descriptors[0], "layers": descriptors[1:]}
        body = json.dumps(manifest).encode()
        return self.call("PUT", f"/v2/{image}/manifests/{tag}", body, Content_Type=_MANIFEST).status

    def _push_blob(self, image: str, content: bytes) -> dict[str, Any] | int:
        """Push a blob. Returns its descriptor, or the status of the request that failed."""
        started = self.call("POST", f"/v2/{image}/blobs/uploads/", b"")
        if started.status != 202:
            return started.status
        location = urlsplit(started.headers["Location"])
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        path = f"{location.path}?{location.query}&{urlencode({'digest': digest})}"
        stored = self.call("PUT", path, content, Content_Type="application/octet-stream")
        if stored.status != 201:
            return stored.status
        return {"mediaType": "application/octet-stream", "size": len(content), "digest": digest}

    def pull(self, image: str, tag: str = "latest") -> bytes | int:
        """The layer of an image, or the status of the first request that fails."""
        manifest = self.call("GET", f"/v2/{image}/manifests/{tag}", Accept=_MANIFEST)
        if manifest.status != 200:
            return manifest.status
        digest = json.loads(manifest.body)["layers"][0]["digest"]
        layer = self.call("GET", f"/v2/{image}/blobs/{digest}")
        return layer.body if layer.status == 200 else layer.status
