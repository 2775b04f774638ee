"""Runs one step as an agent runs it in a job, for `remuda step run`. The agent's engine works in this process, in a
temporary folder, without server or job. The step's log goes to stderr. Downloaded packages stay in the user's cache."""

import asyncio
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import indent
from typing import Any

from remuda.lib import event_loop
from remuda.lib.clock import SystemClock
from remuda.lib.dataclass import dataclass
from remuda.lib.exits import BadInputError
from remuda.lib.masking import TOKEN_PREFIXES
from remuda.lib.signals import STOPPING, handle_signals
from remuda.localrun.render.log_text import LogText
from remuda.localrun.render.step_tree import result_of
from remuda.steps.agent.jobs import VERSION, Jobs
from remuda.steps.agent.watch import Watcher
from remuda.steps.engine.process_execution import AgentContext
from remuda.steps.errors import AgentError, DefinitionError
from remuda.steps.language.checking import check_inputs
from remuda.steps.language.document import read_documents
from remuda.steps.language.escaping import escape
from remuda.steps.language.reading import read_step
from remuda.steps.language.references import parse_reference, without_credentials
from remuda.steps.language.values import Parameter as DeclaredInput
from remuda.steps.language.values import ReferenceKind, ValueType
from remuda.steps.process.environment import clean_base
from remuda.steps.process.kernel import Changes, Pulse
from remuda.steps.resolving.definitions import LARGEST_BYTES
from remuda.steps.resolving.definitions import NAMES as FILES
from remuda.steps.resolving.resolver import Resolver
from remuda.wire.proto import agent_pb2 as pb

