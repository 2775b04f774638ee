"""Contract tests of the store: audit events are listed newest first, filtered, and removed when they are old."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.cell.store.ports import Store
from remuda.cell.values import Page
from remuda.cell.values.audit_events import AuditEvent, AuditFilter
from remuda.lib.ids import range_of_cell
from remuda.testing.builders import NOW

EVENTS = (
    AuditEvent(created_at=NOW, action="project_deleted", author_id=1, entity_type="Project", entity_id=7),
    AuditEvent(created_at=NOW + 1, action="variable_created", author_id=2, entity_type="Project", entity_id=7),
    AuditEvent(created_at=NOW + 2, action="runner_deleted", author_id=1, entity_type="Runner", entity_id=7),
    AuditEvent(
        created_at=NOW + 3,
        action="access_denied",
        ip_address="192.0.2.1",
        target="GET /x",
        details={"status": 401, "names": ["a", "ß\0"], "flag": True, "none": None},
        request_id="r",
    ),
)


async def add_events(store: Store) -> list[AuditEvent]:
    return [await store.settings.add_audit_event(event) for event in EVENTS]


async def test_events_get_ids_and_come_back_whole(store: Store) -> None:
    added = await add_events(store)
    assert [event.id for event in added] == sorted(event.id for event in added)
    assert added[0].id in range(range_of_cell(1).first, range_of_cell(1).last + 1)
    for event in added:
        assert await store.settings.load_audit_event(event.id) == event
    assert await store.settings.load_audit_event(added[-1].id + 1) is None


async def test_pages_are_newest_first(store: Store) -> None:
    added = await add_events(store)
    assert await store.settings.list_audit_events(Page(size=3)) == (added[:0:-1], 4)
    assert await store.settings.list_audit_events(Page(number=2, size=3)) == (added[:1], 4)
    later, _ = await store.settings.list_audit_events(Page(ascending=True, after=added[1].id, counted=False))
    assert later == added[2:]


@pytest.mark.parametrize(
    ("event_filter", "indexes"),
    [
        (AuditFilter(action="runner_deleted"), [2]),
        (AuditFilter(author_id=1), [2, 0]),
        (AuditFilter(entity_type="Project", entity_id=7), [1, 0]),
        (AuditFilter(created_after=NOW + 1, created_before=NOW + 3), [2, 1]),
        (AuditFilter(author_id=0), [3]),
        (AuditFilter(action="nothing"), []),
    ],
)
async def test_filters(store: Store, event_filter: AuditFilter, indexes: list[int]) -> None:
    added = await add_events(store)
    assert await store.settings.list_audit_events(Page(), event_filter) == (
        [added[index] for index in indexes],
        len(indexes),
    )


async def test_old_events_are_removed_in_batches(store: Store) -> None:
    added = await add_events(store)
    assert await store.settings.remove_audit_events(NOW + 2, limit=1) == 1
    assert await store.settings.remove_audit_events(NOW + 2, limit=5) == 1
    assert await store.settings.remove_audit_events(NOW + 2, limit=5) == 0
    assert (await store.settings.list_audit_events(Page()))[0] == [added[3], added[2]]
    later = await store.settings.add_audit_event(EVENTS[0])
    assert later.id > added[-1].id


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.text(), target=st.text(st.characters(codec="utf-8")))
async def test_any_text_is_stored_unchanged(store: Store, name: str, target: str) -> None:
    added = await store.settings.add_audit_event(
        AuditEvent(created_at=NOW, action="x", author_name=name, target=target)
    )
    assert await store.settings.load_audit_event(added.id) == added
