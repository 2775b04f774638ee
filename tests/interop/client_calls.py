"""Lists the HTTP calls that clients of GitLab's API can make, from the clients themselves, as lines such as
`GET projects/*/jobs/*`. `tools/api_client_calls.txt` is the result; the page about clients is generated from it.

    python -m tests.interop.client_calls > tools/api_client_calls.txt       after `make interop` has got the clients
"""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gitlab.v4.objects
from gitlab import base, mixins

ROOT = Path(__file__).parents[2]
CLIENT_GO = ROOT / "tests" / "interop" / "client-go"
GITBEAKER = ROOT / "build" / "interop" / "gitbeaker"
_MIXIN_CALLS = (
    (mixins.ListMixin, "GET", ""),
    (mixins.GetMixin, "GET", "/*"),
    (mixins.GetWithoutIdMixin, "GET", ""),
    (mixins.CreateMixin, "POST", ""),
    (mixins.DeleteMixin, "DELETE", "/*"),
)
_OWN_CREATE = {
    "ProjectCommitStatusManager": "projects/*/statuses/*",
    "ProjectFileManager": "projects/*/repository/files/*",
    "ProjectForkManager": "projects/*/fork",
    "ProjectPipelineManager": "projects/*/pipeline",
}
"""Classes of python-gitlab that create at another path than the one where they list."""
_OWN_PATH = re.compile(r'path = f?"(\{self\.(?:manager\.)?path\}[^"]*|/[^"]*)"')
_HTTP_CALL = re.compile(r"http_(get|list|post|put|patch|delete)\(")
_PARAMETER = re.compile(r"\{[^}]*\}")
_GO_CALL = re.compile(r"\bdo\w*\[[^\n]*\]\(\s*s\.client,\n(.*?)\n\t+\)", re.DOTALL)
_GO_PATH = re.compile(r'withPath\(\s*"([^"]+)"')
_GO_METHOD = re.compile(r"withMethod\(http\.Method(\w+)\)")


def python_gitlab_calls() -> Iterator[str]:
    for manager in vars(gitlab.v4.objects).values():
        if inspect.isclass(manager) and issubclass(manager, base.RESTManager) and getattr(manager, "_path", None):
            yield from _manager_calls(manager)


def _manager_calls(manager: Any) -> Iterator[str]:
    path = _pattern(manager._path)
    for mixin, method, rest in _MIXIN_CALLS:
        if issubclass(manager, mixin):
            own = _OWN_CREATE.get(manager.__name__) if mixin is mixins.CreateMixin else None
            yield f"{method} {own or path + rest}"
    if issubclass(manager, mixins.UpdateMixin):
        has_id = not issubclass(manager, mixins.GetWithoutIdMixin)
        yield f"{manager._update_method.name} {path}{'/*' if has_id else ''}"
    yield from _own_calls(manager, path)
    if manager._obj_cls is not None:
        yield from _own_calls(manager._obj_cls, path)


def _own_calls(kind: type[Any], path: str) -> Iterator[str]:
    """Yield the calls of methods that the class itself defines, found in their source."""
    for function in vars(kind).values():
        if not inspect.isfunction(function):
            continue
        source = inspect.getsource(inspect.unwrap(function))
        own, call = _OWN_PATH.search(source), _HTTP_CALL.search(source)
        if own and call:
            method = {"list": "GET"}.get(call[1], call[1].upper())
            text = own[1].replace("{self.manager.path}", path).replace("{self.path}", path)
            yield f"{method} {_pattern(text)}"


def client_go_calls() -> Iterator[str]:
    command = ["go", "list", "-mod=mod", "-m", "-f", "{{.Dir}}", "gitlab.com/gitlab-org/api/client-go"]
    folder = subprocess.run(command, cwd=CLIENT_GO, capture_output=True, text=True, check=True).stdout.strip()
    for file in sorted(Path(folder).glob("*.go")):
        for call in _GO_CALL.findall(file.read_text()):
            path, method = _GO_PATH.search(call), _GO_METHOD.search(call)
            if path:
                pattern = re.sub(r"[^/]*%[sdv][^/]*", "*", path[1]).strip("/")
                yield f"{method[1].upper() if method else 'GET'} {pattern}"


def gitbeaker_calls() -> Iterator[str]:
    command = ["node", "--no-deprecation", "calls.mjs"]
    done = subprocess.run(command, cwd=GITBEAKER, capture_output=True, text=True, check=True)
    yield from done.stdout.splitlines()


def _pattern(path: str) -> str:
    return _PARAMETER.sub("*", path).strip("/")


def client_versions() -> dict[str, str]:
    """Return the clients' names and versions."""
    go = re.search(r"client-go v([0-9.]+)", (CLIENT_GO / "go.mod").read_text())
    beaker = re.search(r'"@gitbeaker/rest": "([0-9.]+)"', (GITBEAKER / "package.json").read_text())
    assert go
    assert beaker
    return {"python-gitlab": version("python-gitlab"), "client-go": go[1], "gitbeaker": beaker[1]}


def list_calls() -> str:
    """Return the text of the file: a line with the clients' versions, then each call with the clients that make it."""
    calls = {
        "python-gitlab": set(python_gitlab_calls()),
        "client-go": set(client_go_calls()),
        "gitbeaker": set(gitbeaker_calls()),
    }
    lines = [f"# {' '.join(f'{name}={number}' for name, number in client_versions().items())}"]
    every_call = sorted(set[str]().union(*calls.values()), key=lambda text: text.split(" ")[::-1])
    lines += [f"{call} {','.join(name for name, made in calls.items() if call in made)}" for call in every_call]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(list_calls())
