"""Compiles the steps that restore and save caches, and download and upload artifacts. Pure code without I/O.

Each cache and artifact has its own step, because each has its own `when`. A failing cache step never fails the job. If
caches are in an object storage, the steps get presigned URLs, not credentials. A runner with a signing key signs every
artifact archive: a step before the upload writes an attestation, a signed statement about files and job, into it."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from remuda.manager.compile.object_urls import bucket_of, object_name, sign_url
from remuda.manager.compile.step_entries import (
    CONDITIONS,
    CompileError,
    Entry,
    Setting,
    api_url,
    cache_folder,
    entry,
    expand_paths,
    number_name,
    project_path,
)
from remuda.manager.compile.variables import Variables
from remuda.manager.config.values import RunnerConfig
from remuda.stdsteps.caches.folder_store import SUFFIX, file_name
from remuda.wire.runner_api import JobPayload

STATEMENT = "remuda-artifacts.json"
"""File name of the signed attestation, in the working directory and in the archive."""
POLICIES = {"pull-push": (True, True), "pull": (True, False), "push": (False, True)}
"""Whether a cache is restored, and whether it is saved."""
DEFAULT_KEY = "default"
LONGEST_JOB_SECONDS = 24 * 3600
"""Assumed for a job without a timeout."""
SPARE_SECONDS = 3600
RESERVED = "-protected"
"""Suffix of keys of protected branches. A variable, which anybody may set, must not name such a key."""


class _Cache(msgspec.Struct, frozen=True, kw_only=True):
    key: str | None = None
    untracked: bool | None = None
    policy: str | None = None
    paths: list[str] | None = None
    when: str | None = None
    fallback_keys: list[str] | None = None


def restore_caches(payload: JobPayload, setting: Setting, variables: Variables) -> list[Entry]:
    caches = [cache for cache in _caches(payload) if _policy(cache, variables)[0]]
    return [
        entry(
            number_name("restore_cache", number),
            "cache_restore",
            _restore_inputs(
                payload, setting, key=_key(cache.key, variables), fallback_keys=_fallback_keys(cache, variables)
            ),
        )
        | {"continue_on_error": True}
        for number, cache in enumerate(caches, start=1)
    ]


def save_caches(payload: JobPayload, setting: Setting, variables: Variables) -> list[Entry]:
    caches = [cache for cache in _caches(payload) if _policy(cache, variables)[1]]
    return [
        entry(
            number_name("archive_cache", number),
            "cache_save",
            _save_inputs(payload, setting, key=_key(cache.key, variables))
            | {"paths": expand_paths(cache.paths, variables, setting), "untracked": bool(cache.untracked)},
        )
        | {"continue_on_error": True, "if": _condition(cache.when, "cache:when")}
        for number, cache in enumerate(caches, start=1)
    ]


def cache_remarks(payload: JobPayload, runner: RunnerConfig, variables: Variables) -> Iterable[str]:
    """Yield warnings about cache settings of job or runner that have no effect."""
    if not any(True for _ in _caches(payload)):
        return
    if problem := runner.cache.problem:
        yield f"cache: {problem} in the runner's configuration; caches are kept in a folder of its machine"
    if variables["CACHE_FALLBACK_KEY"].endswith(RESERVED):
        yield f"CACHE_FALLBACK_KEY is ignored: keys that end in {RESERVED} belong to protected branches"


def download_artifacts(payload: JobPayload, runner: RunnerConfig) -> list[Entry]:
    """Return at most one step, which downloads the artifacts of the jobs that this job depends on."""
    dependencies = [
        {"id": job.id, "name": job.name, "token": job.token or payload.token, "filename": job.artifacts_file.filename}
        for job in payload.dependencies or ()
        if job.artifacts_file is not None and job.artifacts_file.filename
    ]
    inputs = {"api_url": api_url(runner), "dependencies": dependencies}
    return [entry("download_artifacts", "artifacts_download", inputs)] if dependencies else []


def upload_artifacts(payload: JobPayload, setting: Setting, variables: Variables) -> list[Entry]:
    """Return the steps that upload the job's archives and reports. If the runner has a signing key, the upload of each
    zip archive comes after a step that signs its files."""
    entries = []
    for number, artifact in enumerate(payload.artifacts or (), start=1):
        condition = {"if": _condition(artifact.when, "artifacts:when")}
        form = artifact.artifact_format or "zip"
        selection: dict[str, Any] = {
            "paths": expand_paths(artifact.paths, variables, setting),
            "exclude": expand_paths(artifact.exclude, variables, setting),
            "untracked": bool(artifact.untracked),
        }
        if setting.runner.remuda.signing_key and form == "zip":
            signing = selection | _sign_inputs(payload, setting.runner)
            entries.append(entry(number_name("sign_artifacts", number), "sign", signing) | condition)
            selection |= {"statement": signing["statement"]}
        inputs = {
            "api_url": api_url(setting.runner),
            "job_id": payload.id,
            "token": payload.token,
            "name": variables.expand(artifact.name or ""),
            "expire_in": artifact.expire_in or "",
            "artifact_type": artifact.artifact_type or "archive",
            "artifact_format": form,
        }
        limit = setting.runner.artifact.upload_seconds
        bounds = condition | ({"timeout": limit} if limit else {})
        entries.append(entry(number_name("upload_artifacts", number), "artifacts_upload", inputs | selection) | bounds)
    return entries


def _sign_inputs(payload: JobPayload, runner: RunnerConfig) -> dict[str, Any]:
    job, git = payload.job_info, payload.git_info
    about = {
        "job": {"id": payload.id, "name": job.name},
        "project": {"id": job.project_id, "name": job.project_name, "path": project_path(git.repo_url)},
        "commit": git.sha,
        "ref": git.ref,
        "server": runner.url,
        "runner": runner.name,
    }
    return {"key": runner.remuda.signing_key, "about": about, "apart": runs_apart(runner), "statement": STATEMENT}


def runs_apart(runner: RunnerConfig) -> bool:
    """True if a job's steps run as another user or in a container, so that they cannot read the agent's files."""
    return bool(runner.remuda.run_as or runner.remuda.first_uid or runner.has_containers)


def _caches(payload: JobPayload) -> Iterator[_Cache]:
    """Yield the job's caches that have `paths` or `untracked`. Raises CompileError if a cache is invalid."""
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


