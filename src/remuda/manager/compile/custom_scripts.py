"""Generates POSIX sh scripts for the runner's own stages (sources, caches, artifacts), for the custom executor, whose
machines may not have Remuda. Sources need only git. Caches and artifacts use `remuda-agent` if it is installed there,
else `gitlab-runner` or `gitlab-runner-helper`; without any of them the script only prints a warning."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from remuda.manager.compile.step_entries import Entry
from remuda.stdsteps.caches.folder_store import SUFFIX, file_name
from remuda.stdsteps.checkout.git import format_config, split_credentials
from remuda.stdsteps.checkout.lfs import FETCHING, FILTER, MISSING
from remuda.stdsteps.checkout.step import ALL_REFS, COMMANDING, FETCH_FLAGS, FETCHED, LEFT_BY_A_KILLED_GIT
from remuda.stdsteps.checkout.submodules import describe_retry
from remuda.stdsteps.custom.job import HOSTNAME
from remuda.steps.language.escaping import OPENER

STRICT = 'set -e; if [ -n "${BASH_VERSION-}" ]; then set -o pipefail; fi'
PREPARE = f'{STRICT}\necho "Running on $(hostname 2>/dev/null || uname -n) via {HOSTNAME}..."'
CLEAR = f"""{STRICT}
cd "$CI_PROJECT_DIR" 2>/dev/null || exit 0
if [ -d .git ] && git rev-parse --verify --quiet HEAD >/dev/null; then git clean -ffdx; git reset --hard; fi"""
_PRIVATE = '"$CI_PROJECT_DIR.tmp/remuda-git" "$CI_PROJECT_DIR.tmp/remuda-inputs"'
_GIT = """command -v git >/dev/null 2>&1 || {
  echo 'ERROR: git is not installed where the job runs; install it there, or set GIT_STRATEGY: none'; exit 1; }
_git() { git -c include.path="$CI_PROJECT_DIR.tmp/remuda-git" "$@"; }
export GIT_TERMINAL_PROMPT=0 GIT_NO_REPLACE_OBJECTS=1
_smudge=${GIT_LFS_SKIP_SMUDGE-}; export GIT_LFS_SKIP_SMUDGE=1"""
# Files that an earlier job made unwritable cannot be removed otherwise. Symbolic links are not followed.
_REPAIR = "chmod -R u+rwX . 2>/dev/null"
_UNTRUSTED = """if [ -d .git ] && [ ! -L .git ]; then chmod -R u+rwX .git 2>/dev/null || :; fi
if [ -L .git ] || [ ! -d .git ] || [ -n "$(find .git ! -type d ! -type f | head -n 1)" ]; then rm -rf .git; fi"""
# An earlier job may have left its own repository there, or a link to one.
_EMPTY_SUBMODULES = """_git ls-files --stage | while read -r _mode _ _ _path; do
  if [ "$_mode" = 160000 ]; then rm -rf "$_path"; mkdir -p "$_path"; fi
done"""
_LARGE_FILES = f"""if _git grep -q 'filter=lfs' -- ':(glob)**/.gitattributes' 2>/dev/null; then
  if command -v git-lfs >/dev/null 2>&1; then
    echo {shlex.quote(FETCHING)}
    printf %s {shlex.quote(FILTER)} >>.git/config
    _git lfs pull
  else
    echo {shlex.quote(MISSING)}
  fi
fi"""


def plain(entry: Entry) -> dict[str, Any]:
    """Return the inputs of a job's step without the escaping that `step_entries.literal` added."""
    return {key: _plain(value) for key, value in entry["inputs"].items()}


def _plain(value: Any) -> Any:
    match value:
        case str():
            return value.replace("\\" + OPENER, OPENER)
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {_plain(key): _plain(item) for key, item in value.items()}
    return value


def sources_script(entries: Sequence[Entry]) -> str:
    """Return the script of the stage get_sources: the checkout and the hooks around it."""
    parts = [STRICT, 'mkdir -p "$CI_PROJECT_DIR"', 'cd "$CI_PROJECT_DIR"']
    if not entries:
        return "\n".join([*parts, "echo 'Skipping Git repository setup'"])
    for entry in entries:
        inputs = plain(entry)
        if entry["name"] == "get_sources":
            parts += ['cd "$CI_PROJECT_DIR"', *_checkout(inputs)]
        else:
            parts += inputs["script"]
    return "\n".join(parts)


