"""The job as a tree of steps with their states. Pure: no I/O. Only journal events (`replay`) and a cancel change it.

A node is one entry of a list of steps. When it begins, the agent learns what it is: a command, a list of steps, an
environment with inner steps (between the steps that open and close it), or a group whose members run at the same time.
The position of a node is its *key*, the child indexes on the path from the root, because names need not be unique."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any

from remuda.lib.dataclass import dataclass
from remuda.steps.job_tree.outcome import Cause, Finished, Status
from remuda.steps.language.evaluate import runs_after_failure
from remuda.steps.language.values import FETCHED, Call, Definition, Exec, Place, ReferenceKind, Spec, Step

ENVIRONMENT = "environment"
"""Output of a step that has opened an environment: how to run something there."""
OPEN, DELEGATE, CLOSE = "+open", "+delegate", "+close"
"""Names of the steps around an environment, and of the one that has another agent run the inner steps. No written step
can have such a name."""
INSERTED = "inserted"
"""The origin of a step that a policy inserted."""
ONLY = "step"
"""Name of the only step, in a job without a list."""
LONGEST_PATH = 32
"""How deep steps may call steps."""
MOST_STEPS = 10_000
"""How many steps a job may start, attempts counted."""

NOTHING = Step(spec=Spec(), definition=Definition())


class State(Enum):
    WAITING = 0
    ENTERED = 1  # its command runs or is about to, or its list does
    DELAYED = 2  # it failed and is tried again
    FINISHED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A step as it was found and read: its definition, and which reference, digest and version it comes from."""

    step: Step
    reference: str
    """Canonical, without credentials."""
    kind: ReferenceKind | None = None
    """None: a group or the job itself, for which nothing is looked up."""
    folder: str = ""
    """Where the agent finds the definition file. Local references are relative to it."""
    visible_folder: str = ""
    """Where the step's commands find that folder, if they cannot see it at its own path: in a container or sandbox."""
    root: str | None = None
    text: str = ""
    """Text of the definition, for the journal: the file may change before it is read again."""
    digest: str | None = None
    commit: str | None = None
    version: str | None = None
    remark: str = ""
    """A warning for the user about how it was found."""
    real: str = ""
    """Of a local step: the path of its definition file without links."""

    @property
    def func_dir(self) -> str:
        return self.visible_folder or self.folder

    @property
    def is_fetched(self) -> bool:
        """True if the step belongs to a package that was fetched from a repository or registry."""
        return self.kind in FETCHED and self.root is not None

    @property
    def is_script(self) -> bool:
        return self.kind is ReferenceKind.BUILTIN and self.reference.startswith("builtin://script@")

    @property
    def is_program(self) -> bool:
        """True if the command may be a built-in program: the step is built-in or belongs to no package."""
        return self.kind in (ReferenceKind.BUILTIN, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """The evaluated values of a step that has begun: inputs, variables and command."""

    inputs: Mapping[str, Any] = field(default_factory=dict)
    invocation_env: Mapping[str, str] = field(default_factory=dict)
    definition_env: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    work_dir: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """What steps delegated by another agent see of their original job: inputs, earlier outputs, and exports."""

    inputs: Mapping[str, Any] = field(default_factory=dict)
    steps: Mapping[str, Any] = field(default_factory=dict)
    """Name to {"outputs": ...}."""
    exports: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inserted:
    """Steps that a policy inserts before and after a job or a step."""

    before: tuple[Call, ...] = ()
    after: tuple[Call, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.before or self.after)


NOTHING_INSERTED = Inserted()


class Node:
    __slots__ = (
        "attempt",
        "call",
        "cause",
        "cause_text",
        "children",
        "cursor",
        "decisive",
        "entered",
        "environment",
        "exports",
        "folded",
        "index",
        "is_after",
        "is_inserted",
        "is_surrounded",
        "loaded",
        "log_start",
        "outputs",
        "parent",
        "path",
        "phase",
        "result",
        "retry_at",
        "serial",
        "started_at",
        "started_text",
        "state",
        "steps",
        "stream",
    )  # fmt: skip

    def __init__(self, call: Call, parent: "Node | None", index: int, phase: str = "") -> None:
        self.call = call
        self.parent = parent
        self.index = index
        self.phase = phase
        """OPEN, DELEGATE or CLOSE of the environment that the parent makes; else empty."""
        self.path: str = "" if parent is None else f"{parent.path}/{call.name}"
        self.is_after = parent is not None and call.condition is not None and runs_after_failure(call.condition)
        """True if it runs after a failure: what stops the steps around it does not stop it."""
        self.is_inserted: bool = call.origin == INSERTED or (parent is not None and parent.is_inserted)
        """True if a policy inserted it, or the step that it is part of."""
        self.is_surrounded = False
        """True if the steps that a policy wants around it are in its list already."""
        self.state = State.WAITING
        self.attempt = 1
        self.retry_at = 0.0
        self.result: Finished | None = None
        self.cause: Cause | None = None
        """Why the agent ended it and everything below it."""
        self.cause_text = ""
        """More about the cause, for a message."""
        self.outputs: Mapping[str, Any] = {}
        self._forget()

    def _forget(self) -> None:
        self.loaded: Loaded | None = None
        self.entered = Entered()
        self.serial = -1
        self.stream = 0
        self.started_at = 0.0
        self.started_text = ""
        self.log_start = 0
        self.folded = 0
        """How many results of another agent were applied."""
        self.children: list[Node] = []
        self.cursor = 0
        """How many of the children are finished, if they run one after the other."""
        self.decisive: Node | None = None
        """The child that makes this one fail: the first in the list that failed without continue_on_error."""
        self.steps: dict[str, Any] = {}
        """What expressions in its own list see under `steps`."""
        self.exports: dict[str, str] = {}
        """Of an inserted step: the exports of its inner steps, for later inner steps."""
        self.environment: Mapping[str, Any] | None = None
        """How to run something in the environment that it has opened."""

    @property
    def key(self) -> list[int]:
        return [] if self.parent is None else [*self.parent.key, self.index]

    @property
    def definition(self) -> Definition:
        assert self.loaded is not None
        return self.loaded.step.definition

    @property
    def is_group(self) -> bool:
        return bool(self.call.parallel)

    @property
    def has_command(self) -> bool:
        return self.loaded is not None and (self.definition.exec is not None or self.loaded.is_script)

    @property
    def makes_environment(self) -> bool:
        return self.loaded is not None and self.definition.environment is not None

    @property
    def frame(self) -> "Node":
        """The enclosing step whose file contains this entry: expressions see its inputs, folder and list."""
        assert self.parent is not None
        node = self.parent
        while node.parent is not None and (node.is_group or node.makes_environment):
            node = node.parent
        return node

    @property
    def host(self) -> "Node | None":
        """The step that opened the environment (such as a container) in which this one runs; None: on the machine. A
        step that a policy inserted never runs in one of a user's step, which could change what its commands do."""
        node = self
        while node.parent is not None:
            is_out_of_bounds = self.is_inserted and node.parent.is_users
            if node.parent.makes_environment and not node.phase and not is_out_of_bounds:
                return node.parent
            node = node.parent
        return None

    @property
    def is_users(self) -> bool:
        """True if a user wrote the entry, not the manager, a policy, or a package that a policy inserted."""
        return self.call.origin == "user" and not self.is_inserted

    @property
    def insertion(self) -> "Node | None":
        """If a policy inserted this step or a step around it: the outermost of them; else None."""
        node, insertion = self, self if self.is_inserted else None
        while node.parent is not None and node.parent.is_inserted:
            node = insertion = node.parent
        return insertion

    @property
    def follows_job(self) -> bool:
        """True if a policy inserted this step after all of the job's own steps: no later step is the job's."""
        if self.parent is None or self.parent.parent is not None:
            return False
        return all(node.is_inserted for node in self.parent.children[self.index :])

    def up(self) -> Iterator["Node"]:
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def again(self) -> None:
        self._forget()
        self.cause = None
        self.attempt += 1
        self.state = State.WAITING


class Tree:
    def __init__(
        self,
        step: Step,
        *,
        work_dir: str,
        around: Inserted = NOTHING_INSERTED,
        insertable: Mapping[str, Call] | None = None,
        context: Inherited | None = None,
    ) -> None:
        """`around`: steps that a policy inserts before and after the job. `insertable`: by name, steps that it inserts
        around single steps. `context`: if another agent delegated these steps, what they can refer to from their
        original job."""
        place = Place(file="job", line=1)
        self.root = Node(Call(name="", place=place), None, 0)
        self.root.loaded = Loaded(step=step, reference="", folder=work_dir)
        inherited = context or Inherited()
        self.root.entered = Entered(work_dir=work_dir, inputs=inherited.inputs)
        self.root.steps = dict(inherited.steps)
        self.root.state = State.ENTERED
        own = step.definition.run or (Call(name=ONLY, place=place),)
        calls = (*around.before, *own, *around.after)
        self.root.children = [Node(call, self.root, index) for index, call in enumerate(calls)]
        if not step.definition.run:
            # The job is one command or one environment, which becomes its only step.
            only = self.root.children[len(around.before)]
            only.loaded, self.root.loaded = self.root.loaded, Loaded(step=NOTHING, reference="", folder=work_dir)
        self._insertable = insertable or {}
        self.cancelled = False
        self.has_stopped = False
        """True once there was a reason to end any step."""
        self.timed_out = False
        self.exports: dict[str, str] = dict(inherited.exports)
        """Exports of all steps so far."""
        self.masks: list[str] = []
        """Texts that steps asked to be masked, and sensitive values."""
        self.serials = 0
        """How many attempts were begun."""
        self.open: dict[int, Node] = {}
        """Nodes that have begun and not ended, by their serial numbers."""

    def find(self, key: list[int]) -> Node:
        node = self.root
        for index in key:
            node = node.children[index]
        return node

    def free_stream(self) -> int:
        """Return a number to mark a command's log lines, different from those of all running commands."""
        used = {node.stream for node in self.open.values() if node.has_command}
        return next(number for number in range(1, 256) if number not in used)

    def enter(self, node: Node, loaded: Loaded, entered: Entered, *, serial: int, stream: int, at: float) -> None:
        """Begin a step at `at` and create its inner nodes. `serial`: attempt number. `stream`: number on log lines."""
        node.loaded, node.entered = loaded, entered
        node.serial, node.stream, node.started_at = serial, stream, at
        node.state = State.ENTERED
        self.serials = serial + 1
        self.open[serial] = node
        definition = loaded.step.definition
        if node.is_group:
            calls = [(call, "") for call in node.call.parallel]
        elif definition.environment is not None:
            calls = [(_phase_call(node, OPEN), OPEN), *((call, "") for call in node.call.inner)]
            if definition.environment.close is not None:
                calls.append((_phase_call(node, CLOSE), CLOSE))
        else:
            calls = [(call, "") for call in definition.run]
        node.children = [Node(call, node, index, phase) for index, (call, phase) in enumerate(calls)]

    def surround(self, node: Node, before: Sequence[str], after: Sequence[str]) -> None:
        """Insert steps that a policy requires before and after `node`, which is about to begin. `before`, `after`:
        their names in `insertable`. Not possible among parallel steps."""
        assert node.parent is not None
        siblings = node.parent.children
        first, last = ([Node(self._insertable[name], node.parent, 0) for name in names] for names in (before, after))
        siblings[node.index : node.index + 1] = [*first, node, *last]
        for index, sibling in enumerate(siblings):
            sibling.index = index
        node.is_surrounded = True

    def finish(
        self, node: Node, result: Finished, outputs: Mapping[str, Any], exports: Mapping[str, str], masks: list[str]
    ) -> None:
        node.result, node.outputs = result, outputs
        node.state = State.FINISHED
        self._leave(node, exports, masks)
        assert node.parent is not None
        parent = node.parent
        parent.cursor = _first_unfinished(parent)
        decides = result.status is Status.FAILURE and not node.call.continue_on_error
        if decides and (parent.decisive is None or node.index < parent.decisive.index):
            parent.decisive = node
        if not node.phase:
            node.frame.steps[node.call.name] = {"outputs": outputs}
        elif node.phase == OPEN:
            parent.environment = outputs.get(ENVIRONMENT)
            parent.outputs = {name: value for name, value in outputs.items() if name != ENVIRONMENT}
            if "agent" in (parent.environment or {}):
                self._delegate(parent)
        # The children of a finished step are not needed any more.
        node.children = []

    def _delegate(self, host: Node) -> None:
        """Replace the inner steps of the environment of `host` by one step that has another agent run them."""
        first, *inner = host.children
        close = [child for child in inner if child.phase == CLOSE]
        instead = [Node(_phase_call(host, DELEGATE), host, 1, DELEGATE)] if len(inner) > len(close) else []
        host.children = [first, *instead, *close]
        for index, child in enumerate(host.children):
            child.index = index

    def apply_delegated_result(self, node: Node, event: Mapping[str, Any]) -> None:
        """Record a result of a step that another agent has run for `node` (delegation), so that later steps see its
        outputs and exports."""
        node.folded += 1
        assert node.parent is not None
        if "name" in event:
            node.parent.frame.steps[event["name"]] = {"outputs": event["outputs"]}
            self.exports.update(event["exports"])

    def delay(self, node: Node, result: Finished, masks: list[str], *, until: float) -> None:
        self._leave(node, {}, masks)
        node.result, node.retry_at, node.state = result, until, State.DELAYED

    def stop(self, node: Node, cause: Cause, text: str = "") -> None:
        self.has_stopped = True
        if node.cause is not Cause.CANCEL:
            node.cause, node.cause_text = cause, text
        if cause is Cause.JOB_TIMEOUT:
            self.timed_out = True
        elif cause is Cause.CANCEL:
            self.cancelled = True

    def _leave(self, node: Node, exports: Mapping[str, str], masks: list[str]) -> None:
        self.open.pop(node.serial, None)
        self.exports.update(exports)
        if exports and (insertion := node.insertion) is not None:
            insertion.exports.update(exports)
        self.masks += masks


def _first_unfinished(parent: Node) -> int:
    cursor = parent.cursor
    while cursor < len(parent.children) and parent.children[cursor].state is State.FINISHED:
        cursor += 1
    return cursor


def _phase_call(node: Node, phase: str) -> Call:
    if phase != CLOSE:
        return Call(name=phase, place=node.call.place, origin=node.call.origin)
    # Closing something elsewhere may take long, also after the job's timeout. Users cannot set this.
    seconds = node.entered.inputs.get("close_seconds") if node.call.origin != "user" else None
    return Call(
        name=phase,
        place=node.call.place,
        condition="always()",
        origin=node.call.origin,
        timeout_seconds=float(seconds) if isinstance(seconds, int | float) and seconds else None,
    )


def phase_step(node: Node) -> Step:
    """Return the step that opens or closes the parent's environment, or delegates its inner steps to another agent."""
    assert node.parent is not None
    if node.phase == DELEGATE:
        return Step(spec=Spec(), definition=Definition(exec=Exec(command=(DELEGATE,))))
    outer = node.parent.loaded
    assert outer is not None
    environment = outer.step.definition.environment
    assert environment is not None
    command: Exec | None = environment.open if node.phase == OPEN else environment.close
    return Step(spec=Spec(), definition=Definition(exec=command))


def is_confined(step: Step) -> bool:
    """True if the manager has put an environment, such as a container, around steps of the job."""
    return any(call.inner and call.origin != "user" for call in step.definition.run)


def confines_own_steps(call: Call) -> bool:
    """True if the manager added this call, and it opens an environment (such as a container) around a user's steps."""
    return call.origin == "compiled" and any(inner.origin == "user" for inner in call.inner)