def _restore_inputs(payload: JobPayload, setting: Setting, *, key: str, fallback_keys: list[str]) -> dict[str, Any]:
    inputs: dict[str, Any] = {"key": key, "fallback_keys": fallback_keys}
    keys = (key, *fallback_keys)
    if setting.runner.cache.is_in_objects:
        return inputs | {"downloads": [_object_url(payload, setting, "GET", cache_key) for cache_key in keys]}
    inputs |= _folder(payload, setting, key)
    folders = [_folder(payload, setting, cache_key)["folder"] for cache_key in keys]
    return inputs | ({"folders": folders} if len(set(folders)) > 1 else {})


def _save_inputs(payload: JobPayload, setting: Setting, *, key: str) -> dict[str, Any]:
    cache = setting.runner.cache
    if not cache.is_in_objects:
        return {"key": key} | _folder(payload, setting, key)
    return {
        "key": key,
        "upload": _object_url(payload, setting, "PUT", key),
        "present": _object_url(payload, setting, "GET", key),
        "limit_bytes": cache.largest_bytes,
    }


def _folder(payload: JobPayload, setting: Setting, key: str) -> dict[str, str]:
    """Return two inputs of a cache step: `folder` for the project's archives, and `root`, the folder of all caches.
    Caches of protected refs, whose keys end in `-protected`, are in a separate folder."""
    is_protected = bool(payload.git_info.protected) and key.endswith(RESERVED)
    folder = cache_folder(setting.cache_dir, payload.git_info.repo_url, is_protected=is_protected)
    return {"folder": folder, "root": setting.cache_dir}


def _object_url(payload: JobPayload, setting: Setting, method: str, key: str) -> str:
    """Return a presigned URL of a cache archive for `method` (GET or PUT), valid longer than the job may take."""
    runner = setting.runner
    project = str(payload.job_info.project_id or project_path(payload.git_info.repo_url))
    name = object_name(
        runner.cache, runner=runner.short_token, project=project, key=file_name(key).removesuffix(SUFFIX)
    )
    seconds = (payload.runner_info.timeout or LONGEST_JOB_SECONDS) + SPARE_SECONDS
    return sign_url(bucket_of(runner.cache.s3), method, name, at=setting.now, seconds=seconds)
