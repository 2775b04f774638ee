"""Makes the page that says which calls of GitLab's API clients a cell answers.

The calls of the libraries come from `api_client_calls.txt` (see tests/interop/client_calls.py), those of a cell from
its OpenAPI document. glab and the Terraform provider are built on client-go; what their commands and resources call is
listed here."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CALLS_FILE = Path(__file__).parent / "api_client_calls.txt"
_PREFIX = "/api/v4/"
_SCOPED = ("projects", "groups")
"""Areas with a table row for each kind of object in them."""

GLAB_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "auth status": ("GET user",),
    "repo create": ("POST projects", "GET projects/*"),
    "repo list, search": ("GET projects",),
    "repo clone, view": ("GET projects/*",),
    "repo delete": ("DELETE projects/*",),
    "ci lint": ("POST projects/*/ci/lint",),
    "ci run": ("POST projects/*/pipeline",),
    "ci list, get, status": (
        "GET projects/*/pipelines",
        "GET projects/*/pipelines/*",
        "GET projects/*/pipelines/*/jobs",
    ),
    "ci trace": ("GET projects/*/jobs/*/trace",),
    "ci retry, cancel, trigger": (
        "POST projects/*/jobs/*/retry",
        "POST projects/*/jobs/*/cancel",
        "POST projects/*/jobs/*/play",
    ),
    "ci delete": ("DELETE projects/*/pipelines/*",),
    "job artifact": ("GET projects/*/jobs/artifacts/*/download",),
    "variable": (
        "GET projects/*/variables",
        "POST projects/*/variables",
        "PUT projects/*/variables/*",
        "DELETE projects/*/variables/*",
        "GET groups/*/variables",
    ),
    "schedule": (
        "GET projects/*/pipeline_schedules",
        "POST projects/*/pipeline_schedules",
        "POST projects/*/pipeline_schedules/*/play",
        "DELETE projects/*/pipeline_schedules/*",
    ),
    "token": (
        "POST projects/*/access_tokens",
        "POST projects/*/access_tokens/*/rotate",
        "DELETE projects/*/access_tokens/*",
        "POST groups/*/access_tokens",
        "POST personal_access_tokens/*/rotate",
    ),
    "release create, list, view, delete": (
        "GET projects/*/releases",
        "POST projects/*/releases",
        "GET projects/*/releases/*",
        "DELETE projects/*/releases/*",
    ),
    "mr list": ("GET projects/*/merge_requests",),
    "mr create": ("POST projects/*/merge_requests",),
    "issue": ("GET projects/*/issues",),
    "label": ("GET projects/*/labels",),
    "snippet": ("POST projects/*/snippets",),
    "deploy-key": ("GET projects/*/deploy_keys",),
    "ssh-key": ("GET user/keys",),
    "securefile": ("GET projects/*/secure_files",),
    "cluster agent": ("GET projects/*/cluster_agents",),
}
"""The calls that glab's commands need."""


def _crud(path: str, change: str = "PUT") -> tuple[str, ...]:
    return (f"POST {path}", f"GET {path}/*", f"{change} {path}/*", f"DELETE {path}/*")


TERRAFORM_RESOURCES: Mapping[str, tuple[str, ...]] = {
    "gitlab_project": _crud("projects"),
    "gitlab_group": _crud("groups"),
    "gitlab_user": _crud("users"),
    "gitlab_project_membership": _crud("projects/*/members"),
    "gitlab_group_membership": _crud("groups/*/members"),
    "gitlab_project_variable": _crud("projects/*/variables"),
    "gitlab_group_variable": _crud("groups/*/variables"),
    "gitlab_instance_variable": _crud("admin/ci/variables"),
    "gitlab_pipeline_schedule": _crud("projects/*/pipeline_schedules"),
    "gitlab_pipeline_schedule_variable": (
        "POST projects/*/pipeline_schedules/*/variables",
        "PUT projects/*/pipeline_schedules/*/variables/*",
        "DELETE projects/*/pipeline_schedules/*/variables/*",
    ),
    "gitlab_pipeline_trigger": _crud("projects/*/triggers"),
    "gitlab_user_runner": ("POST user/runners", "GET runners/*", "PUT runners/*", "DELETE runners/*"),
    "gitlab_project_runner_enablement": ("POST projects/*/runners", "DELETE projects/*/runners/*"),
    "gitlab_branch": ("POST projects/*/repository/branches", "GET projects/*/repository/branches/*"),
    "gitlab_project_tag": ("POST projects/*/repository/tags", "GET projects/*/repository/tags/*"),
    "gitlab_repository_file": _crud("projects/*/repository/files")[1:],
    "gitlab_branch_protection": (
        "POST projects/*/protected_branches",
        "GET projects/*/protected_branches/*",
        "PATCH projects/*/protected_branches/*",
        "DELETE projects/*/protected_branches/*",
    ),
    "gitlab_tag_protection": (
        "POST projects/*/protected_tags",
        "GET projects/*/protected_tags/*",
        "DELETE projects/*/protected_tags/*",
    ),
    "gitlab_project_access_token": (
        "POST projects/*/access_tokens",
        "GET projects/*/access_tokens/*",
        "POST projects/*/access_tokens/*/rotate",
        "DELETE projects/*/access_tokens/*",
    ),
    "gitlab_group_access_token": (
        "POST groups/*/access_tokens",
        "GET groups/*/access_tokens/*",
        "POST groups/*/access_tokens/*/rotate",
        "DELETE groups/*/access_tokens/*",
    ),
    "gitlab_personal_access_token": ("POST users/*/personal_access_tokens", "GET personal_access_tokens/*"),
    "gitlab_deploy_token": (
        "POST projects/*/deploy_tokens",
        "GET projects/*/deploy_tokens",
        "DELETE projects/*/deploy_tokens/*",
    ),
    "gitlab_project_hook": _crud("projects/*/hooks"),
    "gitlab_group_hook": _crud("groups/*/hooks"),
    "gitlab_project_environment": (*_crud("projects/*/environments"), "POST projects/*/environments/*/stop"),
    "gitlab_project_job_token_scope": (
        "POST projects/*/job_token_scope/allowlist",
        "GET projects/*/job_token_scope/allowlist",
        "DELETE projects/*/job_token_scope/allowlist/*",
    ),
    "gitlab_release": _crud("projects/*/releases"),
    "gitlab_application_settings": ("GET application/settings", "PUT application/settings"),
    "gitlab_project_share_group": ("POST projects/*/share",),
    "gitlab_integration_slack": ("PUT projects/*/integrations/slack",),
    "gitlab_deploy_key": _crud("projects/*/deploy_keys"),
    "gitlab_project_protected_environment": ("POST projects/*/protected_environments",),
    "gitlab_label": _crud("projects/*/labels"),
    "gitlab_project_issue": _crud("projects/*/issues"),
    "gitlab_cluster_agent": ("POST projects/*/cluster_agents",),
}
"""The calls that the resources of the Terraform provider need."""


