"""The files of a delegated job: the order (what to run, and how to reach the other agent), the results received so far,
and the position in the log.

Everything received is stored before it is used, so a killed program resumes where it was, and nothing runs twice.
Results are JSON lines, of which the last one is the end of the job; a second file says how far the log was printed."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Self

from remuda.lib.dataclass import dataclass
from remuda.lib.files import read_whole_lines
from remuda.steps.errors import BadRequestError, DefinitionError
from remuda.steps.language.operations import check_bounds
from remuda.steps.language.values import NAME
from remuda.wire.proto import agent_pb2 as pb

LARGEST_RESULT_BYTES = 4 * 1024**2
MOST_RESULTS, LARGEST_RESULTS_BYTES = 50_000, 256 * 1024**2
"""Limits for all results of a delegated job."""
LONGEST_MESSAGE = 10_000
LONGEST_LOG_LINE = 1024**2
"""Limit for a line of the other agent's log. An agent divides lines that are much shorter."""
HEADER_BYTES = 32
_LONGEST_TEXT = 10_000
_CONTINUES = b"+"
_AGENT = b"00O"
_LAST_WORDS = (b"Job succeeded", b"ERROR: Job failed")
"""The last line of the other agent's log, left out because the job goes on here."""
_NOT_OURS = ("log_start", "log_end")
"""Keys of a result that are left out: offsets in the other agent's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    command: Sequence[str]
    """The command whose stdin and stdout lead to the other agent."""
    key: str
    """Identifies this part of the job; the same if the order is written again after a crash."""
    results: Path
    steps: str
    work_dir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    variables: Sequence[Mapping[str, Any]] = ()
    masks: Sequence[str] = ()
    mask_prefixes: Sequence[str] = ()
    timeout_seconds: int = 0
    log_limit_bytes: int = 0
    policy: str = ""
    run_as: str = ""
    token: str = ""
    """Token of the other agent, if that listens on TCP."""
    patience_seconds: float = 300.0
    """How long the other agent may be out of reach."""
    hold_failed_seconds: int = 0
    """How long the other agent keeps a failed job for debugging."""
    connection_env: Mapping[str, str] | None = None
    """The environment of `command`; None: that of the program that starts it."""

    @classmethod
    def read(cls, file: Path) -> Self:
        try:
            value = json.loads(file.read_bytes())
            order = cls(**(value | {"results": Path(value["results"])}))
        except OSError as error:
            raise BadRequestError(f"{file}: {error.strerror}") from None
        except (ValueError, TypeError, KeyError) as error:
            raise BadRequestError(f"{file} is not an order to delegate: {error}") from None
        if not order.command or not order.key:
            raise BadRequestError(f"{file} is not an order to delegate: command and key must not be empty")
        return order

    @property
    def id(self) -> str:
        """Id of the job at the other agent: a hash of key, steps, masks and variables, so that nobody can guess it."""
        text = json.dumps([self.key, self.steps, list(self.masks), [dict(variable) for variable in self.variables]])
        return f"delegated-{hashlib.sha256(text.encode()).hexdigest()[:40]}"

    def request(self) -> pb.StartRequest:
        return pb.StartRequest(
            version=1,
            id=self.id,
            work_dir=self.work_dir,
            env=dict(self.env),
            variables=[pb.Variable(**variable) for variable in self.variables],
            steps=self.steps,
            masks=self.masks,
            mask_prefixes=self.mask_prefixes,
            timeout_seconds=self.timeout_seconds,
            log_limit_bytes=self.log_limit_bytes,
            policy=self.policy,
            run_as=self.run_as,
            hold_failed_seconds=self.hold_failed_seconds,
        )


def read_result(data: bytes, seq: int) -> dict[str, Any]:
    """Parse a step result from the other agent. Raises ValueError if its form is not the one on which this agent relies
    when it adds the result to the job, or if it is not the result number `seq`. That agent may be a program of the job,
    which sends anything."""
    if len(data) > LARGEST_RESULT_BYTES:
        raise ValueError(f"it has {len(data)} bytes, more than {LARGEST_RESULT_BYTES}")
    try:
        event = check_bounds(json.loads(data, parse_constant=_refuse_constant))
        text = json.dumps(event, ensure_ascii=False)
    except (ValueError, RecursionError, DefinitionError):
        raise ValueError("it is not JSON, or nested too deeply") from None
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text in it has half a surrogate pair, which no program can get") from None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str) or event.get("seq") != seq:
        raise ValueError(f"it is not an event with the number {seq}")
    if event["event"] in ("started", "finished") and not isinstance(event.get("path"), str):
        raise ValueError("a step has no path")
    if "path" in event and not (_is_text(event["path"]) and event["path"].startswith("/")):
        raise ValueError("its path does not begin with /")
    if event["event"] == "finished" and not _is_text(event.get("name")):
        raise ValueError("a finished step has no name")
    if not _is_text(event.get("environment", "")):
        raise ValueError("its environment is not a text")
    if not isinstance(event.get("outputs", {}), dict):
        raise ValueError("its outputs are not an object")
    exports = event.get("exports", {})
    if not isinstance(exports, dict) or not all(NAME.fullmatch(name) for name in exports):
        raise ValueError("its exports are not an object with names of variables")
    if not all(isinstance(value, str) and "\0" not in value for value in exports.values()):
        raise ValueError("an export is not a text without NUL")
    return event


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_TEXT


class Returns:
    """The progress of a delegated job, stored on disk: the results received so far, and how far the log was printed."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._place = results.with_name(results.name + ".place")
        self.next_seq = 1
        self.end: dict[str, Any] | None = None
        self.is_started = False
        self.log_offset = 0
        self.holds_line_end = False
        for line in read_whole_lines(results):
            event = json.loads(line)
            if event["event"] == "end":
                self.end = event
            else:
                self.next_seq = event["seq"] + 1
        if self._place.exists() and len(words := self._place.read_text().split()) == 2:
            self.is_started = True
            self.log_offset, self.holds_line_end = int(words[0]), words[1] == "1"

    def note_started(self) -> None:
        self.note_log(0, holds_line_end=False)
        self.is_started = True

    def note_log(self, offset: int, *, holds_line_end: bool) -> None:
        """Store that the log was printed up to `offset`. `holds_line_end`: except for the last line feed before it."""
        fd = os.open(self._place, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(fd, f"{offset:020d} {holds_line_end:d}\n".encode(), 0)
        finally:
            os.close(fd)
        self.log_offset, self.holds_line_end = offset, holds_line_end

    def add(self, result: bytes) -> None:
        """Store the next result. Raises ValueError if it is invalid, or if there are too many."""
        event = read_result(result, self.next_seq)
        size = self._results.stat().st_size if self._results.exists() else 0
        if self.next_seq > MOST_RESULTS or size + len(result) > LARGEST_RESULTS_BYTES:
            raise ValueError(f"{self.next_seq} results with {size} bytes are too many")
        for name in _NOT_OURS:
            event.pop(name, None)
        self._append(event)
        self.next_seq = event["seq"] + 1

    def finish(self, *, status: str, reason: str, exit_code: int, message: str, is_held: bool = False) -> None:
        """Store how the job ended. `is_held`: it failed, and the other agent keeps it for debugging."""
        event = {"event": "end", "status": status, "reason": reason, "exit_code": exit_code}
        event |= {"message": message[:LONGEST_MESSAGE]}
        event |= {"held": True} if is_held else {}
        self._append(event)
        self.end = event

    @property
    def exit_code(self) -> int:
        """Exit code for the delegating program: 0, 143 if cancelled, else that of the delegated job, or 1 if none."""
        assert self.end is not None
        if self.end["status"] == "success":
            return 0
        if self.end["status"] == "cancelled":
            return 143
        code: int = self.end["exit_code"]
        return code if 0 < code < 256 else 1

    def _append(self, event: Mapping[str, Any]) -> None:
        with open(os.open(self._results, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
            file.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")


class PlainLog:
    """Removes timestamps from the lines of a log. The line feed of a line is returned only with the next line, because
    the next line may be marked as its continuation, which needs no line feed."""

    def __init__(self, returns: Returns) -> None:
        self._returns = returns
        self._rest = b""

    @property
    def offset(self) -> int:
        return self._returns.log_offset + len(self._rest)

    def feed(self, data: bytes) -> tuple[bytes, int, bool]:
        """Add bytes of the log. Returns the text to print (complete lines without the last line feed), the log offset
        after it, and True if its line feed is still to be printed: what `note_log` stores once the text is printed.
        Raises ValueError for a line that is too long."""
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        offset, holds = self._returns.log_offset, self._returns.holds_line_end
        parts: list[bytes] = []
        for line in lines:
            text = line[HEADER_BYTES:]
            if line[HEADER_BYTES - 4 : HEADER_BYTES - 1] == _AGENT and text.startswith(_LAST_WORDS):
                continue
            if holds and line[HEADER_BYTES - 1 : HEADER_BYTES] != _CONTINUES:
                parts.append(b"\n")
            parts.append(text)
            holds = True
        if len(rest) > LONGEST_LOG_LINE:
            raise ValueError(f"a line of its log has more than {LONGEST_LOG_LINE} bytes")
        offset += len(self._rest) - len(rest)
        self._rest = rest
        return b"".join(parts), offset, holds
