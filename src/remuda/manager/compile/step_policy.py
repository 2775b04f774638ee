"""Joins the step policies of a job, that of the runner's configuration and that of the cell, for the agent. Pure code.

A step policy restricts which steps a job may run, and may insert steps. It is parsed here, so that an invalid policy
fails the job before anything runs; the agent enforces it."""

import json
from collections.abc import Callable
from typing import Any

from remuda.manager.compile.step_entries import CompileError, Setting
from remuda.manager.config.values import WITH_MACHINES, RunnerConfig
from remuda.steps.errors import PolicyError
from remuda.wire.runner_api import JobPayload

VERSION = 1
"""Version of the form in which a cell sends policies."""


def policy_text(payload: JobPayload, setting: Setting, own: Callable[[], dict[str, str]]) -> str:
    """Return the step policy as JSON: the runner's, then the cell's, which cannot weaken it; empty if there is none.
    `own` returns this runner's variables, for inserted steps. Raises CompileError if a policy is invalid."""
    runner = setting.runner
    layers = (
        [{"author": f"runner {runner.name}".strip(), "document": runner.remuda.policy}] if runner.remuda.policy else []
    )
    layers += _cell_layers(payload.remuda.get("step_policy") if isinstance(payload.remuda, dict) else None)
    if not layers:
        return ""
    from remuda.steps.policy.document import parse_policy  # imported here because it is slow, and most jobs have none

    whole: dict[str, Any] = {"version": 1, "layers": layers}
    try:
        policy = parse_policy(json.dumps(whole))
    except PolicyError as error:
        raise CompileError(f"the step policy cannot be read, so nothing runs: {error}") from None
    if any(layer.insertions for layer in policy.layers):
        from remuda.manager.compile.server_variables import collect_trusted_variables

        whole["variables"] = collect_trusted_variables(payload, setting, own())
        whole |= {"server_ca": setting.server_ca} if setting.server_ca else {}
    return json.dumps(whole)


def run_as(runner: RunnerConfig, slot: int) -> str:
    """Return the user that runs a job's steps; empty for the agent's own user."""
    first = runner.remuda.first_uid
    return str(first + slot) if first else runner.remuda.run_as


def has_own_user(runner: RunnerConfig) -> bool:
    """True if each job slot has its own user that no other job on the machine uses: `first_uid` is set, and the
    machines are created for this runner. Machines of a fixed list may be shared with other managers."""
    return bool(runner.remuda.first_uid) and runner.executor in WITH_MACHINES and not runner.remuda.machines


def _cell_layers(policy: Any) -> list[dict[str, Any]]:
    if policy is None:
        return []
    if not isinstance(policy, dict) or policy.get("version") != VERSION or not isinstance(policy.get("layers"), list):
        raise CompileError("the server sent a step policy in a form that this runner does not know; use a newer runner")
    return [
        {"author": f"{layer.get('scope')} {layer.get('id')}", "document": layer.get("document")}
        for layer in policy["layers"]
    ]
