"""Compares two configurations: which changes apply at once, and which need a restart. Pure code without I/O.

A runner is recognized by its server and token; its new values apply to jobs received from then on. A setting that needs
a restart keeps its old value until then (`Changes.applied`)."""

from collections.abc import Iterator
from typing import Any

import msgspec

from remuda.manager.config.values import ManagerConfig, RunnerConfig

RESTART_GLOBAL = ("listen_address", "log_format")
"""Global keys that are read only at the start."""
RESTART_SECTIONS = {
    "autoscaler": ("plugin", "plugin_config", "connector_config", "state_storage", "vm_isolation"),
    "machine": ("machine_name", "machine_driver", "machine_options", "machine_options_with_name"),
}
"""Keys of a runner that its machines were created with."""
_FALLBACK = ("name", "plugin", "plugin_config", "connector_config")


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    applied: ManagerConfig
    """The new configuration, with old values of what needs a restart."""
    added: tuple[RunnerConfig, ...] = ()
    removed: tuple[RunnerConfig, ...] = ()
    """Their jobs continue; no new ones are taken."""
    changed: tuple[tuple[RunnerConfig, RunnerConfig], ...] = ()
    """Old and new configuration of a runner, with the values that apply."""
    at_once: tuple[str, ...] = ()
    """Keys with a new value, such as `concurrent` and `runners[builder].limit`."""
    restart: tuple[str, ...] = ()
    """Keys whose new value applies after a restart."""

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.at_once or self.restart)


def compare(old: ManagerConfig, new: ManagerConfig) -> Changes:
    before = {_identity(runner): runner for runner in old.runners}
    restart = [key for key in RESTART_GLOBAL if getattr(old, key) != getattr(new, key)]
    at_once = [key for key in _changed_fields(old, new) if key not in (*RESTART_GLOBAL, "runners")]
    runners: list[RunnerConfig] = []
    changed: list[tuple[RunnerConfig, RunnerConfig]] = []
    for runner in new.runners:
        former = before.get(_identity(runner))
        if former is not None and former != runner:
            runner, late = _defer_changes(former, runner)
            restart += [f"runners[{_name(runner)}].{key}" for key in late]
            if former != runner:
                changed.append((former, runner))
                at_once += [f"runners[{_name(runner)}].{key}" for key in _changed_keys(former, runner)]
        runners.append(runner)
    after = {_identity(runner) for runner in new.runners}
    return Changes(
        applied=msgspec.structs.replace(
            new, runners=tuple(runners), **{key: getattr(old, key) for key in RESTART_GLOBAL}
        ),
        added=tuple(runner for runner in runners if _identity(runner) not in before),
        removed=tuple(runner for runner in old.runners if _identity(runner) not in after),
        changed=tuple(changed),
        at_once=tuple(at_once),
        restart=tuple(restart),
    )


def _defer_changes(former: RunnerConfig, runner: RunnerConfig) -> tuple[RunnerConfig, list[str]]:
    """Return the new configuration with the old values of keys that need a restart, and the names of these keys."""
    late: list[str] = []
    for section, keys in RESTART_SECTIONS.items():
        old, new = getattr(former, section), getattr(runner, section)
        names = {field.name: field.encode_name for field in msgspec.structs.fields(new)}
        late += [f"{section}.{names[key]}" for key in _changed_fields(old, new) if key in keys]
        values = msgspec.structs.replace(new, **{key: getattr(old, key) for key in keys})
        runner = msgspec.structs.replace(runner, **{section: values})

    def fallback_groups(config: RunnerConfig) -> list[list[Any]]:
        return [[getattr(group, key) for key in _FALLBACK] for group in config.remuda.fallback]

    own = runner.remuda
    if fallback_groups(former) != fallback_groups(runner):
        late.append("remuda.fallback")
        own = msgspec.structs.replace(own, fallback=former.remuda.fallback)
    if former.remuda.plugin_scales != own.plugin_scales:
        late.append("remuda.plugin_scales")
        own = msgspec.structs.replace(own, plugin_scales=former.remuda.plugin_scales)
    return msgspec.structs.replace(runner, remuda=own), late


def _identity(runner: RunnerConfig) -> tuple[str, str]:
    return runner.url, runner.token


def _name(runner: RunnerConfig) -> str:
    return runner.name or runner.short_token


def _changed_fields(old: msgspec.Struct, new: msgspec.Struct) -> list[str]:
    names = [field.name for field in msgspec.structs.fields(old)]
    return [name for name in names if getattr(old, name) != getattr(new, name)]


def _changed_keys(old: Any, new: Any) -> Iterator[str]:
    """Yield the names of the keys that differ; a key of a section has the form `section.key`."""
    for field in msgspec.structs.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before == after:
            continue
        if isinstance(before, msgspec.Struct):
            yield from (f"{field.encode_name}.{key}" for key in _changed_keys(before, after))
        else:
            yield field.encode_name
