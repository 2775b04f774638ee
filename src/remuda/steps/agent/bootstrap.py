"""Puts the agent on a machine: looks what the machine has, picks the form that runs there, and places it as one file.

`LOOK` and `PLACE` are POSIX sh and all that runs there before the agent does, with nothing but a shell, uname, cat,
chmod and mv. `read_facts` and `choose` are pure; `bootstrap` is the shell around them for a command such as `ssh HOST`,
and whoever has another way to run a command line there needs only the four. Placing is whole or not at all and may be
repeated: what is there already is left alone. A form that does not start there gives way to the other.
"""

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
"""How long one command may take there."""

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
"""By the number in an executable's head."""

Run = Callable[[str, bytes], tuple[int, bytes, bytes]]
"""Runs a shell command line there with an input: exit code, stdout, stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What a machine has."""

    system: str = ""
    machine: str = ""
    python: str = ""
    """Path of one that can run the zipapp."""
    present: str = ""
    """What the program that is there already says of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A form of the agent that can be placed."""

    form: Form
    content: bytes
    digest: str
    machine: str = ""
    """For which processor a frozen one is."""


def own_version() -> str:
    """One line that tells this program from any other."""
    file = own_file()
    digest = "" if file is None else digest_of(file.read_bytes())
    return f"remuda-agent {__version__} protocol {PROTOCOL} {form()} {digest}".rstrip()


def command_line(script: str, file: str) -> str:
    """A script of ours as one command line for a shell there."""
    return f"sh -c {shlex.quote(script)} sh {shlex.quote(file)}"


def read_facts(text: str) -> MachineFacts:
    found = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    return MachineFacts(**{name: found.get(name, "").strip() for name in ("system", "machine", "python", "present")})


def choose(facts: MachineFacts, offers: Sequence[Offer]) -> list[Offer]:
    """What may run there, the best first; raises where nothing does."""
    if not facts.system:
        raise AgentError("the machine does not say what it is: no shell answers there, or it has no `uname`")
    fitting = [offer for offer in offers if offer.form is Form.ZIPAPP and facts.python]
    if facts.system == "Linux":
        fitting += [offer for offer in offers if offer.form is Form.FROZEN and offer.machine == facts.machine]
    if not fitting:
        raise AgentError(
            f"nothing here runs on that machine ({facts.system} {facts.machine}, "
            f"{facts.python or 'no Python 3.11 or newer'}): install Python there, or give a frozen agent for "
            f"{facts.machine} (make frozen) with --frozen, or frozen_agent in config.toml"
        )
    return fitting


def for_interpreter(zipapp: bytes, python: str) -> bytes:
    """The zipapp with the interpreter that was found in its first line.

    The line may grow and never shrinks: what the zip says of places in itself would point before its beginning.
    """
    head, _, rest = zipapp.partition(b"\n")
    return (b"#!" + python.encode() + b" -I").ljust(len(head)) + b"\n" + rest


def bootstrap(file: str, *, through: str | None, frozen: Path | None) -> str:
    """Have the agent in that file, on this machine or behind a command; a line that says what was done."""
    run = _runner(shlex.split(through) if through else ["sh", "-c"])
    if not through:
        file = str(Path(file).absolute())
    code, out, err = run(command_line(LOOK, file), b"")
    if code:
        raise AgentError(
            f"the machine cannot be looked at (exit code {code}): {err.decode('utf-8', 'replace').strip()}"
        )
    facts = read_facts(out.decode("utf-8", "replace"))
    failures = []
    for offer in choose(facts, offers(frozen)):
        if offer.digest in facts.present.split():
            return f"{file}: {facts.present} (was there)"
        content = for_interpreter(offer.content, facts.python) if offer.form is Form.ZIPAPP else offer.content
        code, out, err = run(command_line(PLACE, file), content)
        said = _text(out)
        if code == 0 and offer.digest in said.split():
            return f"{file}: {said}"
        failures.append(f"{offer.form}: exit code {code} {said} {_text(err)}".strip())
    raise AgentError(f"the agent does not run as {file}: {'; '.join(failures)}")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()


def machine_of(program: bytes) -> str:
    """For which processor an executable is, as `uname -m` names it; empty when it is none of ours."""
    return _MACHINES.get(int.from_bytes(program[18:20], "little"), "") if program.startswith(b"\x7fELF") else ""


def offers(frozen: Path | None) -> list[Offer]:
    """What can be placed: this program itself, or packed where it is many files, and the frozen one that was named."""
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
