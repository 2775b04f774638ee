"""One step run here, as the agent runs it in a job: what `remuda step run` does between its options and its output.

The agent's own engine works in this process, in a folder that goes with it: no server and no job is needed. The step's
log goes to stderr as it comes. Packages that were fetched stay in the user's cache folder.
`remuda.cli.render.step_tree` puts the result together.
"""

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

from remuda.cli.exits import BadInputError
from remuda.cli.render.log_text import LogText
from remuda.cli.render.step_tree import result_of
from remuda.cli.signals import STOPPING, handled
from remuda.lib.clock import SystemClock
from remuda.lib.dataclass import dataclass
from remuda.lib.masking import TOKEN_PREFIXES
from remuda.steps.agent.jobs import VERSION, Jobs
from remuda.steps.agent.watch import Watcher
from remuda.steps.engine.process_execution import Surroundings
from remuda.steps.errors import AgentError, DefinitionError
from remuda.steps.language.checking import check_inputs
from remuda.steps.language.document import read_documents
from remuda.steps.language.escaping import escape
from remuda.steps.language.reading import read_step
from remuda.steps.language.references import parse_reference, without_credentials
from remuda.steps.language.values import Parameter as DeclaredInput
from remuda.steps.language.values import ReferenceKind, Step, ValueType
from remuda.steps.process.environment import clean_base
from remuda.steps.process.kernel import Changes, Pulse
from remuda.steps.resolving.definitions import LARGEST_BYTES
from remuda.steps.resolving.definitions import NAMES as FILES
from remuda.steps.resolving.resolver import Resolver
from remuda.wire.proto import agent_pb2 as pb

JOB = "step-run"
CALLED = "step"
"""Name of the entry that calls the step, where it is a package."""
ENDING = (*STOPPING, signal.SIGQUIT)
"""Nobody would stop the step after this command, so whatever a terminal can send ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for, checked as far as that goes before anything is loaded."""

    step: str
    inputs: Mapping[str, str]
    env: Mapping[str, str]
    variables: Mapping[str, str]
    timeout_seconds: int


def run_here(wanted: Wanted) -> dict[str, Any]:
    """Run it to its end; what is printed of it."""
    return asyncio.run(_run(wanted))


async def _run(wanted: Wanted) -> dict[str, Any]:
    resolver = Resolver(_cache_folder() / "steps")
    try:
        steps = await _document(wanted, resolver)
    except AgentError as error:
        raise BadInputError(f"{without_credentials(wanted.step)} cannot be loaded: {error}") from None
    request = pb.StartRequest(
        log_waiting_limit_bytes=-1,
        version=VERSION,
        id=JOB,
        work_dir=os.getcwd(),
        env=dict(wanted.env),
        variables=[pb.Variable(key=key, value=value) for key, value in wanted.variables.items()],
        steps=steps.text,
        mask_prefixes=TOKEN_PREFIXES,
        timeout_seconds=wanted.timeout_seconds,
    )
    with tempfile.TemporaryDirectory(prefix="remuda-step-") as folder:
        async with _agent(Path(folder), resolver) as jobs:
            try:
                await jobs.start(request)
            except AgentError as error:
                raise BadInputError(f"{without_credentials(wanted.step)} cannot be run: {error}") from None
            try:
                events, end = await _followed(jobs)
            finally:
                await jobs.close(JOB)
    return result_of(events, end, root=steps.root)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """The two documents of the request; `root` is the path of the step in it, empty where it is the whole."""

    text: str
    root: str


async def _document(wanted: Wanted, resolver: Resolver) -> _Document:
    """The request's document. The step is looked up once before it runs: its inputs have types."""
    base = Path.cwd()
    text = _local_reference(wanted.step) or wanted.step
    if bare := _bare(base, text):
        if wanted.inputs:
            raise BadInputError(f"--input: {wanted.step} is the document of a job, which has no inputs; use --env")
        return _Document(text=bare, root="")
    reference = parse_reference(text, "STEP")
    if reference.kind is ReferenceKind.DYNAMIC:
        raise BadInputError("STEP: an expression has no meaning here; write what it stands for")
    found = await resolver.resolve(reference, base=base, root=None, env=os.environ)
    is_local = found.kind is ReferenceKind.LOCAL
    step = read_step(found.text, file=_shown_file(found.folder / found.file) if is_local else found.reference)
    inputs = _typed(wanted.inputs, step)
    check_inputs(step.spec, inputs)
    call = {"name": CALLED, "step": text, "inputs": escape(inputs)}
    return _Document(text=f"{{}}\n---\n{json.dumps({'run': [call]})}", root=f"/{CALLED}")


def _local_reference(given: str) -> str:
    """A path of this machine as a reference; empty where the text is none."""
    path = Path(given)
    if given.startswith((".", "/")):
        return given
    return f"./{given}" if "://" not in given and path.exists() else ""


def _bare(base: Path, text: str) -> str:
    """The documents of a job whose file has the definition alone, without a spec before it; else nothing."""
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
        return ""  # whoever reads it next says why that cannot be done
    if len(documents) != 1 or not isinstance(documents[0].value, dict | list) or "spec" in documents[0].value:
        return ""
    read_step(content, file=_shown_file(path), bare=True)
    if isinstance(documents[0].value, list):
        content = "run:\n" + indent(content, " ", lambda line: True)
    return f"{{}}\n---\n{content}"


def _cache_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("remuda"))


def _shown_file(path: Path) -> str:
    """The file as messages name it."""
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)


def _typed(given: Mapping[str, str], step: Step) -> dict[str, Any]:
    """Inputs as their types want them: texts as they are, everything else read as YAML."""
    return {name: _value(name, text, step.spec.inputs.get(name)) for name, text in given.items()}


def _value(name: str, text: str, declared: DeclaredInput | None) -> Any:
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
    """The engine, as an agent has it."""
    pulse = Pulse()
    around = Surroundings(
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


async def _followed(jobs: Jobs) -> tuple[list[dict[str, Any]], pb.JobEnd]:
    """Show the log as it comes; the results and the end. An interrupt cancels: what always runs still does."""
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

    with handled(dict.fromkeys(ENDING, lambda: jobs.get(JOB).cancel())):
        watcher = Watcher(jobs)
        watcher.handle(pb.WatchRequest(subscribe=pb.Subscribe(id=JOB, result_seq=1)))
        async with asyncio.TaskGroup() as tasks:
            sender = tasks.create_task(watcher.send_all(take), name="log of the step")
            end = await ended
            sender.cancel()
        watcher.close()
    sys.stderr.write(log.finish())
    return events, end
