"""Compiles the checkout of a job, with the options of its GIT_ variables, and the hooks around it; the runner's hook is
the first before and the last after the checkout. GIT_STRATEGY none: neither checkout nor hooks. Pure code."""

import posixpath
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from remuda.manager.compile.step_entries import CompileError, Entry, cache_folder, entry, lines, path_of_project
from remuda.manager.compile.variables import TRUE_WORDS, Variables
from remuda.manager.config.values import RunnerConfig
from remuda.stdsteps.common.sizes import parse_size
from remuda.wire.runner_api import JobPayload

SHORTEST_SHA = 8
STRATEGIES = ("fetch", "clone", "empty", "none")
SUBMODULE_STRATEGIES = ("none", "normal", "recursive")
MIRRORS = ".git-mirrors"
"""Folder in a cache folder. Names of groups, projects and caches do not begin with a dot."""
_FALSE = ("false", "f", "0")
_DEPTHS = ("GIT_DEPTH", "GIT_SUBMODULE_DEPTH")
_FLAGS = ("GIT_CHECKOUT", "GIT_LFS_SKIP_SMUDGE", "GIT_SUBMODULE_FORCE_HTTPS")
MAX_ATTEMPTS = 10
"""Most attempts of a stage that a job may ask for, as in gitlab-runner."""
_ATTEMPTS = ("GET_SOURCES_ATTEMPTS", "ARTIFACT_DOWNLOAD_ATTEMPTS", "RESTORE_CACHE_ATTEMPTS")


def get_sources(payload: JobPayload, runner: RunnerConfig, variables: Variables, *, cache_dir: str = "") -> list[Entry]:
    """Return the steps for the checkout and the hooks around it. Mirrors of repositories in `cache_dir` are shared by
    all projects, except in a sandbox, where jobs can write to them. A GIT_ variable with an invalid value counts as
    absent. Raises CompileError if the commit is invalid."""
    strategy = variables["GIT_STRATEGY"]
    if strategy not in STRATEGIES:
        strategy = "fetch" if payload.allow_git_fetch else "clone"
    if strategy == "none":
        return []
    git = payload.git_info
    if strategy != "empty" and len(git.sha) < SHORTEST_SHA:
        raise CompileError(f"the server sent {git.sha!r} as the commit, which is not a commit id")
    hooks = {hook.get("name"): list(hook.get("script") or ()) for hook in payload.hooks or ()}
    before = [*lines(runner.pre_get_sources_script), *hooks.get("pre_get_sources_script", ())]
    after = [*hooks.get("post_get_sources_script", ()), *lines(runner.post_get_sources_script)]
    checkout = {
        "repo_url": _repo_url(payload, runner),
        "sha": git.sha,
        "ref": git.ref,
        "refspecs": git.refspecs,
        "depth": git.depth,
        "strategy": strategy,
    }
    if cache_dir and (room := parse_size(runner.remuda.git_mirrors, "git_mirrors")):
        shared = cache_dir
        if runner.remuda.sandbox:
            shared = cache_folder(cache_dir, git.repo_url, is_protected=bool(git.protected))
        checkout |= {"mirrors": posixpath.join(shared, MIRRORS), "mirrors_bytes": room}
    return [
        *([entry("pre_get_sources_script", "script", {"script": before})] if before else ()),
        entry("get_sources", "checkout", checkout | _git_options(variables) | _submodules(variables, git.depth))
        | ({"timeout": runner.get_sources_seconds} if runner.get_sources_seconds else {}),
        *([entry("post_get_sources_script", "script", {"script": after})] if after else ()),
    ]


def source_remarks(variables: Variables) -> Iterable[str]:
    """Yield warnings about variables of the job that the runner uses, and whose values are invalid."""
    choices = {"GIT_STRATEGY": STRATEGIES, "GIT_SUBMODULE_STRATEGY": SUBMODULE_STRATEGIES}
    expected = {name: f"one of {', '.join(words)}" for name, words in choices.items() if variables[name] not in words}
    expected |= {name: "a whole number" for name in _DEPTHS if _number(variables[name]) is None}
    expected |= {name: "true or false" for name in _FLAGS if variables[name].lower() not in (*TRUE_WORDS, *_FALSE)}
    attempts = f"a number from 1 to {MAX_ATTEMPTS}"
    expected |= {name: attempts for name in _ATTEMPTS if read_attempts(variables[name]) is None}
    for name, what in expected.items():
        if variables[name]:
            yield f"{name}: must be {what}, not {variables[name]!r}; the default is used"


def read_attempts(text: str) -> int | None:
    """Return the value of a variable such as GET_SOURCES_ATTEMPTS; None if it is empty or invalid."""
    number = _number(text)
    return number if number is not None and 1 <= number <= MAX_ATTEMPTS else None


def _git_options(variables: Variables) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, key in (("GIT_CLEAN_FLAGS", "clean_flags"), ("GIT_FETCH_EXTRA_FLAGS", "fetch_flags")):
        if flags := variables[name]:
            options[key] = [] if flags == "none" else flags.split()
    if variables["GIT_LFS_SKIP_SMUDGE"].lower() in TRUE_WORDS:
        options["lfs"] = False
    if variables["GIT_CHECKOUT"].lower() in _FALSE:
        options["checkout"] = False
    return options


def _submodules(variables: Variables, depth: int) -> dict[str, Any]:
    strategy = variables["GIT_SUBMODULE_STRATEGY"]
    if strategy not in SUBMODULE_STRATEGIES or strategy == "none":
        return {}
    own_depth = _number(variables["GIT_SUBMODULE_DEPTH"])
    return {
        "submodules": strategy,
        "submodule_depth": depth if own_depth is None else own_depth,
        "submodule_paths": variables["GIT_SUBMODULE_PATHS"].split(),
        "submodule_flags": variables["GIT_SUBMODULE_UPDATE_FLAGS"].split(),
        "instead_of_ssh": variables["GIT_SUBMODULE_FORCE_HTTPS"].lower() in TRUE_WORDS,
    }


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _repo_url(payload: JobPayload, runner: RunnerConfig) -> str:
    if not runner.clone_url:
        return payload.git_info.repo_url
    path = path_of_project(payload, runner)
    if runner.clone_url.startswith("file://"):
        return f"{runner.clone_url.rstrip('/')}/{quote(path)}.git"
    parts = urlsplit(runner.clone_url)
    host = parts.netloc.rpartition("@")[2]
    address = f"gitlab-ci-token:{quote(payload.token, safe='')}@{host}"
    return urlunsplit((parts.scheme, address, f"{parts.path.rstrip('/')}/{path}.git", "", ""))
