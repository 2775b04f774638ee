"""Reads `environment`, `release`, `secrets`, `id_tokens` and `pages` of a job.

Variables in them are expanded when the job is created or runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remuda.pipeline.errors import Report
from remuda.pipeline.keywords.variables import check_name
from remuda.pipeline.spec import Environment
from remuda.pipeline.syntax.known_keys import ASSETS, ENVIRONMENT, ID_TOKEN, LINK, PAGES, RELEASE, SECRET
from remuda.pipeline.syntax.tree import Entry, Items, Node, Scalar, Table, plain
from remuda.pipeline.syntax.typed_values import (
    Fields,
    inside,
    mistyped,
    read_choice,
    read_duration,
    read_flag,
    read_one_or_more,
    read_table,
    read_text,
    read_texts,
)

ACTIONS = ("start", "prepare", "stop", "verify", "access")
TIERS = ("production", "staging", "testing", "development", "other")
MAX_NAME = 255
LINK_TYPES = ("runbook", "package", "image", "other")

# The engine of a Vault path without one.
_ENGINE = {"name": "kv-v2", "path": "kv-v2"}


def read_environment(report: Report, node: Node, path: str) -> Environment | None:
    """A name, or a map with one."""
    if isinstance(node, Scalar):
        name = read_name(report, node, path)
        return None if name is None else Environment(name=name)
    entries = read_table(report, node, path, ENVIRONMENT)
    fields = Fields(report, entries, path)
    action = fields.read("action", read_choice, ACTIONS)
    tier = fields.read("deployment_tier", read_choice, TIERS)
    auto_stop = entries.get("auto_stop_in")
    if auto_stop and not (isinstance(auto_stop.value, Scalar) and "$" in auto_stop.value.text):
        read_duration(report, auto_stop.value, inside(path, "auto_stop_in"), also=("never",))
    url, on_stop = fields.read("url", read_text), fields.read("on_stop", read_text)
    name = fields.read("name", read_name)
    if "name" not in entries:
        if isinstance(node, Table):
            report.add(node, path, 'has no "name"', "name the environment")
        return None
    return Environment(
        name=name or "",
        url=url or "",
        on_stop=on_stop or "",
        action=action or "start",
        auto_stop_in=auto_stop.value.text if auto_stop and isinstance(auto_stop.value, Scalar) else "",
        deployment_tier=tier or "",
    )


def read_name(report: Report, node: Node, path: str) -> str | None:
    """The name of an environment or a resource group. The length of a name with variables is checked later."""
    name = read_text(report, node, path)
    if name is not None and "$" not in name and len(name) > MAX_NAME:
        report.add(node, path, f"a name has at most {MAX_NAME} characters", "shorten it")
    return name


def read_release(report: Report, node: Node, path: str) -> dict[str, Any] | None:
    """The release that the job makes when it succeeds."""
    entries = read_table(report, node, path, RELEASE)
    fields = Fields(report, entries, path)
    release: dict[str, Any] = {
        key: fields.read(key, read_text)
        for key in ("tag_name", "tag_message", "name", "description", "ref", "released_at")
        if key in entries
    }
    if isinstance(node, Table):
        for key in ("tag_name", "description"):
            if key not in node.entries:
                report.add(node, path, f'has no "{key}"', "give it one")
    if "milestones" in entries:
        release["milestones"] = list(fields.read("milestones", read_one_or_more) or ())
    if "assets" in entries:
        release["assets"] = {"links": fields.read("assets", _links)}
    return release or None


def _links(report: Report, node: Node, path: str) -> list[dict[str, str]]:
    entries = read_table(report, node, path, ASSETS)
    if "links" not in entries:
        return []
    links, where = entries["links"].value, inside(path, "links")
    if not isinstance(links, Items):
        mistyped(report, links, where, "a list of maps")
        return []
    texts = [read_texts(report, item, where, LINK, need=("name", "url")) for item in links.items]
    for item, link in zip(links.items, texts, strict=True):
        if link.get("link_type", "other") not in LINK_TYPES:
            report.add(item, inside(where, "link_type"), f"must be one of: {', '.join(LINK_TYPES)}")
    return texts


def _by_variable(report: Report, node: Node, path: str) -> Iterator[tuple[str, str, Entry]]:
    """The name of each variable, its path for mistakes, and its entry."""
    if not isinstance(node, Table):
        mistyped(report, node, path, "a map of variables")
        return
    for name, entry in node.entries.items():
        where = inside(path, name)
        check_name(report, entry.key, where)
        yield name, where, entry


def read_secrets(report: Report, node: Node, path: str) -> dict[str, dict[str, Any]]:
    """Secrets by variable. The settings of a provider are passed on as they are written."""
    secrets: dict[str, dict[str, Any]] = {}
    for name, where, entry in _by_variable(report, node, path):
        entries = read_table(report, entry.value, where, SECRET)
        providers = [key for key in entries if key not in ("file", "token")]
        if isinstance(entry.value, Table) and len(providers) != 1:
            message = "must name one provider" if not providers else "names more than one provider"
            report.add(entry.value, where, message, 'such as "vault"')
        secret: dict[str, Any] = {"file": True}
        if "file" in entries:
            secret["file"] = read_flag(report, entries["file"].value, inside(where, "file")) is not False
        if "token" in entries:
            secret["token"] = read_text(report, entries["token"].value, inside(where, "token"))
        for provider in providers:
            value = entries[provider].value
            secret[provider] = _vault(report, value, inside(where, provider)) if provider == "vault" else plain(value)
        secrets[name] = secret
    return secrets


def _vault(report: Report, node: Node, path: str) -> object:
    if isinstance(node, Table):
        return plain(node)
    text = read_text(report, node, path)
    if text is None:
        return None
    where, _, engine = text.partition("@")
    secret, slash, field = where.rpartition("/")
    if not slash:
        report.add(node, path, "must have a path and a field", "write it like production/db/password@ops")
    return {"engine": {**_ENGINE, "path": engine or _ENGINE["path"]}, "path": secret, "field": field}


def read_id_tokens(report: Report, node: Node, path: str) -> dict[str, dict[str, Any]]:
    """The audience of each token, by variable."""
    tokens: dict[str, dict[str, Any]] = {}
    for name, where, entry in _by_variable(report, node, path):
        entries = read_table(report, entry.value, where, ID_TOKEN)
        if "aud" not in entries:
            if isinstance(entry.value, Table):
                report.add(entry.value, where, 'has no "aud"', "say who the token is for")
            continue
        audience = read_one_or_more(report, entries["aud"].value, inside(where, "aud")) or ()
        tokens[name] = {"aud": audience[0] if len(audience) == 1 else list(audience)}
    return tokens


def read_pages(report: Report, node: Node, path: str) -> dict[str, Any] | None:
    """`pages` of a job: true, or a map with `publish`, `path_prefix` and `expire_in`."""
    if isinstance(node, Scalar):
        return {} if read_flag(report, node, path) else None
    entries = read_table(report, node, path, PAGES)
    if "expire_in" in entries:
        read_duration(report, entries["expire_in"].value, inside(path, "expire_in"), also=("never",))
    texts: dict[str, Any] = {
        key: read_text(report, entries[key].value, inside(path, key)) or ""
        for key in ("publish", "path_prefix")
        if key in entries
    }
    if "expire_in" in entries and isinstance(expire := entries["expire_in"].value, Scalar):
        texts["expire_in"] = expire.text
    return texts
