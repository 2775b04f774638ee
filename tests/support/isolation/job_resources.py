"""A program that runs inside a job and creates what other jobs may attack: files, processes, memory, ports.

`job_resources.py leave NAME KEY` creates everything and exits, so that a later job can search for it. `hold` waits for
the file `release`, then prints which resources another job has changed. `job_resources.json` lists the resources.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

IPC_CREAT = 0o1000
SEGMENT_BYTES = 4096
POLL_SECONDS = 0.1
_sockets: list[socket.socket] = []
"""Keeps the sockets open until the program exits."""


def fill_shared_memory(key: int, mode: int, text: str) -> None:
    """Write a text to the System V segment of this key, which remains when the process ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(libc.shmget(key, SEGMENT_BYTES, IPC_CREAT | mode), None, 0)
    ctypes.memmove(address, text.encode(), len(text))


def create_resources(secret: str, name: str, key: int) -> tuple[dict[str, object], "subprocess.Popen[bytes]"]:
    """Create all resources. Returns their description and a helper process."""
    paths = {
        "work": Path.cwd() / "secret.txt",
        "private_tmp": Path(f"/tmp/{name}.private"),
        "open_tmp": Path(f"/tmp/{name}.open"),
        "private_shm": Path(f"/dev/shm/{name}.private"),
        "open_shm": Path(f"/dev/shm/{name}.open"),
    }
    for kind, path in paths.items():
        path.write_text(secret)
        path.chmod(0o644 if "open" in kind or kind == "work" else 0o600)
    fill_shared_memory(key, 0o600, secret)
    fill_shared_memory(key + 1, 0o666, secret)
    port, abstract = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0{name}")
    abstract.listen()
    _sockets.extend((port, abstract))
    # With its own session, like a daemon: a signal to the process group of the step does not end it.
    helper = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
    resources: dict[str, object] = {kind: str(path) for kind, path in paths.items()}
    resources |= {"key": key, "port": port.getsockname()[1], "abstract": name, "secret": secret}
    resources |= {"file_variable": os.environ.get("JOB_SECRET_FILE", ""), "token": os.environ["CI_JOB_TOKEN"]}
    resources |= {"uid": os.getuid(), "temporary": f"{Path.cwd()}.tmp"}
    return resources, helper


def find_changes(resources: dict[str, object], helper: "subprocess.Popen[bytes]") -> list[str]:
    """Names of the resources that another job has changed or removed."""
    kinds = ("work", "private_tmp", "open_tmp", "private_shm", "open_shm", "file_variable")
    paths = {kind: Path(str(resources[kind])) for kind in kinds}
    changed = [kind for kind, path in paths.items() if not path.exists() or path.read_text() != resources["secret"]]
    if helper.poll() is not None:
        changed.append("helper")
    return changed


def main() -> None:
    command, secret, name, key = sys.argv[1], os.environ["JOB_SECRET"], sys.argv[2], int(sys.argv[3])
    resources, helper = create_resources(secret, name, key)
    Path("job_resources.json").write_text(json.dumps(resources))
    Path("cached").mkdir(exist_ok=True)
    Path("cached/secret.txt").write_text(secret)
    if command == "leave":
        return
    Path("ready").touch()
    while not Path("release").exists():
        time.sleep(POLL_SECONDS)
    sys.stdout.write(f"changed by others: {','.join(find_changes(resources, helper)) or 'nothing'}\n")
    helper.kill()


if __name__ == "__main__":
    main()
