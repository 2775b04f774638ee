"""Builders of the manager's values, with defaults for everything that a test does not set."""

from typing import Any

import msgspec

from remuda.manager.compile.step_entries import Setting
from remuda.manager.config.values import RunnerConfig
from remuda.manager.core.record import JobRow
from remuda.manager.environments.port import JobPlace
from remuda.wire.runner_api import JobPayload

SHA = "4f9d2c7a8b0e1f3a5c6d7e8f9a0b1c2d3e4f5a6b"
GIT = {"repo_url": "https://u:p@cell.example/g/p.git", "sha": SHA, "ref": "main", "depth": 20}
"""`git_info` of a payload."""


def a_payload(**changes: Any) -> JobPayload:
    """The payload of job 5, for a commit on `main` of `g/p`, without steps."""
    values: dict[str, Any] = {"id": 5, "token": "glcbt-job-token", "git_info": GIT}
    return msgspec.convert(values | changes, JobPayload)


def a_runner_config(**changes: Any) -> RunnerConfig:
    """The runner `one` of https://cell.example with the shell executor."""
    values = {"name": "one", "url": "https://cell.example/", "token": "glrt-t1_abcdefghijk", "executor": "shell"}
    return RunnerConfig(**values | changes)


def a_setting(runner: RunnerConfig | None = None, **changes: Any) -> Setting:
    """Slot 2 of a runner, with the folders /b/p, /b and /c for work, builds and caches."""
    values: dict[str, Any] = {
        "system_id": "s_0123456789ab",
        "slot": 2,
        "work_dir": "/b/p",
        "builds_dir": "/b",
        "cache_dir": "/c",
    }
    return Setting(runner=runner or a_runner_config(), **values | changes)


def a_row(key: str = "1-abc", **changes: Any) -> JobRow:
    """The journal's row of job 1 in slot 3 of the runner `one`, with an empty payload."""
    values: dict[str, Any] = {
        "key": key,
        "job_id": 1,
        "url": "http://cell",
        "runner": "abcdefghi",
        "runner_name": "one",
        "slot": 3,
        "sends_results": True,
        "received_at": 12.5,
        "api_version": 1,
        "payload": b"{}",
    }
    return JobRow(**values | changes)


def a_place(number: int = 1, **changes: Any) -> JobPlace:
    """The place of a job of `group/project` in the slot of this number."""
    values: dict[str, Any] = {"key": f"{number}-abc", "runner": "abcdefghi", "slot": number, "project": "group/project"}
    return JobPlace(**values | changes)