def _checkout(inputs: Mapping[str, Any]) -> Iterable[str]:
    strategy = inputs["strategy"]
    if strategy in ("empty", "clone"):
        empty = "find . -mindepth 1 -maxdepth 1 -exec rm -rf {} +"
        yield f"{empty} 2>/dev/null || {{ {_REPAIR} || :; {empty}; }}"
    if strategy == "empty":
        yield "echo 'Skipping Git repository setup and creating an empty build directory'"
        return
    remote = split_credentials(inputs["repo_url"])
    config = format_config(remote, instead_of_ssh=inputs.get("instead_of_ssh", False))
    yield _GIT
    yield f'(umask 077; printf %s {shlex.quote(config)} >"$CI_PROJECT_DIR.tmp/remuda-git")'
    if remote.origin.startswith("https:"):
        key = shlex.quote(f"http.{remote.origin}.sslCAInfo")
        # The environment variable would override the setting for this server.
        yield (
            '[ -z "${CI_SERVER_TLS_CA_FILE:-}" ] || { unset GIT_SSL_CAINFO; '
            f'git config --file "$CI_PROJECT_DIR.tmp/remuda-git" {key} "$CI_SERVER_TLS_CA_FILE"; }}'
        )
    yield _UNTRUSTED
    doubtful = " ".join(f".git/{name}" for name in (*LEFT_BY_A_KILLED_GIT, *COMMANDING, FETCHED))
    yield f"rm -rf {doubtful}; if [ -d .git/refs ]; then find .git/refs -name '*.lock' -exec rm -f {{}} +; fi"
    yield f"_git init --quiet --template=; _git remote add origin {shlex.quote(remote.url)}"
    yield from _fetch(inputs)
    if not inputs.get("checkout", True):
        yield "echo 'Skipping Git checkout: GIT_CHECKOUT is false'"
    else:
        sha = shlex.quote(inputs["sha"])
        about = f"Checking out {inputs['sha'][:8]} as detached HEAD (ref is {inputs['ref']})..."
        yield f"echo {shlex.quote(about)}\n_git checkout -f -q --detach {sha}"
        if flags := inputs.get("clean_flags", ["-ffdx"]):
            yield f"_git clean {shlex.join(flags)} || {{ {_REPAIR} || :; _git clean {shlex.join(flags)}; }}"
        yield _EMPTY_SUBMODULES
        if inputs.get("lfs", True):
            yield _LARGE_FILES
        yield from _submodules(inputs)
    yield f'rm -f {_PRIVATE}; export GIT_LFS_SKIP_SMUDGE="$_smudge"'


def _fetch(inputs: Mapping[str, Any]) -> Iterable[str]:
    depth, sha = inputs["depth"], shlex.quote(inputs["sha"])
    cut = f" --depth {depth}" if depth else ""
    yield f"echo 'Fetching changes{f' with git depth set to {depth}' if depth else ''}...'"
    flags = shlex.join(inputs.get("fetch_flags", FETCH_FLAGS))
    refspecs = shlex.join(inputs["refspecs"] or ALL_REFS)
    whole = "" if depth else "$([ ! -f .git/shallow ] || echo --unshallow)"
    yield f"_git fetch --force {flags}{cut} {whole} --no-recurse-submodules origin {refspecs}"
    # The branch has moved on, or the history is cut too short.
    deeper = " || _git fetch --quiet --unshallow origin" if depth else ""
    missing = f"ERROR: commit {inputs['sha']} is not in the repository; it may have been removed by a forced push"
    yield (
        f"_git cat-file -e {sha}'^{{commit}}' 2>/dev/null || _git fetch --quiet{cut} origin {sha}{deeper} || {{\n"
        f"  echo {shlex.quote(missing)}; exit 1; }}"
    )


def _submodules(inputs: Mapping[str, Any]) -> Iterable[str]:
    strategy = inputs.get("submodules", "none")
    if strategy == "none":
        return
    yield f"echo 'Updating submodules{' recursively' if strategy == 'recursive' else ''}...'"
    options = "--init --force" + (" --recursive" if strategy == "recursive" else "")
    rest = shlex.join([*inputs["submodule_flags"], "--", *inputs["submodule_paths"]])
    update = f"_git submodule update {options}"
    if not (depth := inputs["submodule_depth"]):
        yield f"{update} {rest}"
        return
    yield (
        f"{update} --depth {depth} {rest} || {{\n"
        f"  echo {shlex.quote(describe_retry(depth))}\n"
        f"  rm -rf .git/modules; {update} {rest}; }}"
    )


