"""Reads `cache` and `artifacts` of `default` and of jobs.

Caches are converted to the form in which runners receive them. `cache:key:files` becomes a hash of the contents of
those files, so that the same contents give the same key on every branch; without such files the key is `default`.
`files_commits` does the same: contents and last commit of a file change together."""

from __future__ import annotations

import hashlib
import re
from typing import Any, cast

from remuda.pipeline.errors import Report, quote
from remuda.pipeline.rules.clauses import Judge
from remuda.pipeline.spec import Artifacts, ArtifactsWhen
from remuda.pipeline.syntax.durations import parse_duration
from remuda.pipeline.syntax.known_keys import ARTIFACTS, CACHE, CACHE_KEY, COVERAGE_REPORT, REPORTS
from remuda.pipeline.syntax.tree import Items, Node, Scalar, Table, flatten, items_of
from remuda.pipeline.syntax.typed_values import (
    Fields,
    inside,
    mistyped,
    read_any_number,
    read_choice,
    read_fields,
    read_table,
    read_text_or_empty,
)

MAX_CACHES = 4
MAX_KEY_FILES = 2
"""How many files GitLab takes; more cause a warning."""
MAX_FALLBACK_KEYS = 5
MAX_EXPOSED_NAME = 100
COVERAGE_FORMATS = ("cobertura", "jacoco")

_WHEN = ("on_success", "on_failure", "always")
_POLICIES = ("pull-push", "pull", "push")
_ACCESS = ("all", "developer", "maintainer", "none")
_DEFAULT_KEY = "default"
_EXPOSED_NAME = re.compile(rf"\w[-\w ]{{0,{MAX_EXPOSED_NAME - 1}}}", re.ASCII)


def read_cache(report: Report, node: Node, path: str, judge: Judge) -> tuple[dict[str, Any], ...]:
    """Read one cache or a list, which may be nested, to the form that runners receive. `judge` hashes the files of
    `cache:key:files`."""
    if len(items_of(node)) > MAX_CACHES:
        report.add(node, path, f"a job has at most {MAX_CACHES} caches", "use fewer")
    return tuple(cache for each in flatten(node) if (cache := _cache(report, each, path, judge)))


def _cache(report: Report, node: Node, path: str, judge: Judge) -> dict[str, Any]:
    fields = read_fields(report, node, path, CACHE)
    if not fields:
        return {}
    cache: dict[str, Any] = {
        "key": fields.read("key", _key, judge) or _DEFAULT_KEY,
        "untracked": fields.flag("untracked") or False,
        "policy": fields.read("policy", _policy) or _POLICIES[0],
        "paths": list(fields.strings("paths") or ()),
        "when": fields.choice("when", _WHEN) or _WHEN[0],
        "fallback_keys": list(fields.strings("fallback_keys") or ()),
    }
    if len(cache["fallback_keys"]) > MAX_FALLBACK_KEYS:
        fields.refuse_value("fallback_keys", f"at most {MAX_FALLBACK_KEYS} keys")
    if fields.flag("unprotect"):
        cache["unprotect"] = True
    return cache


def _policy(report: Report, node: Node, path: str) -> str:
    # The runner expands variables.
    if isinstance(node, Scalar) and node.kind == "text" and "$" in node.text:
        return node.text
    return read_choice(report, node, path, ("", *_POLICIES)) or _POLICIES[0]


