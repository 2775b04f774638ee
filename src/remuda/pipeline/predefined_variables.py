"""GitLab's predefined CI/CD variables of a server, a project, a commit, a tag and a merge request.

The cell and `remuda run` both use them, so that rules give the same result in both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

MAX_MESSAGE_BYTES = 100_000
"""Longer commit messages are cut: Linux limits the length of one variable."""
MAX_DESCRIPTION = 2700
SOURCE_BRANCH = "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME"
TARGET_BRANCH = "CI_MERGE_REQUEST_TARGET_BRANCH_NAME"
LABELS = "CI_MERGE_REQUEST_LABELS"
ASSIGNEES = "CI_MERGE_REQUEST_ASSIGNEES"
MILESTONE = "CI_MERGE_REQUEST_MILESTONE"
DRAFT = "CI_MERGE_REQUEST_DRAFT"
TITLE = "CI_MERGE_REQUEST_TITLE"
DESCRIPTION = "CI_MERGE_REQUEST_DESCRIPTION"
OPEN_MERGE_REQUESTS = "CI_OPEN_MERGE_REQUESTS"
IMAGE_PROXY = "docker.io"
"""The default for images that a file takes through GitLab's dependency proxy: they come from Docker Hub itself."""
PAGES_DOMAIN = "pages.localhost"
"""The default domain in the addresses of the projects' sites."""

_SHORT_TITLE = 100
_PREDEFINED = re.compile(r"CI|(CI|GITLAB)_[A-Za-z0-9_]*")


def is_predefined(name: str) -> bool:
    """True if the name is reserved, such as `CI_...`. A pipeline file may set it nevertheless."""
    return _PREDEFINED.fullmatch(name) is not None


@lru_cache(maxsize=1024)
def slug(text: str) -> str:
    """Convert a text for host names: lower case, at most 63 characters, only letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]", "-", text.lower())[:63].strip("-")


def word(true: bool) -> str:
    return "true" if true else "false"


def of_server(url: str) -> dict[str, str]:
    """Return the CI_SERVER_* and other variables that follow from the server's URL, which has no slash at its end."""
    server = urlsplit(url)
    scheme = server.scheme or "http"
    return {
        "CI_SERVER_URL": url,
        "CI_SERVER_HOST": server.hostname or "",
        "CI_SERVER_FQDN": server.netloc,
        "CI_SERVER_PORT": str(server.port or (443 if scheme == "https" else 80)),
        "CI_SERVER_PROTOCOL": scheme,
        "CI_SERVER_SHELL_SSH_HOST": server.hostname or "",
        "CI_SERVER_SHELL_SSH_PORT": "22",
        "CI_API_V4_URL": f"{url}/api/v4",
        "CI_API_GRAPHQL_URL": f"{url}/api/graphql",
        "CI_TEMPLATE_REGISTRY_HOST": "registry.gitlab.com",
        # As in GitLab without a license.
        "GITLAB_FEATURES": "",
    }


def of_image_proxy(prefix: str) -> dict[str, str]:
    """Return the variables with which files take images through GitLab's dependency proxy: prefixes of image names."""
    return {
        "CI_DEPENDENCY_PROXY_GROUP_IMAGE_PREFIX": prefix,
        "CI_DEPENDENCY_PROXY_DIRECT_GROUP_IMAGE_PREFIX": prefix,
    }


def of_pages(domain: str, *, path: str, server: str) -> dict[str, str]:
    """Return the CI_PAGES_* variables of the project `path`; empty without a `domain`. Sites use the scheme of the
    server's URL."""
    if not domain:
        return {}
    namespace, _, rest = path.partition("/")
    host = f"{namespace.lower()}.{domain}"
    address = f"{urlsplit(server).scheme or 'http'}://{host}"
    # A project that is named like the host is the site of the whole namespace.
    url = address if rest.lower() == host else f"{address}/{rest}"
    return {"CI_PAGES_DOMAIN": domain, "CI_PAGES_HOSTNAME": host, "CI_PAGES_URL": url}


