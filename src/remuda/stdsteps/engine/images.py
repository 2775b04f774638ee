"""Makes an image available in the engine. Pull policies are tried in order until one works. If there is too little free
disk space for a pull, images without a container are removed, untagged ones first, then by the time of their last pull;
if that does not free enough, the step fails before the disk is full."""

import os
import re
import shutil
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.lib.dataclass import dataclass
from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.sizes import format_size, parse_size
from remuda.stdsteps.engine.docker_api import Engine, EngineGoneError, EngineRefusedError
from remuda.stdsteps.engine.pull_progress import PullProgress
from remuda.stdsteps.engine.registry_auth import Credential, choose, from_payload, read_config, split_image

POLICIES = ("always", "if-not-present", "never")
DEFAULT_MIN_FREE = "1g"
LARGEST_CONFIG = 1024 * 1024
TRIES = 3
PROGRESS_SECONDS = 3.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]*")
_TRANSIENT = re.compile(
    r"time(d )?out|connection (reset|refused)|\bEOF\b|no such host|too ?many ?requests|temporary failure|i/o"
    r"|\b50[234]\b|network is unreachable|TLS handshake",
    re.IGNORECASE,
)
"""Error messages of an engine after which a retry may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRequest:
    """The name of an image, and how it may be pulled: policies, credentials, platform, free disk space."""

    name: str
    policies: tuple[str, ...]
    credentials: tuple[tuple[Credential, ...], ...]
    """By source, in order of priority."""
    platform: str
    min_free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image in the engine, whether a pull was needed for it, and how long that took."""

    id: str
    digest: str
    """The registry's digest, NAME@sha256:...; empty if the image did not come from a registry."""
    pulled: bool
    pull_seconds: float
    size_bytes: int
    config: Mapping[str, Any]

    def facts(self) -> dict[str, Any]:
        """Return the data that a step outputs: id, digest, size, and whether and how long the image was pulled."""
        return {
            "image_id": self.id,
            "digest": self.digest,
            "pulled": self.pulled,
            "pull_seconds": round(self.pull_seconds, 3),
            "image_bytes": self.size_bytes,
        }


def read_request(inputs: Inputs) -> ImageRequest:
    policies = tuple(inputs.texts("pull_policy", [])) or ("always",)
    for policy in policies:
        if policy not in POLICIES:
            raise StepError(f"input pull_policy: must be one of {', '.join(POLICIES)}, not {policy!r}")
    name = inputs.text("image")
    if not _NAME.fullmatch(name) or ".." in name:
        raise StepError(f"input image: {name!r} is not a valid image name")
    return ImageRequest(
        name=name,
        policies=policies,
        credentials=(
            _parse_logins(inputs.text("auth_config", "") or _read_auth_variable()),
            tuple(from_payload(inputs.mappings("credentials"))),
            _read_machine_logins(),
        ),
        platform=inputs.text("platform", ""),
        min_free_bytes=parse_size(inputs.text("min_free_disk", DEFAULT_MIN_FREE), "min_free_disk"),
    )


def obtain(engine: Engine, request: ImageRequest) -> Image:
    """Make an image available by the first pull policy that works; if none does, raise the error of the last one."""
    errors: list[StepError] = []
    for policy in request.policies:
        if errors:
            say(f"WARNING: {errors[-1]}; trying with the pull policy {policy}")
        try:
            return _obtain_by_policy(engine, request, policy)
        except EngineGoneError:
            raise
        except StepError as error:
            errors.append(error)
    raise errors[-1]


def find(engine: Engine, name: str) -> dict[str, Any] | None:
    """Return the engine's JSON description of an image; None if it does not exist."""
    try:
        image: dict[str, Any] = engine.call("GET", f"/images/{name}/json")
    except EngineRefusedError as error:
        if error.status == 404:
            return None
        raise
    return image


def _obtain_by_policy(engine: Engine, request: ImageRequest, policy: str) -> Image:
    local = None if policy == "always" else find(engine, request.name)
    if local is not None and _has_platform(local, request.platform):
        short_id = local["Id"].removeprefix("sha256:")[:12]
        say(f"Using the local image {request.name} ({short_id}, pull policy {policy})")
        return _make_image(local, request, pulled=False, seconds=0.0)
    if policy == "never":
        raise StepError(
            f"the image {request.name} is not on this machine, and the pull policy 'never' does not allow to pull it; "
            "load the image, or allow another pull_policy for the runner"
        )
    started = time.monotonic()
    make_room(engine, request.min_free_bytes)
    _pull(engine, request)
    seconds = time.monotonic() - started
    pulled = find(engine, request.name)
    if pulled is None:
        raise PlatformError(
            f"the image {request.name} was removed right after it was pulled; find out what removes images on this "
            "machine"
        )
    image = _make_image(pulled, request, pulled=True, seconds=seconds)
    say(f"Pulled {image.digest or request.name} ({format_size(image.size_bytes)}) in {seconds:.1f} s")
    return image


def _has_platform(image: Mapping[str, Any], platform: str) -> bool:
    """True if an image is for this platform, such as linux/arm64/v8. An empty platform matches every image."""
    requested = platform.split("/")
    actual = [image.get("Os") or "", image.get("Architecture") or "", image.get("Variant") or ""]
    return not platform or all(not part or part == other for part, other in zip(requested, actual, strict=False))