def _key(report: Report, node: Node, path: str, judge: Judge) -> str:
    if not isinstance(node, Table):
        key = (
            node.text if isinstance(node, Scalar) and node.kind == "number" else read_text_or_empty(report, node, path)
        )
        if key and (key.strip(".") == "" or "/" in key or "%2f" in key.lower()):
            report.add(node, path, f"{quote(key)} is not a key: it has a / or only dots", "use a plain name")
        return key or _DEFAULT_KEY
    fields = read_fields(report, node, path, CACHE_KEY)
    prefix = fields.text_or_empty("prefix")
    key = "files_commits" if "files_commits" in fields else "files"
    if key == "files_commits" and "files" in fields:
        fields.refuse_key(key, '"files" and "files_commits" do not go together', "keep one")
    if key not in fields:
        if key not in node.entries:
            report.add(node, path, 'has no "files"', "name the files the key is made from")
        return prefix or _DEFAULT_KEY
    files = fields.strings(key) or ()
    value = node.entries[key].value
    if not files and isinstance(value, Items):
        fields.refuse_value(key, "names no files", "name the files the key is made from")
    if len(files) > MAX_KEY_FILES:
        message = f"names {len(files)} files, and GitLab takes at most {MAX_KEY_FILES}"
        report.warn(value, inside(path, key), message, "use a pattern, or choose the ones that matter")
    contents = "".join(judge.contents_of(files, value))
    digest = hashlib.sha1(contents.encode()).hexdigest() if contents else _DEFAULT_KEY
    return f"{prefix}-{digest}" if prefix else digest


def read_artifacts(report: Report, node: Node, path: str) -> Artifacts:
    fields = read_fields(report, node, path, ARTIFACTS)
    if "public" in fields and "access" in fields:
        fields.refuse_key("public", '"public" and "access" do not go together', "keep one")
    _check_exposed(fields)
    access, public = fields.choice("access", _ACCESS), fields.flag("public")
    return Artifacts(
        paths=fields.strings("paths") or (),
        exclude=fields.strings("exclude") or (),
        untracked=fields.flag("untracked") or False,
        when=cast(ArtifactsWhen, fields.choice("when", _WHEN) or "on_success"),
        name=fields.text_or_empty("name") or "",
        expire_in=fields.read("expire_in", _expire_in) or "",
        reports=fields.read("reports", _reports) or {},
        expose_as=fields.text("expose_as") or "",
        # `public: false` is GitLab's older form of `access: developer`.
        access=access or ("developer" if public is False else ""),
    )


def _check_exposed(fields: Fields) -> None:
    """Check what `expose_as` requires: a plain name, and paths that name one file or folder each."""
    if "expose_as" not in fields:
        return
    if not _EXPOSED_NAME.fullmatch(fields.text("expose_as") or "_"):
        message = f"must have letters, digits, spaces, - and _ only, at most {MAX_EXPOSED_NAME} of them"
        fields.refuse_value("expose_as", message)
    if "paths" not in fields:
        fields.refuse_key("expose_as", '"expose_as" requires "paths"', "name the files to show")
    elif any("*" in path for path in fields.strings("paths") or ()):
        fields.refuse_value("paths", 'must have no patterns, because of "expose_as"', "name files and folders")


def _expire_in(report: Report, node: Node, path: str) -> str:
    if isinstance(node, Scalar) and node.kind in ("text", "number"):
        if node.text.lower() == "never":
            return "never"
        if parse_duration(node.text) is None:
            report.add(node, path, f"{quote(node.text)} is not a duration", 'write it like "1 week", or "never"')
        return node.text
    mistyped(report, node, path, 'a duration such as "1 week"')
    return ""


def _reports(report: Report, node: Node, path: str) -> dict[str, tuple[str, ...]]:
    paths: dict[str, tuple[str, ...]] = {}
    for kind, entry in read_table(report, node, path, REPORTS).items():
        where = inside(path, kind)
        if kind != "coverage_report":
            if named := read_any_number(report, entry.value, where):
                paths[kind] = named
            continue
        fields = read_fields(report, entry.value, where, COVERAGE_REPORT)
        form, file = fields.choice("coverage_format", COVERAGE_FORMATS), fields.text("path")
        if isinstance(entry.value, Table) and len(fields) < len(COVERAGE_REPORT.works):
            report.add(entry.value, where, 'must have a "coverage_format" and a "path"', "give it both")
        if form and file:
            paths[form] = (file,)
    return paths
