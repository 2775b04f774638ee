"""The packed agent runs with a Python that has no packages, and imports no module that is not packed."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.support.step_jobs import Build

from remuda.steps.pack.zip_file import FOREIGN, OWN, pack
from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text

IMPORT_ALL = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
for name in json.loads(sys.argv[2]):
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("pack") / "remuda-agent.pyz"
    pack(output)
    return output


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has only the standard library."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return str(folder / "bin/python3")


def list_modules(packed: Path) -> list[str]:
    with zipfile.ZipFile(packed) as archive:
        names = [name for name in archive.namelist() if name.endswith(".py") and name != "__main__.py"]
    return [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names]


def test_every_packed_module_imports_only_what_is_packed(packed: Path, bare_python: str) -> None:
    modules = list_modules(packed)
    assert {"remuda.steps.agent.grpc_service", "remuda.stdsteps.checkout.step", "google.protobuf.message"} <= set(
        modules
    )
    process = subprocess.run(
        [bare_python, "-W", "error", "-c", IMPORT_ALL, packed, json.dumps(modules)],
        check=True,
        capture_output=True,
        text=True,
    )
    tops = {name.partition(".")[0] for name in (*OWN, *FOREIGN)}
    foreign = set(json.loads(process.stdout)) - set(sys.stdlib_module_names) - tops - {"__mp_main__", "sitecustomize"}
    assert not {name for name in foreign if not name.startswith("_")}
    assert "msgspec" not in process.stdout


def test_pack_is_reproducible(packed: Path, tmp_path: Path) -> None:
    second_pack = tmp_path / "again.pyz"
    for imported in ("sys", "remuda.steps.agent.grpc_service"):
        script = (
            f"import {imported}, pathlib, remuda.steps.pack.zip_file as p; p.pack(pathlib.Path({str(second_pack)!r}))"
        )
        subprocess.run([sys.executable, "-c", script], check=True)
        assert second_pack.read_bytes() == packed.read_bytes()
    assert packed.stat().st_mode & 0o111


def test_packed_bytecode_is_used(packed: Path, bare_python: str) -> None:
    assert find_module_file(packed, bare_python) == f"{packed}/remuda/steps/agent/grpc_service.pyc"


def test_another_python_version_uses_the_sources(packed: Path, bare_python: str, tmp_path: Path) -> None:
    other = tmp_path / "other.pyz"
    with zipfile.ZipFile(packed) as archive, zipfile.ZipFile(other, "w") as changed:
        for name in archive.namelist():
            head = b"\0\0\r\n" if name.endswith(".pyc") else b""
            changed.writestr(name, head + archive.read(name)[len(head) :])
    assert find_module_file(other, bare_python) == f"{other}/remuda/steps/agent/grpc_service.py"


def find_module_file(packed: Path, python: str) -> str:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import remuda.steps.agent.grpc_service as s; print(s.__file__)"
    )
    command = [python, "-W", "error", "-c", script, str(packed)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


async def test_packed_agent_runs_standard_steps(packed: Path, bare_python: str, tmp_path: Path, a_job: Build) -> None:
    async with AgentProcess(tmp_path / "data", program=(bare_python, str(packed))) as agent:
        await agent.start()
        steps = steps_text(
            {"name": "hello", "script": "echo hello"},
            {"name": "sources", "step": "builtin://checkout", "inputs": {"strategy": "none"}},
        )
        seen = await run_job(agent, a_job(steps=steps))
        assert seen.lines == [b"hello", b"Skipping Git repository setup"]
        await agent.kill()
        await agent.start()
        async with agent.client() as client:
            assert (await follow(client, "1")).log == seen.log


def test_yaml_is_packed(packed: Path, bare_python: str) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); from remuda.steps.language.reading import read_step as read;"
    code += "print(read('---\\n---\\nrun:\\n- name: a\\n  script: x').definition.run[0].name)"
    process = subprocess.run([bare_python, "-c", code, packed], check=True, capture_output=True, text=True)
    assert process.stdout == "a\n"
