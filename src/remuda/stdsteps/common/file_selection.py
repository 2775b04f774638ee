"""Selects files of the working directory by patterns, for artifacts and caches. A pattern is a path with `*`, `?`,
`[a-z]`, `{one,other}`, and `**` for any number of folders. A folder selects everything in it. Only files in the working
directory can be selected, and nothing in its `.git`. Links below a selected folder are selected and not followed,
because package managers create circular links."""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from remuda.lib.safe_paths import open_inside
from remuda.stdsteps.checkout.workdir import make_temporary
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.log import say

MOST_ALTERNATIVES = 1000
PLACE = "/tmp"
"""Folder for git's temporary files without an agent; not taken from a variable of the job."""
_MAGIC = re.compile(r"[*?\[]")
_CHOICE = re.compile(r"\{([^{}]*,[^{}]*)\}")


def select(root: Path, paths: Iterable[str], exclude: Iterable[str] = (), *, untracked: bool) -> set[str]:
    """Return the paths, relative to `root`, that match one of the patterns `paths` and none of `exclude`. `untracked`:
    add files that git does not track. Paths that lead out of `root` through links, or whose names are not UTF-8, are
    left out with a warning."""
    excluded = [pattern_regex(each) for pattern in exclude for each in alternatives(pattern)]

    def is_kept(name: str) -> bool:
        return not (name == ".git" or name.startswith(".git/") or any(regex.fullmatch(name) for regex in excluded))

    names: set[str] = set()
    for pattern in paths:
        matches = {name for each in alternatives(pattern) for name in _match(root, each) if is_kept(name)}
        if matches:
            say(f"{pattern}: found {len(matches)} matching files and directories")
        else:
            say(
                f"WARNING: {pattern}: no matching files. Ensure that the path is relative to the working directory "
                f"({root})"
            )
        names |= matches
    if untracked:
        matches = set(filter(is_kept, _list_untracked(root)))
        say(f"untracked: found {len(matches)} files")
        names |= matches
    outside = _find_outside(root, names)
    if outside:
        say(f"WARNING: skipped {len(outside)} files: links in their paths lead out of the working directory")
    names -= outside
    unreadable = {name for name in names if not _is_text(name)}
    if unreadable:
        say(f"WARNING: skipped {len(unreadable)} files whose names are not valid UTF-8")
    return names - unreadable


def match_names(root: Path, paths: Iterable[str], names: Iterable[str]) -> set[str]:
    """Return those of `names` that match one of the patterns `paths`, whether such files exist or not."""
    patterns = [_make_relative(root, each) for pattern in paths for each in alternatives(pattern)]
    regexes = [pattern_regex("**" if each == "." else _limit_stars(each)) for each in patterns if each is not None]
    return {name for name in names if any(regex.fullmatch(name) for regex in regexes)}


def _limit_stars(pattern: str) -> str:
    """Replace `**` by `*` where it is only a part of a name: there it does not match `/` in `select`."""
    return "/".join(part if part == "**" else part.replace("**", "*") for part in pattern.split("/"))


def leads_inside(root: Path, name: str) -> bool:
    """True if the path lies inside `root` after all symbolic links are resolved. Steps check this because they may have
    more rights than the job that created the links."""
    return Path(os.path.realpath(root / name)).is_relative_to(os.path.realpath(root))


def alternatives(pattern: str) -> list[str]:
    """Expand `{one,other}` in a pattern and return the resulting patterns. Raises StepError if they are more than
    MOST_ALTERNATIVES."""
    done: list[str] = []
    unexpanded = [pattern]
    while unexpanded:
        text = unexpanded.pop()
        choice = _CHOICE.search(text)
        if choice is None:
            done.append(text)
        else:
            unexpanded += [text[: choice.start()] + option + text[choice.end() :] for option in choice[1].split(",")]
        if len(done) + len(unexpanded) > MOST_ALTERNATIVES:
            raise StepError(
                f"the pattern {pattern[:60]!r} expands to more than {MOST_ALTERNATIVES} paths; use fewer alternatives"
            )
    return done


def pattern_regex(pattern: str) -> re.Pattern[str]:
    """Return the regular expression for a pattern. It also matches everything inside a matching folder. Raises
    StepError if the pattern is invalid."""
    regex, index = "", 0
    pattern = pattern.strip("/").removesuffix("/**")
    while index < len(pattern):
        if pattern.startswith("**/", index):
            regex, index = regex + "(?:.*/)?", index + 3
        elif pattern.startswith("**", index):
            regex, index = regex + ".*", index + 2
        elif pattern[index] == "*":
            regex, index = regex + "[^/]*", index + 1
        elif pattern[index] == "?":
            regex, index = regex + "[^/]", index + 1
        elif pattern[index] == "[" and (close := pattern.find("]", index + 2)) > 0:
            inside = re.sub(r"([\\\[&~|])", r"\\\1", pattern[index + 1 : close])
            regex, index = regex + "[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]", close + 1
        else:
            regex, index = regex + re.escape(pattern[index]), index + 1
    try:
        return re.compile(regex + "(?:/.*)?", re.DOTALL)
    except re.error:
        raise StepError(f"the pattern {pattern!r} is invalid; check its [ and ]") from None