def restore_script(entries: Sequence[Entry]) -> str:
    """Return the script of the stage restore_cache. A failure does not fail the job."""
    parts = [STRICT]
    for entry in entries:
        inputs = plain(entry)
        keys = [inputs["key"], *inputs["fallback_keys"]]
        urls = [["--url", url] for url in inputs.get("downloads") or ()] or [[] for _ in keys]
        folders = inputs.get("folders") or [inputs.get("folder")] * len(keys)
        calls = [
            shlex.join(["cache-extractor", "--file", _cache_file(folder, key), "--timeout", "10", *url])
            for folder, key, url in zip(folders, keys, urls, strict=True)
        ]
        instead = " || ".join(f'"$_runner" {call}' for call in calls)
        parts.append(_step_code("cache_restore", inputs, instead, "Extracting cache", forgiving=True))
    return "\n".join(parts)


def archive_script(entries: Sequence[Entry]) -> str:
    """Return the script of the stage archive_cache or archive_cache_on_failure. A failure does not fail the job."""
    parts = [STRICT]
    for entry in entries:
        inputs = plain(entry)
        words = ["cache-archiver", "--file", _cache_file(inputs.get("folder"), inputs["key"]), "--timeout", "10"]
        words += _path_options(inputs) + (["--url", inputs["upload"]] if inputs.get("upload") else [])
        instead = f'"$_runner" {shlex.join(words)}'
        parts.append(_step_code("cache_save", inputs, instead, "Creating cache", forgiving=True))
    return "\n".join(parts)


def download_script(entries: Sequence[Entry], url: str) -> str:
    parts = [STRICT]
    for entry in entries:
        inputs = plain(entry)
        calls = [
            ["artifacts-downloader", "--url", url, "--token", job["token"], "--id", str(job["id"])]
            for job in inputs["dependencies"]
        ]
        instead = "\n  ".join(f'"$_runner" {shlex.join(call)}' for call in calls)
        parts.append(_step_code("artifacts_download", inputs, instead, "Artifacts downloading"))
    return "\n".join(parts)


def upload_script(entries: Sequence[Entry], url: str) -> str:
    """Return the script of a stage that uploads artifacts; `url` is the server's."""
    parts = [STRICT]
    for entry in entries:
        inputs = plain(entry)
        words = ["artifacts-uploader", "--url", url, "--token", inputs["token"], "--id", str(inputs["job_id"])]
        words += _path_options(inputs)
        for flag, key in (("--expire-in", "expire_in"), ("--name", "name")):
            words += [flag, inputs[key]] if inputs[key] else []
        words += ["--artifact-format", inputs["artifact_format"], "--artifact-type", inputs["artifact_type"]]
        instead = f'"$_runner" {shlex.join(words)}'
        # `when` was evaluated by the choice of the stage.
        parts.append(_step_code("artifacts_upload", dict(inputs) | {"when": "always"}, instead, "Uploading artifacts"))
    return "\n".join(parts)


def cleanup_script(names: Iterable[str]) -> str:
    """Return the script that deletes the files of the file variables `names` and the runner's own temporary files."""
    files = " ".join(f'"$CI_PROJECT_DIR.tmp/"{shlex.quote(name)}' for name in names)
    return f"{STRICT}\nrm -f {_PRIVATE} {files}".rstrip()


def _path_options(inputs: Mapping[str, Any]) -> list[str]:
    words = [word for path in inputs["paths"] for word in ("--path", path)]
    words += [word for path in inputs.get("exclude") or () for word in ("--exclude", path)]
    return words + (["--untracked"] if inputs["untracked"] else [])


def _cache_file(folder: str | None, key: str) -> str:
    """Return the path of gitlab-runner's archive for a cache key; Remuda's own has another name and format."""
    return f"{folder or '.'}/{file_name(key).removesuffix(SUFFIX)}/cache.zip"


def _step_code(step: str, inputs: Mapping[str, Any], instead: str, what: str, *, forgiving: bool = False) -> str:
    """Return shell code that runs a step with `remuda-agent`, or else the command `instead` with gitlab-runner; without
    both it only prints a warning. `what` names the work in warnings; with `forgiving` a failure is only a warning."""
    on_failure = f"echo 'WARNING: {what} failed'" if forgiving else "exit $_code"
    file = '"$CI_PROJECT_DIR.tmp/remuda-inputs"'
    return f"""_code=0
if command -v remuda-agent >/dev/null 2>&1; then
  (umask 077; printf %s {shlex.quote(json.dumps(inputs))} >{file})
  REMUDA_INPUTS={file} remuda-agent step {step} || _code=$?
  rm -f {file}
elif _runner=$(command -v gitlab-runner || command -v gitlab-runner-helper); then
  {{ {instead or ":"}
  }} || _code=$?
else
  echo 'WARNING: Missing remuda-agent and gitlab-runner where the job runs. {what} is disabled.'
fi
[ "$_code" = 0 ] || {on_failure}"""
