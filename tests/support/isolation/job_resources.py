"""What a job has that other jobs may want: files, processes, memory, ports. A program that runs inside a job.

`belongings.py leave NAME KEY` makes all of it and ends, for a later job to look for it. `hold` waits until the file
`release` is there, looks whether anybody has changed something, and says so. What there is, and where, stands in
`belongings.json`.
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
KEPT_BYTES = 4096
LOOK_SECONDS = 0.1
_held: list[socket.socket] = []


def fill_shared_memory(key: int, mode: int, text: str) -> None:
    """Put a text into a segment of this key, which stays when the process ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(libc.shmget(key, KEPT_BYTES, IPC_CREAT | mode), None, 0)
    ctypes.memmove(address, text.encode(), len(text))


def make(secret: str, name: str, key: int) -> tuple[dict[str, object], "subprocess.Popen[bytes]"]:
    """Make everything; what there is, and a helper process."""
    places = {
        "work": Path.cwd() / "secret.txt",
        "private_tmp": Path(f"/tmp/{name}.private"),
        "open_tmp": Path(f"/tmp/{name}.open"),
        "private_shm": Path(f"/dev/shm/{name}.private"),
        "open_shm": Path(f"/dev/shm/{name}.open"),
    }
    for kind, path in places.items():
        path.write_text(secret)
        path.chmod(0o644 if "open" in kind or kind == "work" else 0o600)
    fill_shared_memory(key, 0o600, secret)
    fill_shared_memory(key + 1, 0o666, secret)
    port, abstract = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0{name}")
    abstract.listen()
    _held.extend((port, abstract))
    # A daemon with a session of its own, as they are: what ends a step's process group does not end this.
    helper = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
    found: dict[str, object] = {kind: str(path) for kind, path in places.items()}
    found |= {"key": key, "port": port.getsockname()[1], "abstract": name, "secret": secret}
    found |= {"file_variable": os.environ.get("KEPT_FILE", ""), "token": os.environ["CI_JOB_TOKEN"]}
    found |= {"uid": os.getuid(), "temporary": f"{Path.cwd()}.tmp"}
    return found, helper


def changes(found: dict[str, object], helper: "subprocess.Popen[bytes]") -> list[str]:
    """What somebody else has done to it."""
    kinds = ("work", "private_tmp", "open_tmp", "private_shm", "open_shm", "file_variable")
    paths = {kind: Path(str(found[kind])) for kind in kinds}
    said = [kind for kind, path in paths.items() if not path.exists() or path.read_text() != found["secret"]]
    if helper.poll() is not None:
        said.append("helper")
    return said


def main() -> None:
    what, secret, name, key = sys.argv[1], os.environ["KEPT_SECRET"], sys.argv[2], int(sys.argv[3])
    found, helper = make(secret, name, key)
    Path("belongings.json").write_text(json.dumps(found))
    Path("kept").mkdir(exist_ok=True)
    Path("kept/cached.txt").write_text(secret)
    if what == "leave":
        return
    Path("ready").touch()
    while not Path("release").exists():
        time.sleep(LOOK_SECONDS)
    sys.stdout.write(f"changed by others: {','.join(changes(found, helper)) or 'nothing'}\n")
    helper.kill()


if __name__ == "__main__":
    main()
