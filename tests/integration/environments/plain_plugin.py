# mypy: ignore-errors
"""An environment plugin without Remuda's SDK: with another gRPC library, with threads, and with only the .proto file.

It has one machine, a folder, for any number of jobs, and speaks protocol version 1. Tests run it as a program with two
variables: PROTOS, the folder with remuda/wire/proto/environment.proto in it, and AGENT, the command of the agent.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_tools import protoc

generated = tempfile.mkdtemp()
protoc.main(["", f"-I{os.environ['PROTOS']}", f"--python_out={generated}", "remuda/wire/proto/environment.proto"])
sys.path.insert(0, f"{generated}/remuda/wire/proto")
import environment_pb2 as pb  # noqa: E402

AGENT = shlex.split(os.environ["AGENT"])
state: dict[str, Path] = {}


def open_(request, context):
    state["folder"] = Path(request.folder)
    return pb.OpenResponse()


def watch(request, context):
    yield pb.Standing()
    cancelled = threading.Event()
    context.add_callback(cancelled.set)
    cancelled.wait()


def prepare(request, context):
    place, folder = request.place, state["folder"]
    builds = folder / (place.builds_dir or "builds")
    work = builds / place.runner / str(place.slot) / place.project
    work.mkdir(parents=True, exist_ok=True)
    Path(f"{work}.tmp").mkdir(exist_ok=True)
    return pb.Folders(work_dir=str(work), builds_dir=str(builds), cache_dir=str(folder / "cache"))


def connect(messages, context):
    if next(messages).machine != "here":
        context.abort(grpc.StatusCode.NOT_FOUND, "there is one machine, and it is called here")
    agent = subprocess.Popen(
        [*AGENT, "proxy", "--start", "--data", str(state["folder"] / "agent")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def forward_input():
        try:
            for message in messages:
                agent.stdin.write(message.data)
                agent.stdin.flush()
        except (grpc.RpcError, OSError):
            pass
        agent.stdin.close()

    threading.Thread(target=forward_input, daemon=True).start()
    yield pb.Bytes()
    try:
        while data := agent.stdout.read1(65536):
            yield pb.Bytes(data=data)
    finally:
        agent.kill()
        agent.wait()


def recover(request, context):
    return pb.RecoverResponse(machines=["here"] if any((state["folder"] / "agent/jobs").glob("*")) else [])


def clean_up(request, context):
    place = request.place
    folder = state["folder"] / (place.builds_dir or "builds") / place.runner / str(place.slot)
    shutil.rmtree(f"{folder / place.project}.tmp", ignore_errors=True)
    return pb.CleanUpResponse()


UNARY = {
    "Open": (open_, pb.OpenRequest),
    "Acquire": (lambda request, context: pb.AcquireResponse(machine="here"), pb.AcquireRequest),
    "Adopt": (lambda request, context: pb.AdoptResponse(), pb.Held),
    "Prepare": (prepare, pb.Held),
    "Recover": (recover, pb.RecoverRequest),
    "CleanUp": (clean_up, pb.Held),
}
handlers = {
    name: grpc.unary_unary_rpc_method_handler(
        function,
        request_deserializer=message.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )
    for name, (function, message) in UNARY.items()
}
handlers["Watch"] = grpc.unary_stream_rpc_method_handler(
    watch, request_deserializer=pb.WatchRequest.FromString, response_serializer=pb.Standing.SerializeToString
)
handlers["Connect"] = grpc.stream_stream_rpc_method_handler(
    connect, request_deserializer=pb.Bytes.FromString, response_serializer=pb.Bytes.SerializeToString
)
server = grpc.server(ThreadPoolExecutor(50))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("remuda.environment.v1.Environment", handlers),))
path = tempfile.mktemp(dir=os.environ["REMUDA_ENVIRONMENT_SOCKETS"])
server.add_insecure_port(f"unix:{path}")
server.start()
print(f"remuda-environment|1|unix|{path}", flush=True)
sys.stdin.buffer.read()
shutil.rmtree(generated)
os._exit(0)