JOB = "step-run"
CALLED = "step"
"""Name of the entry that calls the step, if it is a package."""
ENDING = (*STOPPING, signal.SIGQUIT)
"""Signals that cancel the step. SIGQUIT is one of them: if it killed this command, the step would keep running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """The options of `remuda step run`: the step, its inputs and variables, and the timeout."""

    step: str
    inputs: Mapping[str, str]
    env: Mapping[str, str]
    variables: Mapping[str, str]
    timeout_seconds: int


def run_here(request: StepRequest) -> dict[str, Any]:
    return event_loop.run(_run(request))


async def _run(request: StepRequest) -> dict[str, Any]:
    resolver = Resolver(_cache_folder() / "steps")
    try:
        steps = await _document(request, resolver)
    except AgentError as error:
        raise BadInputError(f"{without_credentials(request.step)} cannot be loaded: {error}") from None
    start = pb.StartRequest(
        log_waiting_limit_bytes=-1,
        version=VERSION,
        id=JOB,
        work_dir=os.getcwd(),
        env=dict(request.env),
        variables=[pb.Variable(key=key, value=value) for key, value in request.variables.items()],
        steps=steps.text,
        mask_prefixes=TOKEN_PREFIXES,
        timeout_seconds=request.timeout_seconds,
    )
    with tempfile.TemporaryDirectory(prefix="remuda-step-") as folder:
        async with _agent(Path(folder), resolver) as jobs:
            try:
                await jobs.start(start)
            except AgentError as error:
                raise BadInputError(f"{without_credentials(request.step)} cannot be run: {error}") from None
            try:
                events, end = await _follow(jobs)
            finally:
                await jobs.close(JOB)
    return result_of(events, end, root=steps.root)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """The YAML text to run, and in `root` the path of the called step; empty if the user runs a whole list of steps."""

    text: str
    root: str


async def _document(request: StepRequest, resolver: Resolver) -> _Document:
    """Build the YAML text that calls the step with its inputs. Resolves the step first, because its spec declares the
    types of the inputs. Raises BadInputError or AgentError if the step or its inputs are invalid."""
    base = Path.cwd()
    text = _local_reference(request.step) or request.step
    if bare := _read_bare(base, text):
        if request.inputs:
            raise BadInputError(f"--input: {request.step} has no spec, so it has no inputs; use --env")
        return _Document(text=bare, root="")
    reference = parse_reference(text, "STEP")
    if reference.kind is ReferenceKind.DYNAMIC:
        raise BadInputError("STEP: expressions are not evaluated here; write the reference itself")
    source = await resolver.resolve(reference, base=base, root=None, env=os.environ)
    is_local = source.kind is ReferenceKind.LOCAL
    step = read_step(source.text, file=_relative_name(source.folder / source.file) if is_local else source.reference)
    inputs = {name: _value(name, value, step.spec.inputs.get(name)) for name, value in request.inputs.items()}
    check_inputs(step.spec, inputs)
    call = {"name": CALLED, "step": text, "inputs": escape(inputs)}
    return _Document(text=f"{{}}\n---\n{json.dumps({'run': [call]})}", root=f"/{CALLED}")


def _local_reference(text: str) -> str:
    """Return a local path as a step reference (`./name`); '' if the text is not a local path."""
    if text.startswith((".", "/")):
        return text
    return f"./{text}" if "://" not in text and Path(text).exists() else ""


def _read_bare(base: Path, text: str) -> str:
    """Read a step file that has no spec (no declared inputs): a definition, or only a list of steps. Returns a YAML
    text that runs it, or '' for any other file. `text`: the path of the file or its folder, relative to `base`."""
    if not text.startswith((".", "/")):
        return ""
    try:
        path = base / text
        if path.is_dir():
            path = next((path / name for name in FILES if (path / name).is_file()), path)
        if not path.is_file() or path.stat().st_size > LARGEST_BYTES:
            return ""
        content = path.read_text(encoding="utf-8-sig")
        documents = read_documents(content)
    except (OSError, UnicodeDecodeError, DefinitionError):
        return ""  # the resolver reports the error
    if len(documents) != 1 or not isinstance(documents[0].value, dict | list) or "spec" in documents[0].value:
        return ""
    read_step(content, file=_relative_name(path), bare=True)
    if isinstance(documents[0].value, list):
        content = "run:\n" + indent(content, " ", lambda line: True)
    return f"{{}}\n---\n{content}"


def _cache_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("remuda"))


def _relative_name(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)


def _value(name: str, text: str, declared: DeclaredInput | None) -> Any:
    """Convert the text of `--input` to the declared type: a string is used as it is, other types are parsed as YAML.
    Raises BadInputError if the text is not valid YAML."""
    if declared is None or declared.type is ValueType.STRING:
        return text
    try:
        documents = read_documents(text)
    except DefinitionError as error:
        why = "" if declared.sensitive else f": {error}"
        raise BadInputError(f"--input {name}: not a {declared.type} written as YAML or JSON{why}") from None
    if len(documents) > 1:
        raise BadInputError(f"--input {name}: one value is needed, not several documents")
    return documents[0].plain() if documents else None


@asynccontextmanager
async def _agent(folder: Path, resolver: Resolver) -> AsyncIterator[Jobs]:
    """Run the agent's engine, without its gRPC server, until the end of the `async with` block; yields its jobs."""
    pulse = Pulse()
    around = AgentContext(
        clock=SystemClock(),
        pulse=pulse,
        changes=Changes(pulse),
        base_env=clean_base(os.environ),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        resolver=resolver,
    )
    async with asyncio.TaskGroup() as tasks:
        jobs = Jobs(folder / "jobs", around, tasks)
        jobs.adopt()
        yield jobs
        jobs.abandon()
    around.changes.close()


async def _follow(jobs: Jobs) -> tuple[list[dict[str, Any]], pb.JobEnd]:
    """Print the job's log to stderr until the job ends. Returns the step events and the agent's message about the end.
    An interrupt cancels the job; steps with the condition `always()` still run."""
    events: list[dict[str, Any]] = []
    ended: asyncio.Future[pb.JobEnd] = asyncio.get_running_loop().create_future()
    log = LogText()

    async def take(event: pb.WatchEvent) -> None:
        match event.WhichOneof("event"):
            case "log":
                sys.stderr.write(log.feed(event.log.data))
                sys.stderr.flush()
            case "result":
                events.append(json.loads(event.result.json))
            case "end":
                ended.set_result(event.end)

    with handle_signals(dict.fromkeys(ENDING, lambda: jobs.get(JOB).cancel())):
        watcher = Watcher(jobs)
        watcher.handle(pb.WatchRequest(subscribe=pb.Subscribe(id=JOB, result_seq=1)))
        async with asyncio.TaskGroup() as tasks:
            sender = tasks.create_task(watcher.send_all(take), name="log of the step")
            end = await ended
            sender.cancel()
        watcher.close()
    sys.stderr.write(log.finish())
    return events, end