def _make_image(image: Mapping[str, Any], request: ImageRequest, *, pulled: bool, seconds: float) -> Image:
    bare, _ = split_image(request.name)
    digests = [str(digest) for digest in image.get("RepoDigests") or ()]
    matching = [
        digest
        for digest in digests
        if digest.partition("@")[0] in (bare, f"docker.io/{bare}", f"docker.io/library/{bare}")
    ]
    return Image(
        id=image["Id"],
        digest=next(iter(matching or digests), ""),
        pulled=pulled,
        pull_seconds=seconds,
        size_bytes=int(image.get("Size") or 0),
        config=image.get("Config") or {},
    )


def _pull(engine: Engine, request: ImageRequest) -> None:
    credential = choose(request.name, *request.credentials)
    say(f"Pulling the image {request.name}" + (f" as {credential.username or 'token'}" if credential else "") + " ...")
    for tries in range(1, TRIES + 1):
        error = _pull_once(engine, request, credential)
        if error is None:
            return
        is_transient = _TRANSIENT.search(error) is not None
        if tries < TRIES and is_transient:
            say(f"WARNING: {error}; trying again")
            time.sleep(tries)
            continue
        kind = PlatformError if is_transient else StepError
        raise kind(f"the image {request.name} cannot be pulled: {error}{_advice(error, credential)}")


def _pull_once(engine: Engine, request: ImageRequest, credential: Credential | None) -> str | None:
    bare, tag = split_image(request.name)
    query = {"fromImage": bare, "tag": tag or "latest"} | ({"platform": request.platform} if request.platform else {})
    headers = {"X-Registry-Auth": credential.header()} if credential else {}
    progress = PullProgress()
    logged_at = time.monotonic()
    try:
        for line in engine.lines("/images/create", query=query, headers=headers):
            if line.get("error"):
                return str(line["error"])
            progress.add(line)
            if time.monotonic() - logged_at > PROGRESS_SECONDS:
                logged_at = time.monotonic()
                say(f"... {progress}")
    except EngineRefusedError as error:
        return str(error)
    return None


def _advice(error: str, credential: Credential | None) -> str:
    lowered = error.lower()
    if any(word in lowered for word in ("unauthorized", "denied", "authentication required", "no basic auth")):
        if credential is None:
            return ". No credentials for its registry are known; set the variable DOCKER_AUTH_CONFIG"
        return f". The credentials of {credential.username or 'the token'} for {credential.place} were used"
    return ""


def _read_auth_variable() -> str:
    """Return the Docker configuration in DOCKER_AUTH_CONFIG or, if this is a path, in that file; '' if it is not set.
    Only the variable may be a path, not an input of the step, because this program may have more rights than the author
    of the input. Raises StepError if the file cannot be read."""
    text = os.environ.get("DOCKER_AUTH_CONFIG", "")
    if not text or text.lstrip().startswith("{"):
        return text
    try:
        with open(os.open(text, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), encoding="utf-8") as file:
            return file.read(LARGEST_CONFIG) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else "{"
    except (OSError, ValueError) as error:
        raise StepError(f"cannot read the registry logins in DOCKER_AUTH_CONFIG: {type(error).__name__}") from None


def _parse_logins(text: str) -> tuple[Credential, ...]:
    try:
        return tuple(read_config(text)) if text else ()
    except (ValueError, RecursionError) as error:
        cause = error if type(error) is ValueError else type(error).__name__
        raise StepError(f"cannot read the registry logins in DOCKER_AUTH_CONFIG: {cause}") from None


def _read_machine_logins() -> tuple[Credential, ...]:
    try:
        return tuple(read_config((Path.home() / ".docker/config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, RuntimeError):
        return ()


def make_room(engine: Engine, needed: int) -> None:
    """Delete unused images, untagged ones first, then the oldest pulls, until `needed` bytes of disk are free. Does
    nothing if the engine's disk is not on this machine. Raises PlatformError if there is too little space then."""
    folder = engine.call("GET", "/info").get("DockerRootDir") or ""
    free = _free_bytes(engine, folder)
    if free is None or free >= needed:
        return
    sizes = f"{format_size(free)} of disk space are free for images, {format_size(needed)} are required"
    say(f"Only {sizes}: removing unused images")
    for image in _list_unused(engine):
        for name in image.get("RepoTags") or [image["Id"]]:
            try:
                engine.call("DELETE", f"/images/{name}")
                say(f"Removed the image {name}")
            except EngineRefusedError:
                continue  # a job has begun to use it
        free = _free_bytes(engine, folder)
        if free is None or free >= needed:
            return
    raise PlatformError(
        f"the disk of the container engine ({folder}) has {format_size(free)} free, {format_size(needed)} are required "
        "to pull an image, and no unused image is left to remove; free disk space, or lower min_free_disk"
    )


def _free_bytes(engine: Engine, folder: str) -> int | None:
    """Return the free bytes of the engine's disk, on which `folder` is; None if the disk is not on this machine."""
    if not engine.is_local or not os.path.isdir(folder):
        return None
    return shutil.disk_usage(folder).free


def _list_unused(engine: Engine) -> list[dict[str, Any]]:
    """Return the images that no container uses: untagged ones first, then by the time of their last pull."""
    used = {container["ImageID"] for container in engine.call("GET", "/containers/json", query={"all": 1})}
    images = [image for image in engine.call("GET", "/images/json") if image["Id"] not in used]
    for image in images:
        details = find(engine, image["Id"]) or {}
        image["PulledAt"] = str((details.get("Metadata") or {}).get("LastTagTime") or "")
    return sorted(images, key=lambda image: (bool(image.get("RepoTags")), image["PulledAt"], image["Created"]))
