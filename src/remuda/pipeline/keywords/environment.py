"""Reads `environment`, `release`, `secrets`, `id_tokens` and `pages` of a job; their variables are expanded later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from remuda.lib.clock import parse_shown_time
from remuda.pipeline.errors import Report, quote
from remuda.pipeline.keywords.variables import check_name
from remuda.pipeline.spec import Environment
from remuda.pipeline.syntax.known_keys import ASSETS, ENVIRONMENT, ID_TOKEN, LINK, PAGES, RELEASE, SECRET
from remuda.pipeline.syntax.tree import Entry, Items, Node, Scalar, Table, plain
from remuda.pipeline.syntax.typed_values import (
    inside,
    is_text,
    mistyped,
    read_any_number,
    read_duration,
    read_fields,
    read_flag,
    read_table,
    read_text,
    read_text_or_empty,
    read_texts,
)

ACTIONS = ("start", "prepare", "stop", "verify", "access")
TIERS = ("production", "staging", "testing", "development", "other")
MAX_NAME = 255
MAX_URL = 255
_NAME = re.compile(r"[\w ${}.-](?:[\w ${}./-]*[\w ${}.-])?", re.ASCII)
LINK_TYPES = ("runbook", "package", "image", "other")

# The engine of a Vault path without one.
_ENGINE = {"name": "kv-v2", "path": "kv-v2"}


def read_environment(report: Report, node: Node, path: str) -> Environment | None:
    """Read `environment`: a name, or a map with a `name`. None, with a mistake reported, if there is no name."""
    if isinstance(node, Scalar):
        name = _read_environment_name(report, node, path)
        return None if name is None else Environment(name=name)
    fields = read_fields(report, node, path, ENVIRONMENT)
    environment = Environment(
        name=fields.read("name", _read_environment_name) or "",
        url=fields.text_or_empty("url") or "",
        on_stop=fields.text("on_stop") or "",
        action=fields.choice("action", ACTIONS) or "start",
        auto_stop_in=fields.read("auto_stop_in", _duration_or_variable) or "",
        deployment_tier=fields.choice("deployment_tier", ("", *TIERS)) or "",
    )
    if len(environment.url) > MAX_URL:
        fields.refuse_value("url", f"has more than {MAX_URL} characters", "shorten it")
    if "name" in fields:
        return environment
    if isinstance(node, Table):
        report.add(node, path, 'has no "name"', "name the environment")
    return None


def _duration_or_variable(report: Report, node: Node, path: str) -> str:
    is_free = isinstance(node, Scalar) and ("$" in node.text or (is_text(node) and not node.text))
    return node.text if isinstance(node, Scalar) and is_free else _expire_in(report, node, path) or ""


def _read_environment_name(report: Report, node: Node, path: str) -> str | None:
    name = read_text(report, node, path)
    _check_length(report, node, path, name or "")
    if name is not None and not _NAME.fullmatch(name):
        message = f"{quote(name)} is not a name for an environment"
        report.add(node, path, message, "use letters, digits, spaces and -_/.${}, no / at the beginning and the end")
    return name


def read_resource_group(report: Report, node: Node, path: str) -> str | None:
    name = read_text_or_empty(report, node, path)
    _check_length(report, node, path, name or "")
    return name


def _check_length(report: Report, node: Node, path: str, name: str) -> None:
    """Report the name of an environment or resource group that is too long, unless it contains variables."""
    if "$" not in name and len(name) > MAX_NAME:
        report.add(node, path, f"a name has at most {MAX_NAME} characters", "shorten it")


def read_release(report: Report, node: Node, path: str) -> dict[str, Any] | None:
    """Read `release`, which is created when the job succeeds. Returns its values by keyword."""
    fields = read_fields(report, node, path, RELEASE)
    release: dict[str, Any] = {key: fields.text(key) for key in ("tag_name", "description", "ref") if key in fields}
    release |= {key: text for key in ("tag_message", "name") if (text := fields.text_or_empty(key))}
    if "released_at" in fields:
        release["released_at"] = fields.read("released_at", _time)
    if isinstance(node, Table):
        _require(report, node, path, ("tag_name", "description"))
    if "milestones" in fields:
        release["milestones"] = list(fields.read("milestones", read_any_number) or ())
    if "assets" in fields:
        release["assets"] = {"links": fields.read("assets", _links)}
    return release or None


def _time(report: Report, node: Node, path: str) -> str | None:
    text = read_text(report, node, path)
    try:
        if text and "$" not in text:
            parse_shown_time(text)
    except ValueError:
        report.add(node, path, f"{quote(text or '')} is no time", "write it like 2026-01-31T08:00:00Z")
    return text


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
    """Yield, for each variable in a map, its name, its path for messages, and its entry. Reports invalid names."""
    if not isinstance(node, Table):
        mistyped(report, node, path, "a map of variables")
        return
    for name, entry in node.entries.items():
        where = inside(path, name)
        check_name(report, entry.key, where)
        yield name, where, entry


def read_secrets(report: Report, node: Node, path: str) -> dict[str, dict[str, Any]]:
    """Return the secrets by variable name. A text as `vault` becomes a map; other provider settings are unchecked."""
    secrets: dict[str, dict[str, Any]] = {}
    for name, where, entry in _by_variable(report, node, path):
        fields = read_fields(report, entry.value, where, SECRET)
        providers = [key for key in fields if key not in ("file", "token")]
        if isinstance(entry.value, Table) and len(providers) != 1:
            message = "must name one provider" if not providers else "names more than one provider"
            report.add(entry.value, where, message, 'such as "vault"')
        secret: dict[str, Any] = {"file": fields.flag("file") is not False}
        if token := fields.text_or_empty("token"):
            secret["token"] = token
        for provider in providers:
            secret[provider] = fields.read(provider, _vault if provider == "vault" else _as_written)
        secrets[name] = secret
    return secrets


def _as_written(_report: Report, node: Node, _path: str) -> object:
    return plain(node)


def _vault(report: Report, node: Node, path: str) -> object:
    if isinstance(node, Table):
        _require(report, node, path, ("engine", "path", "field"))
        if "engine" in node.entries:
            place, value = inside(path, "engine"), node.entries["engine"].value
            if isinstance(value, Table):
                _require(report, value, place, ("name", "path"))
            else:
                mistyped(report, value, place, "a map")
        return plain(node)
    text = read_text(report, node, path)
    if text is None:
        return None
    where, _, engine = text.partition("@")
    secret, slash, field = where.rpartition("/")
    if not slash:
        report.add(node, path, "must have a path and a field", "write it like production/db/password@ops")
    return {"engine": {**_ENGINE, "path": engine or _ENGINE["path"]}, "path": secret, "field": field}


def _require(report: Report, table: Table, path: str, keys: tuple[str, ...]) -> None:
    for key in keys:
        if key not in table.entries:
            report.add(table, path, f"has no {quote(key)}", "give it one")


def read_id_tokens(report: Report, node: Node, path: str) -> dict[str, dict[str, Any]]:
    """Return the audience (`aud`) of each token, by the name of its variable."""
    tokens: dict[str, dict[str, Any]] = {}
    for name, where, entry in _by_variable(report, node, path):
        fields = read_fields(report, entry.value, where, ID_TOKEN)
        if "aud" in fields:
            audience = fields.one_or_more("aud") or ()
            tokens[name] = {"aud": audience[0] if len(audience) == 1 else list(audience)}
        elif isinstance(entry.value, Table):
            report.add(entry.value, where, 'has no "aud"', "say who the token is for")
    return tokens


def read_pages(report: Report, node: Node, path: str) -> dict[str, Any] | None:
    """Read `pages`: `true`, or a map with `publish`, `path_prefix` and `expire_in`. Returns None for `false`."""
    if isinstance(node, Scalar):
        return {} if read_flag(report, node, path) else None
    fields = read_fields(report, node, path, PAGES)
    texts: dict[str, Any] = {
        key: fields.text_or_empty(key) or "" for key in ("publish", "path_prefix") if key in fields
    }
    if (expire_in := fields.read("expire_in", _duration_or_variable)) is not None:
        texts["expire_in"] = expire_in
    return texts


def _expire_in(report: Report, node: Node, path: str) -> str | None:
    read_duration(report, node, path, also=("never",))
    if not isinstance(node, Scalar):
        return None
    return node.text.lower() if node.text.lower() == "never" else node.text
