"""Gets an image into the engine: by which policy, with which credentials, and whether there is room for it.

A list of policies is tried in turn; the next one only when one has failed. Before a pull the disk is looked at: where
less is free than wanted, images that no container uses are removed, the longest not pulled ones first, until there is
enough; where that does not help the step fails before the disk is full. `container_open` and `service` call this.
"""

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
from remuda.stdsteps.common.sizes import in_bytes, in_words
from remuda.stdsteps.engine.docker_api import Engine, EngineGoneError, EngineRefusedError
from remuda.stdsteps.engine.registry_auth import Credential, choose, from_payload, read_config, split_image

POLICIES = ("always", "if-not-present", "never")
DEFAULT_MIN_FREE = "1g"
LARGEST_CONFIG = 1024 * 1024
TRIES = 3
SPEAK_SECONDS = 10.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]*")
_PASSING = re.compile(
    r"time(d )?out|connection (reset|refused)|\bEOF\b|no such host|too ?many ?requests|temporary failure|i/o"
    r"|\b50[234]\b|network is unreachable|TLS handshake",
    re.IGNORECASE,
)
"""What an engine says when the same pull may work later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Which image, and how it may be had."""

    name: str
    policies: tuple[str, ...]
    credentials: tuple[tuple[Credential, ...], ...]
    """Of several sources, the strongest first."""
    platform: str
    min_free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that is there."""

    id: str
    digest: str
    """The registry's digest, NAME@sha256:...; empty for an image that came from none."""
    pulled: bool
    pull_seconds: float
    size_bytes: int
    config: Mapping[str, Any]

    def facts(self) -> dict[str, Any]:
        """For the outputs of a step."""
        return {
            "image_id": self.id,
            "digest": self.digest,
            "pulled": self.pulled,
            "pull_seconds": round(self.pull_seconds, 3),
            "image_bytes": self.size_bytes,
        }


def read_wish(inputs: Inputs) -> Wish:
    """The inputs that concern the image."""
    policies = tuple(inputs.texts("pull_policy", [])) or ("always",)
    for policy in policies:
        if policy not in POLICIES:
            raise StepError(f"input pull_policy: {policy!r} is none of {', '.join(POLICIES)}")
    name = inputs.text("image")
    if not _NAME.fullmatch(name) or ".." in name:
        raise StepError(f"input image: {name!r} is no name of an image")
    return Wish(
        name=name,
        policies=policies,
        credentials=(
            _config_logins(inputs.text("auth_config", "") or _variable()),
            tuple(from_payload(inputs.mappings("credentials"))),
            _machine_logins(),
        ),
        platform=inputs.text("platform", ""),
        min_free_bytes=in_bytes(inputs.text("min_free_disk", DEFAULT_MIN_FREE), "min_free_disk"),
    )


def obtain(engine: Engine, wish: Wish) -> Image:
    """The image, by the first policy that works."""
    errors: list[StepError] = []
    for policy in wish.policies:
        if errors:
            say(f"WARNING: {errors[-1]}; trying with the policy {policy}")
        try:
            return _by_policy(engine, wish, policy)
        except EngineGoneError:
            raise
        except StepError as error:
            errors.append(error)
    raise errors[-1]


def find(engine: Engine, name: str) -> dict[str, Any] | None:
    """What the engine knows of an image; None when it has none of this name."""
    try:
        found: dict[str, Any] = engine.call("GET", f"/images/{name}/json")
    except EngineRefusedError as error:
        if error.status == 404:
            return None
        raise
    return found


def _by_policy(engine: Engine, wish: Wish, policy: str) -> Image:
    here = None if policy == "always" else find(engine, wish.name)
    if here is not None and _fits(here, wish.platform):
        say(f"Using the image {wish.name} of this machine ({here['Id'].removeprefix('sha256:')[:12]}, policy {policy})")
        return _image(here, wish, pulled=False, seconds=0.0)
    if policy == "never":
        raise StepError(
            f"the image {wish.name} is not on this machine, and the pull policy never forbids to get it; "
            "put it there, or let the runner's pull_policy allow a pull"
        )
    started = time.monotonic()
    make_room(engine, wish.min_free_bytes)
    _pull(engine, wish)
    seconds = time.monotonic() - started
    pulled = find(engine, wish.name)
    if pulled is None:
        raise PlatformError(f"the image {wish.name} was pulled and is gone again; is something else removing images?")
    image = _image(pulled, wish, pulled=True, seconds=seconds)
    say(f"Pulled {image.digest or wish.name} ({in_words(image.size_bytes)}) in {seconds:.1f} s")
    return image


def _fits(known: Mapping[str, Any], platform: str) -> bool:
    """Whether an image that is there is one for the wanted platform, like linux/arm64/v8."""
    wanted = platform.split("/")
    said = [known.get("Os") or "", known.get("Architecture") or "", known.get("Variant") or ""]
    return not platform or all(not one or one == other for one, other in zip(wanted, said, strict=False))