def of_project(*, path: str, url: str, number: int, title: str) -> dict[str, str]:
    """Return the CI_PROJECT_* variables. `url` is the project's URL, `number` its id."""
    namespace, _, name = path.rpartition("/")
    return {
        "CI_PROJECT_ID": str(number),
        "CI_PROJECT_NAME": name,
        "CI_PROJECT_TITLE": title,
        "CI_PROJECT_PATH": path,
        "CI_PROJECT_PATH_SLUG": slug(path),
        "CI_PROJECT_NAMESPACE": namespace,
        "CI_PROJECT_NAMESPACE_SLUG": slug(namespace),
        "CI_PROJECT_ROOT_NAMESPACE": namespace.partition("/")[0],
        "CI_PROJECT_ROOT_NAMESPACE_SLUG": slug(namespace.partition("/")[0]),
        "CI_PROJECT_URL": url,
        "CI_PROJECT_VISIBILITY": "private",
        # Neither is known here.
        "CI_PROJECT_TOPICS": "",
        "CI_PROJECT_REPOSITORY_LANGUAGES": "",
    }


def of_commit(*, message: str, author: str, timestamp: str) -> dict[str, str]:
    message = message.strip("\n")
    short = _cut(message)
    title, _, rest = short.partition("\n")
    return {
        "CI_COMMIT_MESSAGE": short,
        "CI_COMMIT_MESSAGE_IS_TRUNCATED": word(short != message),
        "CI_COMMIT_TITLE": title,
        # As in GitLab, the whole message if the title is long.
        "CI_COMMIT_DESCRIPTION": rest.strip("\n") if len(title) < _SHORT_TITLE else short,
        "CI_COMMIT_AUTHOR": author,
        "CI_COMMIT_TIMESTAMP": timestamp,
    }


def of_tag(message: str) -> dict[str, str]:
    """Return CI_COMMIT_TAG_MESSAGE, shortened if it is long; empty for a lightweight tag."""
    return {"CI_COMMIT_TAG_MESSAGE": _cut(message)}


def is_draft(title: str) -> bool:
    """True if the title of a merge request says that it is a draft."""
    return title.lower().startswith(("draft:", "[draft]", "(draft)"))


def mark_draft(title: str) -> str:
    """Return the title of a merge request with the mark of a draft, unless it has one."""
    return title if is_draft(title) else f"Draft: {title}"


def of_merge_request(
    *,
    iid: int,
    project: dict[str, str],
    source: str,
    target: str,
    default_branch: str,
    base_sha: str = "",
    title: str = "",
    others: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the CI_MERGE_REQUEST_* variables; `project` is the result of `of_project`. `others`: the whole
    DESCRIPTION, and LABELS, ASSIGNEES and MILESTONE, which exist only if they are not empty."""
    description = (others or {}).get(DESCRIPTION, "")
    place = {name: project[f"CI_{name}"] for name in ("PROJECT_ID", "PROJECT_PATH", "PROJECT_URL")}
    values = {
        # Merge requests are not stored, so there is no global id.
        "ID": str(iid),
        "IID": str(iid),
        "REF_PATH": f"refs/merge-requests/{iid}/head",
        "EVENT_TYPE": "detached",
        "TITLE": title,
        "DESCRIPTION": description[:MAX_DESCRIPTION],
        "DESCRIPTION_IS_TRUNCATED": word(len(description) > MAX_DESCRIPTION),
        "DRAFT": word(is_draft(title)),
        **place,
        **{f"SOURCE_{name}": value for name, value in place.items()},
        "SOURCE_BRANCH_NAME": source,
        "SOURCE_BRANCH_PROTECTED": word(source == default_branch),
        # As in GitLab, empty unless the pipeline is for the merged result.
        "SOURCE_BRANCH_SHA": "",
        "TARGET_BRANCH_NAME": target,
        "TARGET_BRANCH_PROTECTED": word(target == default_branch),
        "TARGET_BRANCH_SHA": "",
        "DIFF_BASE_SHA": base_sha,
    }
    return {
        **{f"CI_MERGE_REQUEST_{name}": value for name, value in values.items()},
        **{name: value for name, value in (others or {}).items() if value and name != DESCRIPTION},
        OPEN_MERGE_REQUESTS: f"{place['PROJECT_PATH']}!{iid}",
    }


def _cut(message: str) -> str:
    return message.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")