def read_calls() -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """Return the versions of the clients, and for each call the names of the clients that make it."""
    head, *lines = CALLS_FILE.read_text().splitlines()
    versions = dict(word.split("=") for word in head.removeprefix("# ").split())
    calls = {}
    for line in lines:
        method, path, clients = line.split(" ")
        calls[f"{method} {path}"] = frozenset(clients.split(","))
    return versions, calls


class Endpoints:
    """The endpoints of a cell, to look up whether it answers a call such as `GET projects/*/jobs`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._patterns: dict[str, list[re.Pattern[str]]] = {}
        for path, operations in document["paths"].items():
            if path.startswith(_PREFIX):
                text = re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(path.removeprefix(_PREFIX)))
                for method in operations:
                    self._patterns.setdefault(method.upper(), []).append(re.compile(text))

    def has(self, call: str) -> bool:
        method, _, path = call.partition(" ")
        method = "GET" if method == "HEAD" else method
        return any(pattern.fullmatch(path) for pattern in self._patterns.get(method, ()))


def area_of(call: str) -> str:
    """Return the part of the API that a call belongs to, such as `projects/:id/jobs`."""
    words = call.partition(" ")[2].split("/")
    if words[0] in _SCOPED and len(words) > 2:
        return f"{words[0]}/:id/{words[2]}"
    return words[0]


def library_texts(endpoints: Endpoints) -> tuple[str, str, str]:
    """Return the table of areas that work at least in part, the calls absent in them, and the list of absent areas."""
    versions, calls = read_calls()
    areas: dict[str, list[str]] = {}
    for call in calls:
        areas.setdefault(area_of(call), []).append(call)
    names = list(versions)
    rows = [
        f"| part of the API | {' | '.join(f'{name} {versions[name]}' for name in names)} |",
        "|---|" + "---|" * len(names),
    ]
    absent, absent_in_part = [], []
    for area, of_area in sorted(areas.items()):
        missing = [call for call in of_area if not endpoints.has(call)]
        if len(missing) == len(of_area):
            absent.append(f"`{area}`")
            continue
        if missing:
            absent_in_part.append(f"`{area}`\n:   {_list_paths(missing, of_area)}")
        cells = []
        for name in names:
            made = [call for call in of_area if name in calls[call]]
            cells.append(f"{sum(map(endpoints.has, made))} of {len(made)}" if made else "")
        rows.append(f"| `{area}` | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n", "\n".join(absent_in_part), wrap_list(absent)


def _list_paths(missing: Iterable[str], calls: Iterable[str]) -> str:
    """Return the paths of the missing calls, wrapped for a definition; with the methods if others of the path work."""
    methods: dict[str, list[str]] = {}
    for call in missing:
        method, _, path = call.partition(" ")
        methods.setdefault(path, []).append(method)
    words = []
    for path, names in sorted(methods.items()):
        is_partial = any(call.endswith(f" {path}") for call in calls if call not in missing)
        words.append(f"`{' '.join(sorted(names))} {path}`" if is_partial else f"`{path}`")
    return wrap_list(words, width=112).rstrip().replace("\n", "\n    ") + "\n"


def program_section(title: str, kind: str, programs: Mapping[str, Iterable[str]], endpoints: Endpoints) -> str:
    """Return a table of commands or resources: whether they work, or which calls are missing."""
    rows = [f"| {kind} | works |", "|---|---|"]
    for name, needed in programs.items():
        missing = [call for call in needed if not endpoints.has(call)]
        rows.append(f"| `{name}` | {'no: ' + ', '.join(f'`{call}`' for call in missing[:2]) if missing else 'yes'} |")
    return f"## {title}\n\n" + "\n".join(rows) + "\n"


def wrap_list(words: Iterable[str], width: int = 116) -> str:
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) + 2 > width:
            lines.append(line.rstrip())
            line = ""
        line += f"{word}, "
    return "\n".join([*lines, line.rstrip(", ") + "."]) + "\n"
