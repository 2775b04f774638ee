"""Builds the results of steps for clients (docs/reference/step-results.md), and the log lines about a failure. No I/O.

Sensitive values are replaced, texts are masked like the log, and large values truncated. A stored result never changes.
"""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from remuda.lib.clock import stamp
from remuda.lib.dataclass import dataclass
from remuda.lib.masking import Secrets
from remuda.steps.job_tree.outcome import Finished, Kind, Status
from remuda.steps.job_tree.tree import INSERTED, Loaded, Node
from remuda.steps.language.evaluate import conceal
from remuda.steps.resolving.values import describe as without_credentials

LONGEST_TEXT = 16 * 1024
"""Limit for inputs, environment and command."""
LONGEST_OUTPUT = 512 * 1024
"""Limit for outputs and exports."""
DEEPEST = 32
"""How deep the values of a result may be nested. The cell accepts twice that."""
_SIGNALS = frozenset(int(number) for number in signal.valid_signals())


_LOGGED_KINDS = (Kind.LOAD, Kind.POLICY, Kind.LIMIT, Kind.OUTPUTS)
"""Failures that the step's own output does not mention, so that the agent writes them to the log."""


def start_event(node: Node, secrets: Secrets, *, now: float) -> dict[str, Any]:
    return _event(node, secrets, "started", now) | {"log_start": node.log_start}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProduct:
    """What a finished step leaves: outputs, exported variables, texts to mask in the log, further result keys."""

    ended_at: float | None = None
    """None: now."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    exports: Mapping[str, str] = field(default_factory=dict)
    masks: Sequence[str] = ()
    """Texts that the step asked to be masked."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of its result: `usage`, `policy`, `resolved`."""
    suffixes: set[str] | None = None
    """Which of the step's files in the exchange folder exist; None: unknown, list the folder."""


NO_PRODUCT = StepProduct()


def finish_event(
    node: Node,
    result: Finished,
    secrets: Secrets,
    product: StepProduct,
    *,
    now: float,
    log: tuple[int, int],
    is_retried: bool,
) -> dict[str, Any]:
    """Return the event that tells clients that an attempt at a step has ended. `product`: its outputs and exports.
    `log`: byte offsets of begin and end of its log lines. `is_retried`: another attempt follows."""
    shown = Shown(secrets)
    event = _event(node, secrets, "finished", now) | {
        "status": str(result.status),
        "exit_code": result.exit_code,
        "signal": _signal_in(result.exit_code),
        "error": None if result.error is None else secrets.mask(result.error),
        "error_kind": None if result.kind is None else str(result.kind),
        "fault": None if result.fault is None else str(result.fault),
        "started_at": node.started_text or None,
        "finished_at": stamp(now if product.ended_at is None else product.ended_at),
        "log_start": log[0],
        "log_end": log[1],
    }
    if is_retried:
        event["retried"] = True
    if node.call.reference is not None:
        event["written"] = secrets.mask(without_credentials(node.call.reference))
    if node.loaded is None:
        return event | dict(product.details)
    event |= _what_ran(node, shown)
    if product.outputs:
        event["outputs"] = shown.values(product.outputs, LONGEST_OUTPUT)
    if product.exports:
        event["exports"] = shown.values(product.exports, LONGEST_OUTPUT)
    return event | dict(product.details)


def outputs_event(outputs: Mapping[str, Any], secrets: Secrets, *, now: float) -> dict[str, Any]:
    """Return the event with the outputs of the definition in the job's request."""
    return {"event": "outputs", "time": stamp(now), "outputs": Shown(secrets).values(outputs, LONGEST_OUTPUT)}


def _what_ran(node: Node, shown: "Shown") -> dict[str, Any]:
    loaded, entered = node.loaded, node.entered
    assert loaded is not None
    details: dict[str, Any] = {}
    if loaded.kind is not None:
        details["resolved"] = resolution(loaded, shown.secrets)
    if entered.inputs:
        details["inputs"] = shown.values(entered.inputs, LONGEST_TEXT)
    env = dict(entered.invocation_env) | dict(entered.definition_env)
    if env:
        details["env"] = shown.values(env, LONGEST_TEXT)
    if entered.command:
        details["command"] = shown.value(list(entered.command), LONGEST_TEXT)
    if node.has_command:
        details["work_dir"] = shown.value(entered.work_dir, LONGEST_TEXT)
        details["log_stream"] = f"{node.stream:02x}"
        host = node.host
        if host is not None:
            details["environment"] = host.path
    return details


