"""Finds the container engine of this user: Docker's or Podman's API on a socket of this machine. The order is that of
Docker's client: DOCKER_HOST, the user's docker context, Docker's socket; then Podman's sockets. An address that the
user chose in the environment is the only one that is tried, because another engine would have other images."""

import hashlib
import ipaddress
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from remuda.lib.dataclass import dataclass
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.engine.docker_api import DEFAULT_HOST, Engine, parse_address

ANSWER_SECONDS = 5.0
"""How long an engine may take to say its version."""
CURE = "Start Docker or Podman (Podman: systemctl --user start podman.socket), or install one of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place where an engine may be: its address, and who says so."""

    address: str
    source: str
    problem: str = ""
    """Why this address cannot be used at all; empty: it can be tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEngine:
    address: str
    name: str
    """The program and its version."""
    source: str

    def __str__(self) -> str:
        return f"{self.name} at {self.address} ({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The result of a search: the engine that answers, and the places that were tried before, with the reasons."""

    engine: FoundEngine | None
    tried: tuple[tuple[Place, str], ...]

    def explain(self) -> str:
        """Return why there is no engine, and what to do."""
        attempts = "; ".join(f"{place.address or place.source} ({place.source}): {why}" for place, why in self.tried)
        return f"no container engine answers. Tried: {attempts}. {CURE}"


def find_engine(environ: Mapping[str, str]) -> Search:
    """Ask the engines of this user in turn, and return the first that answers. `environ`: the user's variables."""
    tried: list[tuple[Place, str]] = []
    for place in list_places(environ):
        if place.problem:
            tried.append((place, place.problem))
            continue
        try:
            name = _ask_for_name(place.address)
        except StepError as error:
            text = str(error)
            why = text.partition(" cannot be used: ")[2] or text
            tried.append((place, why.partition("; is the engine")[0]))
            continue
        return Search(engine=FoundEngine(address=place.address, name=name, source=place.source), tried=tuple(tried))
    return Search(engine=None, tried=tuple(tried))


def list_places(environ: Mapping[str, str]) -> Iterator[Place]:
    """Yield the places to try, in order, without contacting any of them."""
    if host := environ.get("DOCKER_HOST"):
        yield _check(host, "DOCKER_HOST", has_tls=bool(environ.get("DOCKER_TLS_VERIFY")))
        return
    folder = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME") or "~").expanduser() / ".docker")
    if name := environ.get("DOCKER_CONTEXT"):
        yield _read_context(folder, name) if name != "default" else Place(address=DEFAULT_HOST, source="Docker")
        return
    if (name := _current_context(folder)) not in ("", "default"):
        yield _read_context(folder, name)
    yield Place(address=DEFAULT_HOST, source="Docker")
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    yield Place(address=f"unix://{runtime}/podman/podman.sock", source="Podman of this user")
    yield Place(address="unix:///run/podman/podman.sock", source="Podman of root")


def _check(address: str, source: str, *, has_tls: bool) -> Place:
    problem = ""
    try:
        host = parse_address(address).host
    except StepError:
        problem = "only unix:///path and tcp://host:port without TLS are supported"
    else:
        if has_tls and host:
            problem = "an engine with TLS is not supported"
        elif host and not _is_this_machine(host):
            problem = "it is on another machine, where the working directory of the job does not exist"
    return Place(address=address, source=source, problem=problem)


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _current_context(folder: Path) -> str:
    name = _read_json(folder / "config.json").get("currentContext")
    return name if isinstance(name, str) else ""


def _read_context(folder: Path, name: str) -> Place:
    """Return the place that a docker context names. `folder`: the user's configuration folder of Docker."""
    source, digest = f"docker context {name}", hashlib.sha256(name.encode()).hexdigest()
    meta = _read_json(folder / "contexts" / "meta" / digest / "meta.json")
    endpoints = meta.get("Endpoints")
    endpoint = endpoints.get("docker") if isinstance(endpoints, dict) else None
    host = endpoint.get("Host") if isinstance(endpoint, dict) else None
    if not isinstance(host, str) or not host:
        return Place(address="", source=source, problem="the context does not exist or names no engine")
    return _check(host, source, has_tls=(folder / "contexts" / "tls" / digest / "docker").is_dir())


def _read_json(file: Path) -> dict[str, object]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _ask_for_name(address: str) -> str:
    answer = Engine(address, ping_seconds=ANSWER_SECONDS).call("GET", "/version", seconds=ANSWER_SECONDS)
    components = answer.get("Components") if isinstance(answer, dict) else None
    names = [str(part.get("Name", "")) for part in components or () if isinstance(part, dict)]
    program = "Podman" if any(name.startswith("Podman") for name in names) else "Docker"
    version = answer.get("Version", "") if isinstance(answer, dict) else ""
    return f"{program} {version}".strip()
