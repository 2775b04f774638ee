"""A configuration that changes while the manager runs: what applies at once, and what waits for a restart. Pure.

A runner is the same as before when server and token are the same; its new values count for the jobs that it takes from
then on. What needs a restart keeps its old value until then, so that the manager never is in a state which neither file
describes: `applied` is the configuration to go on with. The service calls this when the file has changed, and shows the
words of both lists.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from remuda.manager.config.values import ManagerConfig, RunnerConfig

RESTART_GLOBAL = ("listen_address", "log_format")
"""Keys outside of all runners that are looked at only once."""
RESTART_SECTIONS = {
    "autoscaler": ("plugin", "plugin_config", "connector_config", "state_storage", "vm_isolation"),
    "machine": ("machine_name", "machine_driver", "machine_options", "machine_options_with_name"),
}
"""Keys of a runner that its machines were made with."""
_FALLBACK = ("name", "plugin", "plugin_config", "connector_config")


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What is other than before."""

    applied: ManagerConfig
    """The new configuration, with old values of what needs a restart."""
    added: tuple[RunnerConfig, ...] = ()
    removed: tuple[RunnerConfig, ...] = ()
    """Their jobs go on, and no new ones are taken."""
    changed: tuple[tuple[RunnerConfig, RunnerConfig], ...] = ()
    """The old and the new one of the same runner, in the values that apply."""
    at_once: tuple[str, ...] = ()
    """Keys with a new value, such as `concurrent` and `runners[builder].limit`."""
    restart: tuple[str, ...] = ()
    """Keys whose new value counts after a restart."""

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.at_once or self.restart)


def changes(old: ManagerConfig, new: ManagerConfig) -> Changes:
    """Compare two configurations."""
    before = {_identity(runner): runner for runner in old.runners}
    restart = [key for key in RESTART_GLOBAL if getattr(old, key) != getattr(new, key)]
    at_once = [key for key in _differing(old, new) if key not in (*RESTART_GLOBAL, "runners")]
    runners: list[RunnerConfig] = []
    changed: list[tuple[RunnerConfig, RunnerConfig]] = []
    for runner in new.runners:
        known = before.get(_identity(runner))
        if known is not None and known != runner:
            runner, late = _kept(known, runner)
            restart += [f"runners[{_called(runner)}].{key}" for key in late]
            if known != runner:
                changed.append((known, runner))
                at_once += [f"runners[{_called(runner)}].{key}" for key in _deep(known, runner)]
        runners.append(runner)
    now = {_identity(runner) for runner in new.runners}
    return Changes(
        applied=msgspec.structs.replace(
            new, runners=tuple(runners), **{key: getattr(old, key) for key in RESTART_GLOBAL}
        ),
        added=tuple(runner for runner in runners if _identity(runner) not in before),
        removed=tuple(runner for runner in old.runners if _identity(runner) not in now),
        changed=tuple(changed),
        at_once=tuple(at_once),
        restart=tuple(restart),
    )


def _kept(known: RunnerConfig, runner: RunnerConfig) -> tuple[RunnerConfig, list[str]]:
    """The new runner with the old values of what needs a restart, and which keys those are."""
    late: list[str] = []
    for section, keys in RESTART_SECTIONS.items():
        old, new = getattr(known, section), getattr(runner, section)
        names = {field.name: field.encode_name for field in msgspec.structs.fields(new)}
        late += [f"{section}.{names[key]}" for key in _differing(old, new) if key in keys]
        kept = msgspec.structs.replace(new, **{key: getattr(old, key) for key in keys})
        runner = msgspec.structs.replace(runner, **{section: kept})

    def made_with(one: RunnerConfig) -> list[list[Any]]:
        return [[getattr(group, key) for key in _FALLBACK] for group in one.remuda.fallback]

    own = runner.remuda
    if made_with(known) != made_with(runner):
        late.append("remuda.fallback")
        own = msgspec.structs.replace(own, fallback=known.remuda.fallback)
    if known.remuda.plugin_scales != own.plugin_scales:
        late.append("remuda.plugin_scales")
        own = msgspec.structs.replace(own, plugin_scales=known.remuda.plugin_scales)
    return msgspec.structs.replace(runner, remuda=own), late


def _identity(runner: RunnerConfig) -> tuple[str, str]:
    return runner.url, runner.token


def _called(runner: RunnerConfig) -> str:
    return runner.name or runner.short_token


def _differing(old: msgspec.Struct, new: msgspec.Struct) -> list[str]:
    names = [field.name for field in msgspec.structs.fields(old)]
    return [name for name in names if getattr(old, name) != getattr(new, name)]


def _deep(old: Any, new: Any) -> Iterator[str]:
    """The keys that differ, those of sections with the section's name in front."""
    for field in msgspec.structs.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before == after:
            continue
        if isinstance(before, msgspec.Struct):
            yield from (f"{field.encode_name}.{key}" for key in _deep(before, after))
        else:
            yield field.encode_name