def resolution(loaded: Loaded, secrets: Secrets) -> dict[str, Any]:
    """Return the part of a step result that says what a reference was resolved to: digest, commit and version."""
    return {
        "reference": secrets.mask(loaded.reference),
        "digest": loaded.digest,
        "commit": loaded.commit,
        "version": loaded.version,
    }


class Shown:
    """Prepares values of a step result for display: masks secrets in them, and truncates them to a total size."""

    def __init__(self, secrets: Secrets) -> None:
        self.secrets = secrets
        self._room = 0

    def values(self, values: Mapping[str, Any], limit: int) -> dict[str, Any]:
        shown: dict[str, Any] = self.value(dict(values), limit)
        return shown

    def value(self, value: Any, limit: int) -> Any:
        self._room = limit
        return self._show(conceal(value))

    def _show(self, value: Any, depth: int = 0) -> Any:
        self._room -= 8
        match value:
            case str():
                text = self.secrets.mask(value)
                cut = len(text) - max(self._room, 0)
                self._room -= len(text)
                return text if cut <= 0 else f"{text[: len(text) - cut]}… ({cut} characters more)"
            case list() | tuple() | dict() if depth == DEEPEST:
                return "(left out: it is nested too deeply)"
            case list() | tuple():
                shown: list[Any] = []
                for number, item in enumerate(value):
                    if self._room <= 0:
                        return [*shown, _omission(len(value) - number)]
                    shown.append(self._show(item, depth + 1))
                return shown
            case dict():
                named: dict[str, Any] = {}
                for number, (key, item) in enumerate(value.items()):
                    if self._room <= 0:
                        return named | {"…": _omission(len(value) - number)}
                    name = self.secrets.mask(str(key))
                    self._room -= len(name)
                    named[name] = self._show(item, depth + 1)
                return named
        return value


def _omission(number: int) -> str:
    return f"({number} more: the result has no room for them)"


def section(node: Node) -> str:
    return node.path[1:].replace("/", ".").replace("+", "")


def choose_end_time(written_at: float | None, *, started_at: float, now: float) -> float:
    """Return when a step ended: `written_at`, the time stamp of its exit code, if that lies between start and now, else
    now. It may lie outside if the wall clock was changed."""
    if written_at is not None and started_at <= written_at <= now:
        return written_at
    return max(now, started_at)


def last_words(node: Node, result: Finished, *, retry_at: float | None, now: float) -> list[str]:
    """Return log lines that a failed step's output lacks: the error, or when it is tried again. May be empty."""
    if result.status is not Status.FAILURE:
        return []
    name = node.path[1:]
    if retry_at is not None:
        return [f'step "{name}" failed: {result.error}; attempt {node.attempt + 1} follows in {retry_at - now:g} s']
    if node.call.continue_on_error:
        return [f'WARNING: step "{name}" failed: {result.error}']
    return [f'ERROR: step "{name}": {result.error}'] if result.kind in _LOGGED_KINDS else []


def _event(node: Node, secrets: Secrets, event: str, now: float) -> dict[str, Any]:
    reference = node.call.reference
    written = "" if reference is None else without_credentials(reference)
    return {
        "event": event,
        "path": node.path,
        "name": node.call.name,
        "reference": secrets.mask(node.loaded.reference if node.loaded is not None else written),
        "origin": INSERTED if node.is_inserted else node.call.origin,
        "attempt": node.attempt,
        "time": stamp(now),
    }


def _signal_in(exit_code: int | None) -> int | None:
    """Return N for an exit code 128 + N, with which shells report a command killed by signal N; None for others."""
    if exit_code is None or exit_code - 128 not in _SIGNALS:
        return None
    return exit_code - 128
