"""Installs the agent on a machine: examines it, chooses a form that runs there (a zipapp for an existing Python, or a
*frozen* executable with its own Python) and writes that as one file, whole or not at all.

`LOOK` (examines) and `PLACE` (writes) are POSIX sh scripts; they need a shell, uname, cat, chmod, mkdir, mv and rm. If
one form does not start there, the next one is tried. Callers with another way to run commands than `bootstrap` use
`LOOK`, `PLACE`, `read_facts` and `choose` directly."""

import shlex
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from remuda import __version__
from remuda.lib.dataclass import dataclass
from remuda.steps.errors import AgentError
from remuda.steps.pack.program import PROTOCOL, Form, digest_of, form, own_file
from remuda.steps.pack.zip_file import pack

PLACE_SECONDS = 300.0
"""Time limit of one command on the machine."""

LOOK = r"""
echo "system $(uname -s)"
echo "machine $(uname -m)"
for _name in python3 python3.14 python3.13 python3.12 python3.11; do
    _path=$(command -v "$_name" 2>/dev/null) || continue
    "$_path" -I -c 'import asyncio, ctypes, ssl, sys, zlib; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 ||
        continue
    echo "python $_path"
    break
done
if [ -x "$1" ]; then echo "present $("$1" version 2>/dev/null)"; fi
"""
PLACE = r"""
set -e
umask 022
case $1 in */*) mkdir -p "${1%/*}/" ;; esac
trap 'rm -f "$1.$$"' EXIT
cat >"$1.$$"
chmod 755 "$1.$$"
mv -f "$1.$$" "$1"
trap - EXIT
exec "$1" version
"""

_MACHINES = {62: "x86_64", 183: "aarch64"}
"""By the number in the header of an ELF file."""

Run = Callable[[str, bytes], tuple[int, bytes, bytes]]
"""Runs a shell command line on the machine with an input. Returns exit code, stdout and stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What the script `LOOK` found out about a machine: system, processor, Python, installed agent."""

    system: str = ""
    machine: str = ""
    python: str = ""
    """Path of an interpreter that can run the zipapp."""
    present: str = ""
    """Output of the command `version` of the agent that is already installed; empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A form of the agent to install: a zipapp, or a frozen executable (with its own Python)."""

    form: Form
    content: bytes
    digest: str
    machine: str = ""
    """Processor that a frozen agent is for."""


def own_version() -> str:
    """Return a line identifying this program: version, protocol, form (such as zipapp), digest if it is one file."""
    file = own_file()
    digest = "" if file is None else digest_of(file.read_bytes())
    return f"remuda-agent {__version__} protocol {PROTOCOL} {form()} {digest}".rstrip()


def command_line(script: str, file: str) -> str:
    """Return the command line that runs `LOOK` or `PLACE` on the machine. `file`: path of the agent there."""
    return f"sh -c {shlex.quote(script)} sh {shlex.quote(file)}"


def read_facts(text: str) -> MachineFacts:
    facts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    return MachineFacts(**{name: facts.get(name, "").strip() for name in ("system", "machine", "python", "present")})


def choose(facts: MachineFacts, offers: Sequence[Offer]) -> list[Offer]:
    """Return the forms of the agent that can run on the machine, zipapps first. Raises AgentError if none can."""
    if not facts.system:
        raise AgentError("the machine does not say what it is: no shell answers there, or it has no `uname`")
    fitting = [offer for offer in offers if offer.form is Form.ZIPAPP and facts.python]
    if facts.system == "Linux":
        fitting += [offer for offer in offers if offer.form is Form.FROZEN and offer.machine == facts.machine]
    if not fitting:
        raise AgentError(
            f"no form of the agent runs on that machine ({facts.system} {facts.machine}, "
            f"{facts.python or 'no Python 3.11 or newer'}): install Python there, or give a frozen agent for "
            f"{facts.machine} (make frozen) with --frozen, or frozen_agent in config.toml"
        )
    return fitting


def for_interpreter(zipapp: bytes, python: str) -> bytes:
    """Return the zipapp with the interpreter `python` in its `#!` line. A shorter line is padded to the old length: the
    offsets in a zip archive allow more bytes in front of it than before, but not fewer."""
    head, _, rest = zipapp.partition(b"\n")
    return (b"#!" + python.encode() + b" -I").ljust(len(head)) + b"\n" + rest


def bootstrap(file: str, *, through: str | None, frozen: Path | None) -> str:
    """Install the agent as `file`. Returns a message with path and version. Raises AgentError if no form of it runs
    there. `through`: a command that runs a shell command on another machine, such as `ssh HOST`; None: this machine.
    `frozen`: a frozen executable to try if the zipapp does not run."""
    run = _runner(shlex.split(through) if through else ["sh", "-c"])
    if not through:
        file = str(Path(file).absolute())
    code, out, err = run(command_line(LOOK, file), b"")
    if code:
        raise AgentError(f"the machine cannot be examined (exit code {code}): {_text(err)}")
    facts = read_facts(out.decode("utf-8", "replace"))
    failures = []
    for offer in choose(facts, offers(frozen)):
        if offer.digest in facts.present.split():
            return f"{file}: {facts.present} (already installed)"
        content = for_interpreter(offer.content, facts.python) if offer.form is Form.ZIPAPP else offer.content
        code, out, err = run(command_line(PLACE, file), content)
        version = _text(out)
        if code == 0 and offer.digest in version.split():
            return f"{file}: {version}"
        failures.append(f"{offer.form}: exit code {code} {version} {_text(err)}".strip())
    raise AgentError(f"the agent does not run as {file}: {'; '.join(failures)}")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()


def machine_of(program: bytes) -> str:
    """Return the processor that an executable is built for, as `uname -m` names it; empty if unknown."""
    return _MACHINES.get(int.from_bytes(program[18:20], "little"), "") if program.startswith(b"\x7fELF") else ""


def offers(frozen: Path | None) -> list[Offer]:
    """Return the forms of the agent that can be installed: this program (packed as a zipapp if it is not one file), and
    the executable `frozen` unless None. Raises AgentError if `frozen` is not a frozen agent."""
    own = own_file()
    contents = [own.read_bytes()] if own is not None else [_pack_self()]
    if frozen is not None:
        contents.append(frozen.read_bytes())
        if not machine_of(contents[-1]):
            raise AgentError(f"{frozen} is not a frozen agent; make one with `make frozen`")
    return [_offer(content) for content in contents]


def _offer(content: bytes) -> Offer:
    machine = machine_of(content)
    what = Form.FROZEN if machine else Form.ZIPAPP
    return Offer(form=what, content=content, digest=digest_of(content), machine=machine)


def _pack_self() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        pack(Path(folder) / "agent.pyz")
        return (Path(folder) / "agent.pyz").read_bytes()


def _runner(command: Sequence[str]) -> Run:
    def run(line: str, data: bytes) -> tuple[int, bytes, bytes]:
        try:
            done = subprocess.run([*command, line], input=data, capture_output=True, timeout=PLACE_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise AgentError(f"`{shlex.join(command)}` gave no answer within {PLACE_SECONDS:.0f} s") from None
        return done.returncode, done.stdout, done.stderr

    return run
