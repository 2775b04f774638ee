"""Reads the keywords that both `default` and a job can have. A job's value replaces the default's as a whole."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from remuda.pipeline.errors import Report
from remuda.pipeline.keywords.artifacts import read_artifacts, read_cache
from remuda.pipeline.keywords.environment import read_id_tokens
from remuda.pipeline.keywords.image import read_image, read_services
from remuda.pipeline.rules.clauses import Judge
from remuda.pipeline.spec import Artifacts
from remuda.pipeline.syntax.known_keys import HOOKS, RETRY, RETRY_WHEN
from remuda.pipeline.syntax.tree import Entry, Node, Table
from remuda.pipeline.syntax.typed_values import (
    Fields,
    inside,
    read_choices,
    read_duration,
    read_fields,
    read_integer,
    read_numbers,
    read_script,
    read_table,
)

MAX_RETRIES = 2
TAGS_LIMIT = 50
"""As in GitLab, a job must have fewer tags than this."""
MAX_TIMEOUT = "1 month"


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    max: int = 0
    when: tuple[str, ...] = ("always",)
    exit_codes: tuple[int, ...] = ()


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The keywords that a job can inherit from `default`. None: the keyword is absent."""

    before_script: tuple[str, ...] | None = None
    after_script: tuple[str, ...] | None = None
    artifacts: Artifacts | None = None
    tags: tuple[str, ...] | None = None
    timeout_seconds: int | None = None
    retry: Retry | None = None
    image: dict[str, Any] | None = None
    services: tuple[dict[str, Any], ...] | None = None
    cache: tuple[dict[str, Any], ...] | None = None
    hooks: tuple[dict[str, Any], ...] | None = None
    interruptible: bool | None = None
    id_tokens: dict[str, dict[str, Any]] | None = None

    def over(self, other: Shared) -> Shared:
        """Return a copy in which keywords absent here are taken from `other`. Lists and maps are not merged."""
        own = {field: getattr(self, field) for field in self.__struct_fields__}
        return msgspec.structs.replace(other, **{k: v for k, v in own.items() if v is not None})

    def only(self, keys: Container[str]) -> Shared:
        fields = {field: getattr(self, field) for field in self.__struct_fields__}
        return Shared(**{field: value for field, value in fields.items() if field.removesuffix("_seconds") in keys})


def read_shared(report: Report, entries: Mapping[str, Entry], path: str, judge: Judge) -> Shared:
    fields = Fields(report, entries, path)
    return Shared(
        before_script=fields.read("before_script", read_script),
        after_script=fields.read("after_script", read_script),
        artifacts=fields.read("artifacts", read_artifacts),
        tags=_tags(fields),
        timeout_seconds=fields.read("timeout", read_duration, MAX_TIMEOUT),
        retry=fields.read("retry", _retry),
        image=fields.read("image", read_image),
        services=fields.read("services", read_services),
        cache=fields.read("cache", read_cache, judge),
        hooks=fields.read("hooks", _hooks),
        interruptible=fields.flag("interruptible"),
        id_tokens=fields.read("id_tokens", read_id_tokens),
    )


def _tags(fields: Fields) -> tuple[str, ...] | None:
    tags = fields.strings("tags")
    if len(tags or ()) >= TAGS_LIMIT:
        fields.refuse_value("tags", f"a job has fewer than {TAGS_LIMIT} tags", "use fewer")
    return tags


def _retry(report: Report, node: Node, path: str) -> Retry:
    if not isinstance(node, Table):
        return Retry(max=read_integer(report, node, path, low=0, high=MAX_RETRIES) or 0)
    fields = read_fields(report, node, path, RETRY)
    codes = fields.read("exit_codes", read_numbers, 0, 999_999_999) or ()
    return Retry(
        max=fields.read("max", read_integer, 0, MAX_RETRIES) or 0,
        when=fields.read("when", read_choices, RETRY_WHEN) or (() if codes and "when" not in fields else ("always",)),
        exit_codes=codes,
    )


def _hooks(report: Report, node: Node, path: str) -> tuple[dict[str, Any], ...]:
    hooks: list[dict[str, Any]] = []
    for name, entry in read_table(report, node, path, HOOKS).items():
        script = read_script(report, entry.value, inside(path, name))
        hooks.append({"name": name, "script": list(script or ())})
    return tuple(hooks)
