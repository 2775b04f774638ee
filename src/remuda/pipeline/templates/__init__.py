"""The pipeline files of `include:template`: those beside this module, which are part of Remuda, and those of a folder
or server that an operator or user names. The cell and `remuda run` call `find_template`; the cell also lists the names.

A name has the form `Folder/Name.gitlab-ci.yml`. Invariant: a name never leads out of the folder of the templates."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote as quote_path

import msgspec

from remuda.pipeline.errors import quote
from remuda.pipeline.facts import SourceProblem

SUFFIX = ".gitlab-ci.yml"
GITLAB = "https://gitlab.com"
GITLAB_TEMPLATES = f"{GITLAB}/gitlab-org/gitlab/-/raw/master/lib/gitlab/ci/templates"
"""The folder with GitLab's own templates. GitLab's API serves none that has a folder in its name."""
LIMIT_BYTES = 1024 * 1024
CACHE_SECONDS = 3600
"""How long a template from a server is used before it is fetched again."""

_FOLDER = Path(__file__).parent
_WITH_IMAGES = re.compile(
    "Security/|Auto-DevOps|Terraform|.*(SAST|DAST|Scanning|Fuzzing|Code-Quality|Code-Intelligence|Deploy)"
)
"""Templates whose jobs run programs that only images of GitLab have."""
_NAME = re.compile(r"[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*")
_MAX_LISTED = 1000
_MAX_NEAR = 5

Fetch = Callable[[str], str | SourceProblem]


class _Answer(msgspec.Struct):
    content: str


def is_address(source: str) -> bool:
    """True if a source of templates is a server, not a folder."""
    return source.startswith(("http://", "https://"))


def key_of(name: str) -> str | None:
    """Return the name of a template without its suffix, as in the API; None if no template can have this name."""
    key = name.strip("/").removesuffix(SUFFIX)
    return key if _NAME.fullmatch(key) and not any(part.strip(".") == "" for part in key.split("/")) else None


@lru_cache(maxsize=1)
def bundled_keys() -> tuple[str, ...]:
    """Return the names, without suffix and sorted, of the templates that are part of Remuda."""
    return tuple(_keys(_FOLDER))


def list_keys(source: str) -> list[str]:
    """Return the names, without suffix and sorted, of Remuda's templates and of those in the folder `source`."""
    own = _keys(Path(source)) if source and not is_address(source) else ()
    return sorted({*bundled_keys(), *own})


def read_template(key: str, source: str) -> str | SourceProblem | None:
    """Return the text of a template in the folder `source` or, if that does not have it, of Remuda's own; None if
    there is none."""
    text = _read(Path(source), key) if source and not is_address(source) else None
    return _read(_FOLDER, key) if text is None else text


def find_template(name: str, source: str, fetch: Fetch, *, hint: str) -> str | SourceProblem:
    """Return the text of a template from `source` (a folder, or the address of a GitLab server or of a folder on a web
    server), else Remuda's own. `fetch` gets a text from an address. `hint` says how to name another source."""
    key = key_of(name)
    if key is None:
        return SourceProblem(
            reason=f"{quote(name)} is not the name of a template", suggestion=f"write it like Folder/Name{SUFFIX}"
        )
    text = _fetch(key, source.rstrip("/"), fetch) if is_address(source) else None
    if text is None:
        text = read_template(key, source)
    return _missing(key, list_keys(source), hint) if text is None else text


def _fetch(key: str, address: str, fetch: Fetch) -> str | SourceProblem | None:
    """Ask a server for a template: GitLab's API first, then a file with the template's name. None if it has none."""
    answer = fetch(f"{address}/api/v4/templates/gitlab_ci_ymls/{quote_path(key, safe='')}")
    if isinstance(answer, str):
        try:
            return msgspec.json.decode(answer, type=_Answer).content
        except msgspec.DecodeError:
            pass  # A web server that answers every address with a page.
    elif not answer.is_missing:
        return answer
    folder = GITLAB_TEMPLATES if address == GITLAB else address
    text = fetch(f"{folder}/{quote_path(key)}{SUFFIX}")
    if isinstance(text, SourceProblem):
        return None if text.is_missing else text
    # A server may answer an unknown address with a page, for example to log in.
    return None if text.lstrip().startswith("<") else text


def _read(folder: Path, key: str) -> str | SourceProblem | None:
    path = folder / f"{key}{SUFFIX}"
    try:
        if not _is_file_of(folder, path):
            return None
        with path.open("rb") as file:
            data = file.read(LIMIT_BYTES + 1)
        if len(data) > LIMIT_BYTES:
            return SourceProblem(reason=f"the template is larger than {LIMIT_BYTES} bytes", suggestion="split it")
        return data.decode()
    except UnicodeDecodeError:
        return SourceProblem(reason="the template is not UTF-8 text", suggestion="save it as UTF-8")
    except OSError as error:
        return SourceProblem(reason=f"the template cannot be read: {error.strerror}", suggestion="check its mode")


def _is_file_of(folder: Path, path: Path) -> bool:
    """True if `path` is a file and no symbolic link that leads out of the folder."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)) and path.is_file()


def _keys(folder: Path) -> list[str]:
    paths = sorted(folder.rglob(f"*{SUFFIX}"))[:_MAX_LISTED]
    keys = (path.relative_to(folder).as_posix().removesuffix(SUFFIX) for path in paths if _is_file_of(folder, path))
    return [key for key in keys if key_of(key) == key]


def _missing(key: str, keys: Iterable[str], hint: str) -> SourceProblem:
    import difflib  # imported only for a file with a mistake

    by_name = {known.lower(): known for known in keys}
    by_name.update({known.rpartition("/")[2].lower(): known for known in by_name.values()})
    near = difflib.get_close_matches(key.lower(), by_name, n=_MAX_NEAR)
    near += difflib.get_close_matches(key.rpartition("/")[2].lower(), by_name, n=_MAX_NEAR)
    names = ", ".join(dict.fromkeys(by_name[each] + SUFFIX for each in near))
    similar = f"similar names: {names}; or " if names else ""
    why = ": its jobs run images of GitLab, and Remuda has no others for it" if _WITH_IMAGES.match(key) else ""
    return SourceProblem(reason=f"there is no template {quote(key + SUFFIX)}{why}", suggestion=f"{similar}{hint}")