def _image(known: Mapping[str, Any], wish: Wish, *, pulled: bool, seconds: float) -> Image:
    bare, _ = split_image(wish.name)
    digests = [str(one) for one in known.get("RepoDigests") or ()]
    matching = [
        one for one in digests if one.partition("@")[0] in (bare, f"docker.io/{bare}", f"docker.io/library/{bare}")
    ]
    return Image(
        id=known["Id"],
        digest=next(iter(matching or digests), ""),
        pulled=pulled,
        pull_seconds=seconds,
        size_bytes=int(known.get("Size") or 0),
        config=known.get("Config") or {},
    )


def _pull(engine: Engine, wish: Wish) -> None:
    credential = choose(wish.name, *wish.credentials)
    say(f"Pulling the image {wish.name}" + (f" as {credential.username or 'token'}" if credential else "") + " ...")
    for tries in range(1, TRIES + 1):
        error = _pull_once(engine, wish, credential)
        if error is None:
            return
        is_passing = _PASSING.search(error) is not None
        if tries < TRIES and is_passing:
            say(f"WARNING: {error}; trying again")
            time.sleep(tries)
            continue
        kind = PlatformError if is_passing else StepError
        raise kind(f"the image {wish.name} cannot be pulled: {error}{_advice(error, credential)}")


def _pull_once(engine: Engine, wish: Wish, credential: Credential | None) -> str | None:
    bare, tag = split_image(wish.name)
    query = {"fromImage": bare, "tag": tag or "latest"} | ({"platform": wish.platform} if wish.platform else {})
    headers = {"X-Registry-Auth": credential.header()} if credential else {}
    layers: dict[str, bool] = {}
    spoken = time.monotonic()
    try:
        for line in engine.lines("/images/create", query=query, headers=headers):
            if line.get("error"):
                return str(line["error"])
            status, layer = line.get("status", ""), line.get("id")
            if layer and status != f"Pulling from {bare}":
                layers[layer] = layers.get(layer, False) or status in ("Pull complete", "Already exists")
            if time.monotonic() - spoken > SPEAK_SECONDS:
                spoken = time.monotonic()
                say(f"... {sum(layers.values())} of {len(layers)} layers")
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


def _variable() -> str:
    """The variable itself, or the file that it names where it is of the type file.

    An input never names a file: this program may have more rights than whoever wrote the input.
    """
    text = os.environ.get("DOCKER_AUTH_CONFIG", "")
    if not text or text.lstrip().startswith("{"):
        return text
    try:
        with open(os.open(text, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), encoding="utf-8") as file:
            return file.read(LARGEST_CONFIG) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else "{"
    except (OSError, ValueError) as error:
        raise StepError(f"the logins of DOCKER_AUTH_CONFIG cannot be used: {type(error).__name__}") from None


def _config_logins(text: str) -> tuple[Credential, ...]:
    try:
        return tuple(read_config(text)) if text else ()
    except (ValueError, RecursionError) as error:
        cause = error if type(error) is ValueError else type(error).__name__
        raise StepError(f"the logins of DOCKER_AUTH_CONFIG cannot be used: {cause}") from None


def _machine_logins() -> tuple[Credential, ...]:
    try:
        return tuple(read_config((Path.home() / ".docker/config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, RuntimeError):
        return ()


def make_room(engine: Engine, wanted: int) -> None:
    """Free disk of the engine, so that a pull does not fill it; refuses where that cannot be had."""
    folder = engine.call("GET", "/info").get("DockerRootDir") or ""
    free = _free(engine, folder)
    if free is None or free >= wanted:
        return
    say(f"Only {in_words(free)} of disk are free for images, {in_words(wanted)} are wanted: removing unused images")
    for image in _unused(engine):
        for name in image.get("RepoTags") or [image["Id"]]:
            try:
                engine.call("DELETE", f"/images/{name}")
                say(f"Removed the image {name}")
            except EngineRefusedError:
                continue  # somebody has begun to use it
        free = _free(engine, folder)
        if free is None or free >= wanted:
            return
    raise PlatformError(
        f"the disk of the container engine ({folder}) has {in_words(free)} free, {in_words(wanted)} are wanted before "
        "an image is pulled, and no unused image is left to remove; free some, or lower min_free_disk"
    )


def _free(engine: Engine, folder: str) -> int | None:
    """Bytes free where the engine keeps images; None where that is not for this machine to say."""
    if not engine.is_near or not os.path.isdir(folder):
        return None
    return shutil.disk_usage(folder).free


def _unused(engine: Engine) -> list[dict[str, Any]]:
    """Images of no container, the longest not pulled first."""
    used = {one["ImageID"] for one in engine.call("GET", "/containers/json", query={"all": 1})}
    images = [one for one in engine.call("GET", "/images/json") if one["Id"] not in used]
    for one in images:
        known = find(engine, one["Id"]) or {}
        one["PulledAt"] = str((known.get("Metadata") or {}).get("LastTagTime") or "")
    return sorted(images, key=lambda one: (bool(one.get("RepoTags")), one["PulledAt"], one["Created"]))
