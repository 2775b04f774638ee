import os
import sys
from pathlib import Path

import pytest

from remuda.steps.pack import program
from remuda.steps.pack.program import Form
from remuda.steps.policy import hidden_folders


def test_commands_of_an_installed_program() -> None:
    assert program.form() is Form.INSTALLED
    assert program.own_file() is None
    assert program.own_command("proxy", "--start") == [sys.executable, "-I", "-m", "remuda.steps", "proxy", "--start"]
    assert program.own_command("step", "checkout") == [sys.executable, "-I", "-m", "remuda.stdsteps", "checkout"]


def test_commands_of_a_zipapp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packed = tmp_path / "agent.pyz"
    packed.touch()
    monkeypatch.setattr(program, "__file__", str(packed / "remuda" / "steps" / "pack" / "program.py"))
    assert program.form() is Form.ZIPAPP
    assert program.own_file() == packed
    assert program.own_command("step", "checkout") == [sys.executable, "-I", str(packed), "step", "checkout"]


def test_commands_and_environment_of_a_frozen_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the loaders are removed, earlier values are restored, and the path of the program is known."""
    environment = {
        "STATICX_PROG_PATH": "/opt/remuda-agent",
        "STATICX_BUNDLE_DIR": "/tmp/staticx-x",
        "_PYI_ARCHIVE_FILE": "/tmp/staticx-x/agent",
        "LD_LIBRARY_PATH": "/tmp/_MEIx",
        "LD_LIBRARY_PATH_ORIG": "/its/own",
        "PATH": "/bin",
    }
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(program._Loader, "file", "")
    monkeypatch.setattr(os, "environ", dict(environment))
    program.leave_loader()
    assert os.environ == {"PATH": "/bin", "LD_LIBRARY_PATH": "/its/own"}
    assert program.form() is Form.FROZEN
    assert program.own_command("step", "checkout") == ["/opt/remuda-agent", "step", "checkout"]


def test_only_a_frozen_program_changes_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"LD_LIBRARY_PATH": "/its/own", "STATICX_PROG_PATH": "/another/program"})
    program.leave_loader()
    assert os.environ == {"LD_LIBRARY_PATH": "/its/own", "STATICX_PROG_PATH": "/another/program"}


def test_a_frozen_program_uses_the_certificates_of_its_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    bundle = tmp_path / "etc/pki/tls/certs/ca-bundle.crt"
    bundle.parent.mkdir(parents=True)
    bundle.touch()
    assert program.certificates(tmp_path) == {}
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert program.certificates(tmp_path) == {"SSL_CERT_FILE": "/etc/pki/tls/certs/ca-bundle.crt"}
    bundle.unlink()
    assert program.certificates(tmp_path) == {}
    monkeypatch.setenv("SSL_CERT_FILE", "/own")
    assert program.certificates() == {}


def test_own_places_include_the_file_of_a_frozen_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox makes these paths visible to our own programs, which that file starts."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(program._Loader, "file", "/opt/remuda-agent")
    places = hidden_folders.own_places.__wrapped__()
    assert {sys.prefix, sys.base_prefix, "/opt/remuda-agent"} <= set(places)
