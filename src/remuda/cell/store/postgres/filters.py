"""What the lists of people, projects and runners are asked by, in PostgreSQL's words: conditions and their values.

What the filters mean is said in `remuda.cell.values.people`. PostgreSQL refuses to read JSON with a character that its
texts cannot hold, wherever it stands, so that is taken out first: one project's name must not spoil the list of all.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from remuda.cell.store.postgres.access import without_nul
from remuda.cell.values import NAMESPACE_ID, ORGANIZATION_ID
from remuda.cell.values.people import (
    ONLINE_SECONDS,
    STALE_SECONDS,
    NamespaceFilter,
    ProjectFilter,
    RunnerFilter,
    Sight,
    ids_of,
)
from remuda.model.runner import Pool, RunnerType

Conditions = dict[str, Any]

_BODY = r"regexp_replace(convert_from(body, 'UTF8'), '(\\\\)|\\u0000', '\1', 'g')::json"
"""Two backslashes are one that stands for itself, and what follows them is plain text."""


def field(name: str, kind: str = "bigint") -> str:
    """A field of the body; NULL in rows that are older than the field."""
    return f"({_BODY} ->> '{name}')::{kind}"


def _holds(name: str, numbers: str) -> str:
    """Whether a list in the body has one of the numbers."""
    elements = f"json_array_elements_text({_BODY} -> '{name}')"
    return f"EXISTS (SELECT FROM {elements} AS one WHERE one::bigint = ANY({numbers}))"


def _array(numbers: Iterable[int]) -> str:
    """Numbers as SQL; they are numbers, whoever gave them."""
    return f"'{{{', '.join(str(int(number)) for number in sorted(numbers))}}}'::bigint[]"


ORGANIZATION = f"coalesce({field('organization_id')}, {ORGANIZATION_ID})"
IN_NAMESPACE = f"coalesce({field('namespace_id')}, {NAMESPACE_ID})"
_VISIBILITY = f"coalesce({field('visibility', 'text')}, 'private')"
_SEARCH = "strpos(search_text, ?) > 0"


def projects(wanted: ProjectFilter) -> Conditions:
    where: Conditions = {f"{field('removed_at', 'text')} IS {'NOT ' if wanted.removed else ''}NULL": None}
    if wanted.search:
        where[_SEARCH] = searched(wanted.search)
    if wanted.namespace_id is not None:
        where[f"{IN_NAMESPACE} = ?"] = wanted.namespace_id
    if wanted.group_id is not None:
        where[_holds("group_ids", "?::bigint[]")] = [wanted.group_id]
    if wanted.visibility:
        where[f"{_VISIBILITY} = ?"] = wanted.visibility
    if wanted.sight is not None:
        where |= _seen_projects(wanted.sight, membership=wanted.membership)
    return where


def _seen_projects(sight: Sight, *, membership: bool) -> Conditions:
    own = f"id = ANY({_array(sight.project_ids)}) OR {IN_NAMESPACE} = {int(sight.namespace_id)}"
    shown = "" if membership else f" OR {_VISIBILITY} != 'private'"
    return {
        f"{ORGANIZATION} = ?": sight.organization_id,
        f"({own} OR {_holds('group_ids', _array(sight.group_ids))}{shown})": None,
    }


def namespaces(wanted: NamespaceFilter) -> Conditions:
    where: Conditions = {}
    if wanted.search:
        where[_SEARCH] = searched(wanted.search)
    if wanted.parent_id is not None:
        where["parent_id = ?"] = wanted.parent_id
    if wanted.inside is not None:
        where[_holds("above", "?::bigint[]")] = [wanted.inside]
    if wanted.is_group is not None:
        where[f"{field('owner_id')} IS {'' if wanted.is_group else 'NOT '}NULL"] = None
    if wanted.top_level:
        where["parent_id IS NULL"] = None
    if wanted.sight is not None:
        where |= _seen_namespaces(wanted.sight)
    return where


def _seen_namespaces(sight: Sight) -> Conditions:
    groups = _array(sight.group_ids)
    return {
        "organization_id = ?": sight.organization_id,
        f"(id = {int(sight.namespace_id)} OR ({field('owner_id')} IS NULL AND"
        f" ({_VISIBILITY} != 'private' OR id = ANY({groups}) OR {_holds('above', groups)})))": None,
    }


def runners(wanted: RunnerFilter) -> Conditions:
    where: Conditions = {}
    if wanted.type:
        where[f"{field('type', 'text')} = ?"] = wanted.type
    if wanted.paused is not None:
        where[f"{field('paused', 'boolean')} = ?"] = wanted.paused
    if wanted.tags:
        tags = f"SELECT json_array_elements_text({_BODY} -> 'tags')"
        where[f"?::text[] <@ ARRAY({tags})"] = [without_nul(tag) for tag in wanted.tags]
    if wanted.pools is not None:
        where |= _serving(wanted.pools)
    if wanted.status:
        where |= _in_status(wanted.status, wanted.now)
    return where


def _serving(pools: Sequence[Pool]) -> Conditions:
    whole, groups, own = (_array(ids_of(pools, kind)) for kind in ("organization", "group", "project"))
    kind = field("type", "text")
    return {
        f"(({kind} = '{RunnerType.INSTANCE.value}' AND {ORGANIZATION} = ANY({whole}))"
        f" OR ({kind} = '{RunnerType.GROUP.value}' AND {field('group_id')} = ANY({groups}))"
        f" OR ({kind} = '{RunnerType.PROJECT.value}' AND {_holds('project_ids', own)}))": None
    }


def _in_status(status: str, now: float) -> Conditions:
    time = "double precision"
    contacted = f"(SELECT max({field('contacted_at', time)}) FROM managers WHERE runner_id = runners.id)"
    created = field("created_at", time)
    online, stale = now - ONLINE_SECONDS, now - STALE_SECONDS
    match status:
        case "online":
            return {f"{contacted} > ?": online}
        case "stale":
            return {f"coalesce({contacted}, {created}) <= ?": stale}
        case "offline":
            return {f"{contacted} <= ?": online, f"{contacted} > ?": stale}
        case _:
            return {f"{contacted} IS NULL": None, f"{created} > ?": stale}


def searched(text: str) -> str:
    """Text to look for, and text to look into, without regard to case and without what no text can hold."""
    return without_nul(text.casefold())
