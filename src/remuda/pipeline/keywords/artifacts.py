"""Reads `cache` and `artifacts` of `default` and of jobs.

A cache gets the form of the runner's payload. `cache:key:files` becomes a key that is a hash of the contents of those
files, so that the same contents give the same key on every branch; without such files the key is `default`.
"""

from __future__ import annotations

import hashlib
from typing import Any, cast

from remuda.pipeline.errors import Report, quote
from remuda.pipeline.rules.clauses import Judge
from remuda.pipeline.spec import Artifacts, ArtifactsWhen
from remuda.pipeline.syntax.durations import parse_duration
from remuda.pipeline.syntax.known_keys import ARTIFACTS, CACHE, CACHE_KEY, COVERAGE_REPORT, REPORTS
from remuda.pipeline.syntax.tree import Items, Node, Scalar, Table
from remuda.pipeline.syntax.typed_values import (
    Fields,
    inside,
    mistyped,
    read_choice,
    read_flag,
    read_one_or_more,
    read_strings,
    read_table,
    read_text,
)

MAX_CACHES = 4
MAX_KEY_FILES = 2
MAX_FALLBACK_KEYS = 5
COVERAGE_FORMATS = ("cobertura", "jacoco")

_WHEN = ("on_success", "on_failure", "always")
_POLICIES = ("pull-push", "pull", "push")
_ACCESS = ("all", "developer", "maintainer", "none")
_DEFAULT_KEY = "default"


def read_cache(report: Report, node: Node, path: str, judge: Judge) -> tuple[dict[str, Any], ...]:
    """One cache, or a list of caches."""
    nodes = node.items if isinstance(node, Items) else (node,)
    if len(nodes) > MAX_CACHES:
        report.add(node, path, f"a job has at most {MAX_CACHES} caches", "use fewer")
    return tuple(cache for each in nodes if (cache := _cache(report, each, path, judge)))


def _cache(report: Report, node: Node, path: str, judge: Judge) -> dict[str, Any]:
    entries = read_table(report, node, path, CACHE)
    if not entries:
        return {}
    fields = Fields(report, entries, path)
    cache: dict[str, Any] = {
        "key": fields.read("key", _key, judge) or _DEFAULT_KEY,
        "untracked": fields.read("untracked", read_flag) or False,
        "policy": fields.read("policy", _policy) or _POLICIES[0],
        "paths": list(fields.read("paths", read_strings) or ()),
        "when": fields.read("when", read_choice, _WHEN) or _WHEN[0],
        "fallback_keys": list(fields.read("fallback_keys", read_strings) or ()),
    }
    if len(cache["fallback_keys"]) > MAX_FALLBACK_KEYS:
        report.add(entries["fallback_keys"].value, inside(path, "fallback_keys"), f"at most {MAX_FALLBACK_KEYS} keys")
    if fields.read("unprotect", read_flag):
        cache["unprotect"] = True
    return cache


def _policy(report: Report, node: Node, path: str) -> str:
    # The runner expands variables.
    if isinstance(node, Scalar) and node.kind == "text" and "$" in node.text:
        return node.text
    return read_choice(report, node, path, _POLICIES) or _POLICIES[0]


def _key(report: Report, node: Node, path: str, judge: Judge) -> str:
    if not isinstance(node, Table):
        key = node.text if isinstance(node, Scalar) and node.kind == "number" else read_text(report, node, path)
        if key is not None and (key.strip(".") == "" or "/" in key or "%2f" in key.lower()):
            report.add(node, path, f"{quote(key)} is not a key: it has a / or only dots", "use a plain name")
        return key or _DEFAULT_KEY
    entries = read_table(report, node, path, CACHE_KEY)
    prefix = read_text(report, entries["prefix"].value, inside(path, "prefix")) if "prefix" in entries else None
    if "files" not in entries:
        if "files" not in node.entries:
            report.add(node, path, 'has no "files"', "name the files the key is made from")
        return prefix or _DEFAULT_KEY
    where = inside(path, "files")
    files = read_strings(report, entries["files"].value, where) or ()
    if not 0 < len(files) <= MAX_KEY_FILES:
        report.add(entries["files"].value, where, f"names 1 to {MAX_KEY_FILES} files", "choose the ones that matter")
    contents = "".join(judge.contents_of(files, entries["files"].value))
    digest = hashlib.sha1(contents.encode()).hexdigest() if contents else _DEFAULT_KEY
    return f"{prefix}-{digest}" if prefix else digest


def read_artifacts(report: Report, node: Node, path: str) -> Artifacts:
    """`artifacts` of a job or of `default`."""
    entries = read_table(report, node, path, ARTIFACTS)
    fields = Fields(report, entries, path)
    when = fields.read("when", read_choice, _WHEN)
    access = fields.read("access", read_choice, _ACCESS)
    public = fields.read("public", read_flag)
    if "public" in entries and "access" in entries:
        report.add(
            entries["public"].key, inside(path, "public"), '"public" and "access" do not go together', "keep one"
        )
    return Artifacts(
        paths=fields.read("paths", read_strings) or (),
        exclude=fields.read("exclude", read_strings) or (),
        untracked=fields.read("untracked", read_flag) or False,
        when=cast(ArtifactsWhen, when or "on_success"),
        name=fields.read("name", read_text) or "",
        expire_in=fields.read("expire_in", _expire_in) or "",
        reports=fields.read("reports", _reports) or {},
        expose_as=fields.read("expose_as", read_text) or "",
        # `public: false` is GitLab's older form of `access: developer`.
        access=access or ("developer" if public is False else ""),
    )


def _expire_in(report: Report, node: Node, path: str) -> str:
    if isinstance(node, Scalar) and node.kind in ("text", "number"):
        if node.text != "never" and parse_duration(node.text) is None:
            report.add(node, path, f"{quote(node.text)} is not a duration", 'write it like "1 week", or "never"')
        return node.text
    mistyped(report, node, path, 'a duration such as "1 week"')
    return ""


def _reports(report: Report, node: Node, path: str) -> dict[str, tuple[str, ...]]:
    paths: dict[str, tuple[str, ...]] = {}
    for kind, entry in read_table(report, node, path, REPORTS).items():
        where = inside(path, kind)
        if kind != "coverage_report":
            paths[kind] = read_one_or_more(report, entry.value, where) or ()
            continue
        inner = read_table(report, entry.value, where, COVERAGE_REPORT)
        fields = Fields(report, inner, where)
        form = fields.read("coverage_format", read_choice, COVERAGE_FORMATS)
        file = fields.read("path", read_text)
        if isinstance(entry.value, Table) and len(inner) < len(COVERAGE_REPORT.works):
            report.add(entry.value, where, 'must have a "coverage_format" and a "path"', "give it both")
        if form and file:
            paths[form] = (file,)
    return paths
