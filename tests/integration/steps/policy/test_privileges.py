"""Privileges of a job's steps: whatever a job opens, writes or names, it never gets those of the agent."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.step_files import open_command, write_step

from remuda.steps.pack.zip_file import pack
from remuda.steps.policy import sandbox
from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentClient, JobStart, JobVariable
from remuda.wire.agent_shell import ShellCommand, ShellData, ShellExit, open_shell

UID = 123456
PYTHON = "/usr/bin/python3"
"""A Python that every user of the machine can start."""
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not os.path.exists(PYTHON), reason="needs the system's Python"),
]
NO_SANDBOX = pytest.mark.skipif(sandbox.problem(UID, UID) is not None, reason="no sandbox here")
ISOLATION = [pytest.param(False, id="run_as"), pytest.param(True, id="sandbox", marks=[NO_SANDBOX, pytest.mark.long])]
"""How jobs are isolated from the agent."""

ENGINE = r"""
import http.server, json, os, socket, socketserver, struct, sys, threading
PLACE, EXCHANGE, LINE = sys.argv[1:]

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Api-Version", "1.41")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def say(self, text):
        self.close_connection = True
        self.connection.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\n" + struct.pack("!BxxxI", 1, len(text)) + text)
    def do_GET(self):
        path = self.path.partition("?")[0]
        if path.endswith("/containers/json") or path.endswith("/networks"):
            self.answer([])
        elif "/exec/" in path:
            self.answer({"Running": False, "ExitCode": 0})
        else:
            self.answer({"Id": "sha256:0", "State": {"Running": True}})
    def do_DELETE(self):
        self.answer({"message": "no such container"}, 404)
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        _, uid, _ = struct.unpack("3i", self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        with open(f"{PLACE}/callers", "a") as file:
            file.write(f"{uid}\n")
        if path.endswith("/attach"):
            self.say(b"remuda-container-is-ready\n")
        elif path.endswith("/exec/e/start"):
            self.say(b"1\nran at the engine\n")
        elif path.endswith("/exec"):
            self.answer({"Id": "e"})
        else:
            self.answer({"Id": "c"}, 201)
    def log_message(self, *_):
        pass

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    def handle_error(self, *_):
        pass
    def get_request(self):
        return self.socket.accept()[0], ("", 0)

def spoil():
    # Append after the step's own output, because the last line counts.
    spoilt = set()
    while not os.path.exists(f"{PLACE}/over"):
        for number in range(12):
            path = f"{EXCHANGE}/step-{number}.outputs"
            try:
                if path not in spoilt and b"environment" in open(path, "rb").read():
                    spoilt.add(path)
                    open(path, "a").write(LINE + "\n")
            except OSError:
                pass

threading.Thread(target=spoil, daemon=True).start()
Server.timeout = 0.1
with Server(f"{PLACE}/engine.sock", Handler) as server:
    while not os.path.exists(f"{PLACE}/over"):
        server.handle_request()
"""


@pytest.fixture(scope="session")
def packed() -> Iterator[Path]:
    """The packed agent, in a file that every user can read."""
    with tempfile.TemporaryDirectory(prefix="remuda-test-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        pack(Path(folder) / "agent.pyz")
        yield Path(folder) / "agent.pyz"


@pytest.fixture
async def agent(place: Path, packed: Path) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(place / "data", (PYTHON, str(packed))) as process:
        await process.start()
        yield process


def a_job(place: Path, *entries: dict[str, Any], policy: dict[str, Any] | None = None, **values: Any) -> JobStart:
    layers = [{"author": "runner r", "document": policy}] if policy is not None else []
    server_ca = values.pop("server_ca", "")
    (place / "work").mkdir(exist_ok=True)
    return JobStart(
        id="1",
        work_dir=str(place / "work"),
        steps=steps_text(*entries),
        policy=json.dumps({"version": 1, "layers": layers, "server_ca": server_ca}),
        run_as=str(UID),
        **values,
    )


def write_engine_of_the_job(place: Path, command: list[str]) -> tuple[dict[str, Any], ...]:
    """Write steps that serve a fake engine and use it. The engine writes into all output files that it can open."""
    line = json.dumps({"name": "environment", "value": {"exec": command}})
    (place / "work").mkdir()
    (place / "work/engine.py").write_text(ENGINE)
    (place / "work/line").write_text(line)
    serve = {
        "name": "engine",
        "script": 'exec /usr/bin/python3 -I engine.py "$PWD" "$(dirname "$REMUDA_OUTPUTS")" "$(cat line)"',
    }
    wait = {"name": "wait", "script": "until [ -S engine.sock ]; do sleep 0.05; done"}
    inputs = {"image": "any", "engine": f"unix://{place}/work/engine.sock", "pull_policy": ["never"]}
    entry = {"name": "box", "step": "builtin://container", "inputs": inputs, "run": [{"name": "in", "script": "true"}]}
    over = {"name": "over", "script": "touch over", "if": "always()"}
    write_step(place / "work/mine", {"run": [wait, entry, over]})
    return ({"name": "both", "parallel": [serve, {"name": "mine", "step": "./mine"}]},)


@pytest.mark.parametrize("is_sandboxed", ISOLATION)
async def test_an_engine_that_a_job_names_gives_no_rights(agent: AgentProcess, place: Path, is_sandboxed: bool) -> None:
    """The job's engine writes a command into the outputs of the step that opened a container at it."""
    command = ["sh", "-c", f"id -u >{place}/work/who"]
    steps = write_engine_of_the_job(place, command)
    seen = await run_job(agent, a_job(place, *steps, sandbox=is_sandboxed))
    uid_file = place / "work/who"
    assert not uid_file.exists() or uid_file.read_text() == f"{UID}\n", "a step of the job ran with the agent's rights"
    event = seen.result_of("/both/mine/box")
    assert event["error_kind"] == "policy", seen.log.decode()
    assert "engine" in event["error"]


@pytest.mark.parametrize("is_sandboxed", ISOLATION)
async def test_commands_at_allowed_engine_run_as_job_user(agent: AgentProcess, place: Path, is_sandboxed: bool) -> None:
    command = ["sh", "-c", f"id -u >{place}/work/who; cat {place}/data/jobs/*/request >{place}/work/seen"]
    steps = write_engine_of_the_job(place, command)
    seen = await run_job(agent, a_job(place, *steps, sandbox=is_sandboxed, policy={"engines": ["unix://**"]}))
    assert set((place / "work/callers").read_text().split()) == {str(UID)}, seen.log.decode()
    if (place / "work/who").exists():  # the job was faster than the agent
        assert (place / "work/who").read_text() == f"{UID}\n"
        assert (place / "work/seen").read_bytes() == b""
    assert seen.result_of("/both/mine/box/in")["policy"]["enforced"] == ["steps"]


def write_environment_of_the_job(
    place: Path, enter: str, *inner: dict[str, Any], close: str = "true"
) -> dict[str, Any]:
    """Write a step of the job that opens an environment. `enter`: the program that runs the inner steps."""
    package = place / "work/mine"
    environment = {
        "open": {"command": open_command({"exec": ["sh", f"{package}/enter"]})},
        "close": {"command": ["sh", "-c", close]},
    }
    write_step(package, {"environment": environment})
    (package / "enter").write_text(enter)
    return {"name": "mine", "step": "./mine", "run": list(inner)}


async def run_shell(client: AgentClient, *command: str, terminal: bool = False) -> bytes:
    """Run a command in a shell of the job. Returns its output."""
    async with open_shell(client, "1", ShellCommand(command=command, terminal=terminal)) as shell:
        output = b""
        async for event in shell:
            match event:
                case ShellData(data, _):
                    output += data
                case ShellExit():
                    return output
    raise AssertionError(output)


@pytest.mark.parametrize("is_sandboxed", ISOLATION)
@pytest.mark.parametrize("is_held", [False, True], ids=["running", "on_hold"])
async def test_shell_runs_as_the_jobs_user(agent: AgentProcess, place: Path, is_sandboxed: bool, is_held: bool) -> None:
    (place / "secret").write_text("s3cret")
    (place / "secret").chmod(0o600)
    wait = "true" if is_held else "touch begun; until [ -e go ]; do sleep 0.1; done"
    enter = f"""
        case "$1" in *shell-*) id -u; cat {place}/secret; test -e {place}/secret || echo hidden; exit 0;; esac
        {wait}; exit {3 if is_held else 0}
    """
    entry = write_environment_of_the_job(
        place, enter, {"name": "in", "script": "true"}, close=f"id -u >{place}/work/closed"
    )
    job = a_job(place, entry, sandbox=is_sandboxed, hold_failed_seconds=600 if is_held else 0)
    async with agent.client() as client:
        await client.start(job)
        if is_held:
            assert (await follow(client, "1")).check().held_seconds
        else:
            await until((place / "work/begun").exists)
        for terminal in (False, True):
            output = await run_shell(client, "true", terminal=terminal)
            assert output.split()[0] == str(UID).encode(), output
            assert b"s3cret" not in output
            assert (b"hidden" in output) == is_sandboxed
        (place / "work/go").touch()
        if not is_held:
            assert (await follow(client, "1")).check().status == "success"
        await client.close_job("1")
    assert (place / "work/closed").read_text() == f"{UID}\n"


async def test_the_job_cannot_change_files_of_a_privileged_step(agent: AgentProcess, place: Path) -> None:
    """A step of the job starts while a step of the platform runs, and tries to change that step's files."""
    spoil = f"""
        own=$(basename $REMUDA_OUTPUTS .outputs) exchange=$(dirname $REMUDA_OUTPUTS)
        for step in step-0 step-1 step-2 step-3 step-4; do
            [ $step != $own ] || continue
            for kind in inputs outputs exports masks; do
                for file in $exchange/$step.$kind $exchange/../$step.$kind; do
                    ( echo '{{}}' >>$file ) 2>/dev/null && echo $file >>changed
                done
            done
        done
        touch {place}/work/tried
    """
    (place / "work").mkdir()
    (place / "work").chmod(0o777)
    inputs = {"image": "any", "engine": f"unix://{place}/engine.sock", "pull_policy": ["never"]}
    platform_step = {"name": "ours", "step": "builtin://service", "inputs": inputs, "origin": "compiled"}
    wait = {"name": "wait", "script": "until [ -e connected ]; do sleep 0.05; done"}
    definition = {"run": [wait, {"name": "spoil", "script": spoil}]}
    (place / "work/late").mkdir()
    (place / "work/late/func.yml").write_text(f"{{}}\n---\n{json.dumps(definition)}")
    job_step = {"name": "late", "step": "./late"}

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (place / "work/connected").touch()
        await until((place / "work/tried").exists)
        writer.close()

    server = await asyncio.start_unix_server(answer, place / "engine.sock")
    async with server:
        seen = await run_job(agent, a_job(place, {"name": "both", "parallel": [platform_step, job_step]}))
    assert seen.statuses["late"] == "success", seen.log.decode()
    assert not (place / "work/changed").exists(), (place / "work/changed").read_text()


@pytest.mark.parametrize("is_sandboxed", ISOLATION)
async def test_command_of_another_agent_has_the_jobs_rights(
    agent: AgentProcess, place: Path, is_sandboxed: bool
) -> None:
    """The agent runs the command during the step, and again to end the steps there. This one never connects."""
    entry = write_environment_of_the_job(place, "", {"name": "in", "script": "true"})
    definition = place / "work/mine/func.yml"
    definition.write_text(definition.read_text().replace('\\"exec\\"', '\\"agent\\"'))
    (place / "work/mine/enter").write_text(f"id -u >>{place}/work/who\n")
    async with agent.client() as client:
        await client.start(a_job(place, entry, sandbox=is_sandboxed))
        await until(lambda: (place / "work/who").exists() and len((place / "work/who").read_text().split()) > 1)
        await client.close_job("1")
    assert set((place / "work/who").read_text().split()) == {str(UID)}


JOB_OUTPUT = "printed by a program of the job"


@pytest.mark.parametrize("is_sandboxed", ISOLATION)
@pytest.mark.parametrize("around", ["before", "after"])
async def test_inserted_step_runs_outside(agent: AgentProcess, place: Path, is_sandboxed: bool, around: str) -> None:
    insert = [{"name": "scan", "script": "echo scanned; id -u", around: "builtin:script"}]
    entry = write_environment_of_the_job(place, f"echo {JOB_OUTPUT!r}", {"name": "in", "script": "true"})
    seen = await run_job(agent, a_job(place, entry, sandbox=is_sandboxed, policy={"insert": insert}))
    assert seen.check().status == "success", seen.log.decode()
    assert seen.lines.count(JOB_OUTPUT.encode()) == 1, "a step other than the job's ran in the job's environment"
    assert seen.lines[-2:] == [b"scanned", str(UID).encode()] or seen.lines[:2] == [b"scanned", str(UID).encode()]
    assert "environment" not in seen.result_of("/mine/scan")


@pytest.mark.parametrize("is_sandboxed", ISOLATION)
async def test_inserted_step_uses_no_settings_of_the_job(agent: AgentProcess, place: Path, is_sandboxed: bool) -> None:
    """The job sets a home, git settings in home, variables and repository, exports, and tries to change the script."""
    evil = f"{place}/work/evil"
    export = " ".join(f"{name}={evil}" for name in ("PATH", "XDG_CONFIG_HOME", "SCANNER", "HOME", "LESSOPEN"))
    change_settings = f"""
        printf '#!/bin/sh\\necho "{JOB_OUTPUT}"\\n' >evil; chmod +x evil
        git config --global alias.look '!{evil}'; git config --global core.fsmonitor {evil}
        git init -q .; git config core.fsmonitor {evil}; git config alias.look '!{evil}'; git config core.pager {evil}
        for pair in {export}; do
            echo '{{"name": "'${{pair%%=*}}'", "value": "'${{pair#*=}}'"}}' >>$REMUDA_EXPORTS
        done
    """
    scan = """
        echo "scanner ${SCANNER-none} home $(ls -A $HOME | wc -l) $(stat -c %a $HOME)"
        echo "global $(git config --global --list 2>/dev/null | wc -l)"
        git look 2>&1 || echo not looked; git status 2>&1 || echo no status
        touch $HOME/mine; for file in $(dirname $REMUDA_OUTPUTS)/$(basename $REMUDA_OUTPUTS .outputs).script; do
            ( echo changed >>$file ) 2>/dev/null && echo script changed
        done
        echo done scanning
    """
    policy = {"insert": [{"name": "scan", "script": scan, "after": "job"}]}
    job = a_job(place, {"name": "change", "script": change_settings}, sandbox=is_sandboxed, policy=policy)
    seen = await run_job(agent, job)
    assert seen.check().status == "success", seen.log.decode()
    assert JOB_OUTPUT.encode() not in seen.log, seen.log.decode()
    assert {b"scanner none home 0 700", b"global 0", b"not looked", b"no status", b"done scanning"} <= set(seen.lines)
    assert b"script changed" not in seen.lines
    assert not list((place / "data/jobs").glob("*/*/*.home"))


@pytest.mark.parametrize("is_sandboxed", ISOLATION)
async def test_parallel_step_cannot_change_inserted_files(agent: AgentProcess, place: Path, is_sandboxed: bool) -> None:
    """Without a sandbox both steps have the same user, so home and outputs are open to the job's step; script, inputs
    and file variables are not."""
    parallel_script = f"""
        until [ -e begun ]; do sleep 0.02; done
        for folder in $(dirname $REMUDA_OUTPUTS) $(dirname $REMUDA_OUTPUTS)/../inserted; do
            for step in 0 1 2 3 4 5 6 7 8 9; do
                for file in script inputs {"outputs exports masks home/.gitconfig" if is_sandboxed else ""}; do
                    [ $folder/step-$step.outputs != $REMUDA_OUTPUTS ] || continue
                    ( echo >>$folder/step-$step.$file ) 2>/dev/null && echo $folder/step-$step.$file >>changed
                done
            done
        done
        echo of the job >>$FILE
        ( echo of the job >>$(dirname $FILE)/../inserted/FILE ) 2>/dev/null || true
        touch tried
    """
    scan = "touch begun; until [ -e tried ]; do sleep 0.02; done; cat $FILE"
    (place / "work/checked").mkdir(parents=True)
    (place / "work").chmod(0o777)
    (place / "work/checked/func.yml").write_text("{}\n---\nexec: {command: [echo, checked]}\n")
    (place / "work/outer").mkdir()
    inner = {"run": [{"name": "it", "step": "../checked"}]}
    (place / "work/outer/func.yml").write_text(f"{{}}\n---\n{json.dumps(inner)}")
    steps = [{"name": "parallel", "script": parallel_script}, {"name": "outer", "step": "./outer"}]
    file = {"FILE": "${{ vars.FILE }}"}
    policy = {"insert": [{"name": "scan", "script": scan, "env": file, "before": "local:**/checked/**"}]}
    job = a_job(
        place,
        {"name": "both", "parallel": steps},
        sandbox=is_sandboxed,
        policy=policy,
        variables=(JobVariable(key="FILE", value="of the project\n", file=True),),
    )
    seen = await run_job(agent, job)
    assert seen.check().status == "success", seen.log.decode()
    assert not (place / "work/changed").exists(), (place / "work/changed").read_text()
    assert b"of the project" in seen.log
    assert b"of the job" not in seen.log
    assert not list((place / "data/jobs").glob("*/inserted/*"))


@pytest.mark.parametrize("is_sandboxed", ISOLATION)
async def test_inserted_step_has_only_server_certificates(agent: AgentProcess, place: Path, is_sandboxed: bool) -> None:
    read = 'echo "reads $(cat $CI_SERVER_TLS_CA_FILE)"; echo forged >>$CI_SERVER_TLS_CA_FILE || echo not changed'
    policy = {"insert": [{"name": "scan", "script": read, "after": "job"}]}
    job_variable = JobVariable(key="CI_SERVER_TLS_CA_FILE", value="forged", file=True)
    entry = {"name": "read", "script": "echo the job: $(cat $CI_SERVER_TLS_CA_FILE)"}
    job = a_job(place, entry, sandbox=is_sandboxed, policy=policy, server_ca="the server's", variables=[job_variable])
    seen = await run_job(agent, job)
    assert seen.check().status == "success", seen.log.decode()
    assert {b"the job: forged", b"reads the server's", b"not changed"} <= set(seen.lines), seen.log.decode()


@pytest.mark.parametrize("inserted", ["script", "package"])
async def test_no_job_process_runs_in_a_later_inserted_step(agent: AgentProcess, place: Path, inserted: str) -> None:
    """A process that the job left has the user of the inserted step and could trace it. Before that, steps of the job
    may use the process, even if a step was inserted between them."""
    leave_process = f"""
        setsid {PYTHON} -c '
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            open("left", "w").write(str(os.getpid()))
            for _ in range(300): time.sleep(0.2)
        ' </dev/null >/dev/null 2>&1 &
        until [ -s left ]; do sleep 0.02; done
    """.replace("\n        ", "\n")
    check_process = f"if kill -0 $(cat {place}/work/left) 2>/dev/null; then echo it runs; else echo it is gone; fi"
    parallel = [{"name": "one", "script": check_process}, {"name": "two", "script": f"sleep 0.1; {check_process}"}]
    write_step(place / "package", {"run": [{"name": "both", "parallel": parallel}]})
    after = {"script": check_process} if inserted == "script" else {"step": str(place / "package")}
    between = {"name": "between", "script": check_process, "before": f"local:{place}/work/use/**"}
    policy = {"insert": [between, {"name": "scan", "after": "job"} | after]}
    (place / "work/use").mkdir(parents=True)
    (place / "work/use/func.yml").write_text(
        f"{{}}\n---\n{json.dumps({'exec': {'command': ['sh', '-c', check_process]}})}"
    )
    steps = [{"name": "leave", "script": leave_process}, {"name": "use", "step": "./use"}]
    seen = await run_job(agent, a_job(place, *steps, policy=policy))
    assert seen.check().status == "success", seen.log.decode()
    assert seen.lines[:2] == [b"it runs"] * 2, seen.log.decode()
    assert seen.log.count(b"it is gone") == (1 if inserted == "script" else 2), seen.log.decode()


async def test_a_link_does_not_bypass_a_denied_path(agent: AgentProcess, place: Path) -> None:
    (place / "work/denied/step").mkdir(parents=True)
    (place / "work/denied/step/func.yml").write_text("{}\n---\nexec: {command: [echo, ran]}\n")
    (place / "work/linked").symlink_to("denied/step")
    (place / "work/filed").mkdir()
    (place / "work/filed/func.yml").symlink_to("../denied/step/func.yml")
    (place / "work/outer").symlink_to("denied")
    policy = {"rules": [{"deny": f"local:{place}/work/denied/**"}]}
    references = ["./denied/step", "./linked", "./filed", "./outer/step"]
    entries = [
        {"name": f"s{number}", "step": reference, "continue_on_error": True}
        for number, reference in enumerate(references)
    ]
    seen = await run_job(agent, a_job(place, *entries, policy=policy))
    assert seen.statuses == dict.fromkeys(("s0", "s1", "s2", "s3"), "failure"), seen.log.decode()
    assert {seen.result_of(f"/s{number}")["error_kind"] for number in range(4)} == {"policy"}
    assert b"ran" not in seen.lines
