"""Applies an update of a group (the plugin's list of its instances) to the roster: new, gone and changed ones. Pure.

A known instance that is not listed is gone if its deletion was requested; otherwise it is suspect (gets no jobs), and
lost after `members.MISSES` updates in a row without it. An instance that is already deleted when it is first listed
counts as a failed creation."""

from collections.abc import Mapping

from remuda.fleeting.port import InstanceState as Shown
from remuda.fleeting.port import TaggedInstance
from remuda.taskscaler.core.rebalancing import Seen, Sighting
from remuda.taskscaler.core.values import Cause, is_foreign_tag
from remuda.taskscaler.fleet.groups import GroupState
from remuda.taskscaler.fleet.members import Member, is_gone
from remuda.taskscaler.fleet.roster import Gone, Roster
from remuda.taskscaler.fleet.setup import instance_name

REMEMBERED_SECONDS = 600.0
"""For this long, an instance that was deleted and is listed again is deleted again, unless a request is pending."""


def apply_update(
    roster: Roster,
    group: str,
    states: Mapping[str, Shown],
    *,
    now: float,
    began_at: float,
    tags: Mapping[str, TaggedInstance],
) -> tuple[Gone, ...]:
    """Apply the plugin's list of a group's instances (`states` by id); return the instances whose deletion is complete.
    `began_at`: when the plugin was called; `tags`: owners of new instances by id."""
    state = roster.groups[group]
    gone = []
    for instance_id, shown in states.items():
        name = instance_name(group, instance_id)
        if name not in roster.members:
            if is_gone(shown):
                _note_unseen_end(roster, state, instance_id, now, tags.get(instance_id))
                continue
            _discover(roster, state, instance_id, now, tags.get(instance_id))
        member = roster.members[name]
        if is_gone(shown) and member.is_removing:
            gone.append(roster.lose(name, now))
            continue
        _see(roster, member, shown, now)
        roster.refresh(name, now)
    for name, member in list(roster.members.items()):
        if member.group != group or member.id in states:
            continue
        if member.is_removing:
            gone.append(roster.lose(name, now))
        else:
            member.missed += 1
            roster.metrics.count_missed_update()
            roster.refresh(name, now)
    given_up = roster.requests.give_up_doubtful(group, began_at)
    state.note_sightings(now, *[Sighting(what=Seen.GIVEN_UP, at=now)] * given_up)
    state.is_current = state.was_shown = True
    state.updated_at = now
    if not state.failures:
        state.error = ""
    return tuple(gone)


def _note_unseen_end(
    roster: Roster, group: GroupState, instance_id: str, now: float, tag: TaggedInstance | None
) -> None:
    """Handle an unknown instance listed as deleted: if never listed before and of no other owner, it counts as a failed
    creation of the oldest pending request. Nothing counts in a process's first update, which may list old ones."""
    name = instance_name(group.name, instance_id)
    is_news = group.was_shown and name not in group.gone and name not in roster.deleted
    group.gone[name] = now
    group.gone = {name: at for name, at in group.gone.items() if now - at < REMEMBERED_SECONDS}
    is_foreign = tag is not None and is_foreign_tag(tag.owner, roster.setup.owner)
    was_lost = any(seen.what is Seen.LOST and seen.instance == name for seen in group.sightings)
    if not is_news or is_foreign or was_lost or (request := roster.requests.take(group.name)) is None:
        return
    text = f"{name} was deleted before it was first listed; its provider, or the plugin's log, may say why"
    roster.note_failed_creation(group.name, text, now, cause="lost", asked_at=request.asked_at)


def _discover(roster: Roster, group: GroupState, instance_id: str, now: float, tag: TaggedInstance | None) -> None:
    member = Member(id=instance_id, group=group.name, cause=Cause.UNEXPECTED, created_at=now, begun_at=now)
    member.owner = "" if tag is None else tag.owner
    name = instance_name(group.name, instance_id)
    is_back = any(seen.what is Seen.LOST and seen.instance == name for seen in group.sightings)
    is_new = not is_back and not member.is_foreign(roster.setup.owner)
    request = roster.requests.take(group.name) if is_new else None
    if request is not None:
        member.cause, member.asked_at = Cause.REQUESTED, request.asked_at
        roster.metrics.observe("instance_creation", now - request.asked_at)
    elif not group.was_shown:
        member.cause = Cause.PREEXISTED
        member.created_at = now if tag is None or tag.created_at is None else tag.created_at
    elif now - roster.deleted.get(name, -REMEMBERED_SECONDS) < REMEMBERED_SECONDS:
        member.removing_at = member.removed_at = roster.deleted[name]
    elif not member.is_foreign(roster.setup.owner):
        group.note_sightings(now, Sighting(what=Seen.CAME, at=now, instance=name))
    roster.deleted = {key: at for key, at in roster.deleted.items() if now - at < REMEMBERED_SECONDS}
    roster.add(member, now)


def _see(roster: Roster, member: Member, shown: Shown, now: float) -> None:
    member.missed = 0
    if shown is Shown.CREATING and (member.is_prepared or member.shown is Shown.RUNNING):
        member.is_prepared, member.unanswered, member.begun_at = False, 0, now
    if shown is Shown.RUNNING and member.shown is not Shown.RUNNING and member.asked_at is not None:
        roster.metrics.observe("instance_is_running", now - member.asked_at)
    member.shown = shown
