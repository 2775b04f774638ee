"""Files that outlive a job: caches to restore and save, artifacts to download and upload.

Pure. A cache or an artifact is one entry each, because each has its own `when`. No job fails for its caches: those
steps warn by themselves, and should one break the job goes on. Where caches lie is the environment's decision, below
that the project's path; which file a key has is decided by the steps.
"""

import posixpath
from collections.abc import Iterable, Iterator

import msgspec

from remuda.manager.config import RunnerConfig
from remuda.manager.entries import (
    CONDITIONS,
    CompileError,
    Entry,
    Setting,
    api_url,
    entry,
    expanded_paths,
    numbered,
    project_path,
)
from remuda.manager.variables import Variables
from remuda.wire.runner_api import JobPayload

POLICIES = {"pull-push": (True, True), "pull": (True, False), "push": (False, True)}
"""Whether a cache is restored, and whether it is saved."""
DEFAULT_KEY = "default"
RESERVED = "-protected"
"""How keys of protected branches end; a variable, which anybody may set, must not lead to one."""


class _Cache(msgspec.Struct, frozen=True, kw_only=True):
    key: str | None = None
    untracked: bool | None = None
    policy: str | None = None
    paths: list[str] | None = None
    when: str | None = None
    fallback_keys: list[str] | None = None


def restore_caches(payload: JobPayload, setting: Setting, variables: Variables) -> list[Entry]:
    """Before the job's own work."""
    wanted = [cache for cache in _caches(payload) if _policy(cache, variables)[0]]
    return [
        entry(
            numbered("restore_cache", number),
            "cache_restore",
            {
                "folder": _folder(payload, setting),
                "key": _key(cache.key, variables),
                "fallback_keys": _fallback_keys(cache, variables),
            },
        )
        | {"continue_on_error": True}
        for number, cache in enumerate(wanted, start=1)
    ]


def save_caches(payload: JobPayload, setting: Setting, variables: Variables) -> list[Entry]:
    """After the job's own work."""
    wanted = [cache for cache in _caches(payload) if _policy(cache, variables)[1]]
    return [
        entry(
            numbered("archive_cache", number),
            "cache_save",
            {
                "folder": _folder(payload, setting),
                "key": _key(cache.key, variables),
                "paths": expanded_paths(cache.paths, variables, setting),
                "untracked": bool(cache.untracked),
            },
        )
        | {"continue_on_error": True, "if": _condition(cache.when, "cache:when")}
        for number, cache in enumerate(wanted, start=1)
    ]


def cache_remarks(payload: JobPayload, runner: RunnerConfig, variables: Variables) -> Iterable[str]:
    """What is asked of caches and does not happen."""
    if not any(True for _ in _caches(payload)):
        return
    if runner.cache.type:
        yield (
            f"cache: the runner is configured for {runner.cache.type}, which is not supported yet; "
            "caches are kept in a folder of its machine"
        )
    if variables["CACHE_FALLBACK_KEY"].endswith(RESERVED):
        yield f"CACHE_FALLBACK_KEY is ignored: keys that end in {RESERVED} belong to protected branches"


def download_artifacts(payload: JobPayload, runner: RunnerConfig) -> list[Entry]:
    """Of earlier jobs."""
    wanted = [
        {"id": one.id, "name": one.name, "token": one.token or payload.token, "filename": one.artifacts_file.filename}
        for one in payload.dependencies or ()
        if one.artifacts_file is not None and one.artifacts_file.filename
    ]
    inputs = {"api_url": api_url(runner), "dependencies": wanted}
    return [entry("download_artifacts", "artifacts_download", inputs)] if wanted else []


def upload_artifacts(payload: JobPayload, setting: Setting, variables: Variables) -> list[Entry]:
    """The archive and each report, each when it is wanted."""
    return [
        entry(
            numbered("upload_artifacts", number),
            "artifacts_upload",
            {
                "api_url": api_url(setting.runner),
                "job_id": payload.id,
                "token": payload.token,
                "paths": expanded_paths(artifact.paths, variables, setting),
                "exclude": expanded_paths(artifact.exclude, variables, setting),
                "untracked": bool(artifact.untracked),
                "name": variables.expand(artifact.name or ""),
                "expire_in": artifact.expire_in or "",
                "artifact_type": artifact.artifact_type or "archive",
                "artifact_format": artifact.artifact_format or "zip",
            },
        )
        | {"if": _condition(artifact.when, "artifacts:when")}
        for number, artifact in enumerate(payload.artifacts or (), start=1)
    ]


def _caches(payload: JobPayload) -> Iterator[_Cache]:
    """Those that name files."""
    for number, item in enumerate(payload.cache or ()):
        try:
            cache = msgspec.convert(item, _Cache)
        except msgspec.ValidationError as error:
            raise CompileError(f"cache[{number}]: {error}") from None
        if cache.paths or cache.untracked:
            yield cache


def _policy(cache: _Cache, variables: Variables) -> tuple[bool, bool]:
    policy = variables.expand(cache.policy or "") or "pull-push"
    if policy not in POLICIES:
        raise CompileError(f"cache:policy: {policy!r} is none of {', '.join(POLICIES)}")
    return POLICIES[policy]


def _condition(when: str | None, key: str) -> str:
    if when and when not in CONDITIONS:
        raise CompileError(f"{key}: {when!r} is none of {', '.join(CONDITIONS)}")
    return CONDITIONS[when or "on_success"]


def _key(text: str | None, variables: Variables) -> str:
    return variables.expand(text or "") or DEFAULT_KEY


def _fallback_keys(cache: _Cache, variables: Variables) -> list[str]:
    keys = [variables.expand(key) for key in cache.fallback_keys or ()]
    last = variables["CACHE_FALLBACK_KEY"]
    return [key for key in dict.fromkeys([*keys, "" if last.endswith(RESERVED) else last]) if key]


def _folder(payload: JobPayload, setting: Setting) -> str:
    return posixpath.join(setting.cache_dir, project_path(payload.git_info.repo_url))