def _match(root: Path, pattern: str) -> set[str]:
    """Return the paths below `root` that match a pattern without `{one,other}`."""
    inside = _make_relative(root, pattern)
    if inside is None:
        say(f"WARNING: {pattern}: leads out of the working directory and is skipped")
        return set()
    parts = [] if inside == "." else inside.split("/")
    regexes = [pattern_regex(part) if _MAGIC.search(part) else None for part in parts]
    matches: set[str] = set()
    seen: set[tuple[str, int]] = set()
    waiting = [("", 0)]
    while waiting:
        folder, depth = waiting.pop()
        if (folder, depth) in seen:
            continue
        seen.add((folder, depth))
        if depth < len(parts) and _leads_out(root, folder):
            say(f"WARNING: {pattern}: {folder} is a link that leads out of the working directory and is not followed")
        elif depth == len(parts):
            matches.update(_walk(root, folder))
        elif parts[depth] == "**":
            waiting.append((folder, depth + 1))
            if depth + 1 < len(parts):
                waiting += [(name, depth) for name, is_folder in _children(root, folder) if is_folder]
        elif (regex := regexes[depth]) is None:
            name = _join(folder, parts[depth])
            if os.path.lexists(root / name):
                waiting.append((name, depth + 1))
        else:
            waiting += [
                (name, depth + 1) for name, _ in _children(root, folder) if regex.fullmatch(name.rpartition("/")[2])
            ]
    return matches


def _make_relative(root: Path, pattern: str) -> str | None:
    """Return the pattern, absolute or relative, in a normalized form relative to `root`; None if it leads out of `root`
    or is empty."""
    inside = os.path.normpath(pattern.removeprefix(f"{root}/") if pattern != str(root) else ".")
    return None if not pattern or os.path.isabs(inside) or inside.split("/")[0] == ".." else inside


def _walk(root: Path, name: str) -> Iterator[str]:
    if name:
        yield name
    waiting = [name] if not name or not (root / name).is_symlink() else []
    while waiting:
        for child, is_folder in _children(root, waiting.pop()):
            yield child
            if is_folder:
                waiting.append(child)


def _children(root: Path, folder: str) -> list[tuple[str, bool]]:
    try:
        with os.scandir(root / folder) as entries:
            return [(_join(folder, entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _leads_out(root: Path, folder: str) -> bool:
    """True if the path `folder` (relative to `root`) is a symbolic link to a place outside of `root`. In the job's
    container such a link may lead to other files than on this machine."""
    if not folder or not (root / folder).is_symlink():
        return False
    return not f"{os.path.realpath(root / folder)}/".startswith(f"{os.path.realpath(root)}/")


def _find_outside(root: Path, names: Iterable[str]) -> set[str]:
    """Return the paths whose parent folder, with links resolved, is outside of `root`. The last part of a path is not
    resolved: a link itself can be selected, wherever it points."""
    cache: dict[str, bool] = {"": True}

    def is_inside(folder: str) -> bool:
        path = []
        while folder not in cache:
            path.append(folder)
            folder = os.path.dirname(folder)
        inside = cache[folder]
        for below in reversed(path):
            inside = inside and (not os.path.islink(root / below) or leads_inside(root, below))
            cache[below] = inside
        return inside

    return {name for name in names if not is_inside(os.path.dirname(name))}


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _list_untracked(root: Path) -> Iterator[str]:
    """Yield the files that git does not track. Raises StepError if git fails. git gets a copy of the index but not the
    repository's configuration, which could make it run programs."""
    with make_temporary("remuda-git-", place=PLACE) as private:
        for name in ("objects", "refs"):
            Path(private, name).mkdir()
        Path(private, "HEAD").write_text("ref: refs/heads/none\n")
        Path(private, "config").write_text("[core]\n\trepositoryformatversion = 0\n\tfsmonitor = false\n")
        with suppress(OSError), open(open_inside(root, ".git/index"), "rb") as index:
            Path(private, "index").write_bytes(index.read())
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        own = {"GIT_DIR": private, "GIT_WORK_TREE": str(root), "GIT_CONFIG_GLOBAL": os.devnull}
        result = subprocess.run(
            ["git", "ls-files", "-o", "-z"],
            cwd=root,
            env=inherited | own | {"GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    if result.returncode:
        raise StepError(f"git cannot list untracked files: {result.stderr.decode(errors='replace').strip()}")
    for path in result.stdout.split(b"\0"):
        if path:
            yield os.fsdecode(path)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
