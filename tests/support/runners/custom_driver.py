"""A driver of the custom executor, and jobs that a real agent runs with it.

`Driver` has four programs in a folder, which a test can replace, and the calls that they record. `CustomHarness`
compiles jobs as the manager does and runs them on an agent.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from tests.support.servers.step_server import StepServer

from remuda.manager.compile.clone_path import clone_path
from remuda.manager.compile.compile import compile_job
from remuda.manager.compile.step_entries import Setting
from remuda.manager.config.custom import CustomConfig
from remuda.manager.config.values import RunnerConfig
from remuda.testing.agent_process import AgentProcess, Seen, run_job
from remuda.wire.agent_client import JobStart
from remuda.wire.runner_api import JobPayload

CONFIG = """#!/bin/sh
echo config >>"$CALLS"
cat <<EOF
{"driver": {"name": "plain", "version": "v1"}, "hostname": "the-host", "builds_dir": "$BUILDS", "cache_dir": "$CACHES",
 "job_env": {"FROM_CONFIG": "yes"}}
EOF
"""
PREPARE = """#!/bin/sh
echo "prepare $FROM_CONFIG" >>"$CALLS"
"""
RUN = """#!/bin/bash
echo "run $3" >>"$CALLS"
env | sort >"$CALLS.env.$3"
cp "$JOB_RESPONSE_FILE" "$CALLS.response"
[ "$1" = extra ] || exit 5
bash "$2" || { echo $? >"$BUILD_EXIT_CODE_FILE"; exit "$BUILD_FAILURE_EXIT_CODE"; }
"""
CLEANUP = """#!/bin/sh
echo cleanup >>"$CALLS"
"""
STAGES = ("prepare_script", "get_sources", "step_script", "cleanup_file_variables")
"""Stages of a job without caches, artifacts and after_script."""


@dataclass
class Driver:
    """The programs of a driver in a folder, and the calls that they recorded."""

    folder: Path
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        for name, text in (("config", CONFIG), ("prepare", PREPARE), ("run", RUN), ("cleanup", CLEANUP)):
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    @property
    def builds(self) -> Path:
        return self.folder / "builds"

    @property
    def env(self) -> dict[str, str]:
        own = {"CALLS": str(self.folder / "calls"), "BUILDS": str(self.builds), "CACHES": str(self.folder / "caches")}
        return dict(os.environ) | own | self.extra

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def stages(self) -> list[str]:
        return [line.removeprefix("run ") for line in self.calls if line.startswith("run ")]

    def env_of(self, stage: str) -> dict[str, str]:
        lines = (self.folder / f"calls.env.{stage}").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def config(self, **changes: Any) -> CustomConfig:
        values: dict[str, Any] = {f"{name}_exec": str(self.folder / name) for name in ("config", "prepare", "cleanup")}
        values |= {"run_exec": str(self.folder / "run"), "run_args": ("extra",)}
        values |= {"graceful_kill_timeout": 2, "force_kill_timeout": 2}
        return CustomConfig(**values | changes)


@dataclass
class CustomHarness:
    """Runs jobs with an agent, a server with a repository, and a driver."""

    agent: AgentProcess
    server: StepServer
    driver: Driver
    folder: Path
    commit: str
    count: int = 0

    def job(
        self, *script: str, custom: dict[str, Any] | None = None, runner: dict[str, Any] | None = None, **changes: Any
    ) -> JobStart:
        """Compile a job as the manager does."""
        self.count += 1
        payload: dict[str, Any] = {
            "id": self.count,
            "token": "glcbt-1_abc",
            "git_info": {
                "repo_url": self.server.repo_url,
                "sha": self.commit,
                "ref": "main",
                "refspecs": ["+refs/heads/main:refs/remotes/origin/main"],
            },
            "steps": [{"name": "script", "script": list(script or ("cat file",))}],
            "runner_info": {"timeout": 600},
            "job_info": {"name": "build", "stage": "test", "project_id": 1, "project_name": "project"},
        }
        payload |= {key: value for key, value in changes.items() if key not in ("after", "variables")}
        if after := changes.get("after"):
            payload["steps"] = [*payload["steps"], {"name": "after_script", "script": after}]
        payload["variables"] = [{"key": "CI_JOB_ID", "value": str(self.count)}, *changes.get("variables", ())]
        config = RunnerConfig(
            name="one",
            url=self.server.url,
            token="glrt-t1_abcdefghijk",
            executor="custom",
            custom=self.driver.config(**custom or {}),
            **runner or {},
        )
        parsed = msgspec.convert(payload, JobPayload)
        setting = Setting(
            key=str(self.count),
            runner=config,
            system_id="s_0123456789ab",
            slot=3,
            clone_path=clone_path(parsed, config, slot=3),
            work_dir=str(self.folder / "work"),
            builds_dir=str(self.folder),
            cache_dir=str(self.folder / "cache"),
            host_environment=self.driver.env,
        )
        return compile_job(parsed, setting)

    async def run(self, *script: str, **changes: Any) -> Seen:
        return await run_job(self.agent, self.job(*script, **changes))
