"""The program that runs in front of a step's command: it sets up limits and user, then executes the command.

`remuda-agent enclose SPEC COMMAND...`, where SPEC is a JSON object from `policy.step_limits`. If a limit or the user
cannot be set, the command does not run. The order matters: the proxy to allowed hosts is forked first, so that no limit
applies to it, and the user changes last, because everything before needs more rights."""

import ctypes
import fcntl
import json
import os
import resource
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

EXIT_NOT_ENTERED = 125
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_SET_FLAGS, _UP = 0x8914, 0x1
_NO_NEW_PRIVILEGES = 38
_NOBODY = 65534
_LOCAL = "localhost,127.0.0.1,::1"


def main(arguments: list[str]) -> NoReturn:
    spec: dict[str, Any] = json.loads(arguments[0])
    command = arguments[1:]
    try:
        env = _own_env(spec) | enter(spec)
    except OSError as error:
        _fail(f"the step's limits cannot be set up: {error}", EXIT_NOT_ENTERED)
    try:
        os.execvpe(command[0], command, env)
    except FileNotFoundError:
        _fail(f"{command[0]}: not found", 127)
    except OSError as error:
        _fail(f"{command[0]}: {error.strerror}", 126)


def enter(spec: Mapping[str, Any]) -> dict[str, str]:
    """Apply the limits and the user in `spec` to this process. Returns environment variables for the command, such as
    the address of the network proxy. Raises OSError if a limit or the user cannot be set."""
    env = {}
    network = spec.get("network")
    if network is not None:
        proxied = bool(network) and all(network)
        connection = _fork_proxy(network) if proxied else None
        leave_network()
        if connection is not None:
            env = _proxy_env(_send_listener(connection))
    for path in spec.get("joins", ()):
        with open(path, "w") as file:
            file.write("0")
    if "file_bytes" in spec:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = spec["file_bytes"] if hard == resource.RLIM_INFINITY else min(spec["file_bytes"], hard)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    if "uid" in spec:
        become(spec["uid"], spec["gid"])
    return env


def leave_network() -> None:
    """Enter a new network namespace with only a loopback interface. If not root, this also needs a new user
    namespace, in which this process keeps its user and group."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        _call("unshare", _NEW_NETWORK)
    else:
        _call("unshare", _NEW_USER | _NEW_NETWORK)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP))


def become(uid: int, gid: int) -> None:
    """Switch permanently to another user, without supplementary groups, and never gain privileges (no_new_privs)."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def can_leave_network() -> bool:
    """True if this process may create a network namespace. Tried in a child, because it cannot be undone."""
    if not hasattr(os, "fork") or sys.platform != "linux":
        return False
    child = os.fork()
    if child == 0:
        code = 1
        try:
            leave_network()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def _own_env(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the command's environment: that in `env_file`, which is then deleted, or this process's own."""
    if "env_file" not in spec:
        return dict(os.environ)
    with open(spec["env_file"]) as file:
        env: dict[str, str] = json.load(file)
    os.unlink(spec["env_file"])
    return env


def _fork_proxy(lists: list[list[str]]) -> socket.socket:
    """Start the network proxy, detached, in the present network namespace, for hosts that are on all `lists`. It ends
    when this process ends, also after exec. Returns the socket over which to send it its listening socket."""
    here, proxy_end = socket.socketpair()
    watched = os.pidfd_open(os.getpid())
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        proxy_end.close()
        os.close(watched)
        return here
    try:
        if os.fork() == 0:
            here.close()
            # Imported first, because the user nobody may not be able to read it.
            from remuda.steps.process import network_proxy

            if os.geteuid() == 0:
                become(_NOBODY, _NOBODY)
            _, descriptors, _, _ = socket.recv_fds(proxy_end, 1, 1)
            network_proxy.run(socket.socket(fileno=descriptors[0]), lists, until=watched)
    except Exception as error:  # noqa: BLE001 - the child must not go on as its parent
        sys.stderr.write(f"remuda: network: the proxy of this step cannot run: {error}\n")
    finally:
        os._exit(0)


def _send_listener(connection: socket.socket) -> int:
    """Open a listening socket in the step's new network namespace, and send it over `connection` to the proxy, which
    accepts connections on it. Returns its port."""
    with connection, socket.create_server(("127.0.0.1", 0)) as listener:
        socket.send_fds(connection, [b"!"], [listener.fileno()])
        port: int = listener.getsockname()[1]
    return port


def _proxy_env(port: int) -> dict[str, str]:
    address = f"http://127.0.0.1:{port}"
    env = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), address) | {"no_proxy": _LOCAL}
    return env | {name.upper(): value for name, value in env.items()}


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library for which Python 3.11 has no wrapper. Raises OSError if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _fail(text: str, code: int) -> NoReturn:
    sys.stderr.write(f"ERROR: {text}\n")
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
