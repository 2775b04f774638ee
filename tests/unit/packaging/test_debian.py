"""The scripts of the Debian package run here below a folder, with programs that only note how they are called."""

import importlib.util
import os
import re
import stat
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from remuda import __version__

ROOT = Path(__file__).parents[3]
NOTE = '#!/bin/sh\necho "${0##*/} $*" >> "$CALLS"\n'


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that stands for the machine after the package's files were unpacked; systemd runs on it."""
    for folder in ("bin", "etc/remuda", "run/systemd/system", "usr/lib/remuda/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/remuda/cell.toml").touch()
    programs = [tmp_path / "bin" / name for name in ("adduser", "chown", "install", "systemctl")]
    for program in (*programs, tmp_path / "usr/lib/remuda/bin/python3"):
        program.write_text(NOTE)
        program.chmod(0o755)
    return tmp_path


def run_script(machine: Path, name: str, *words: str) -> list[str]:
    """Run a script of the package. Returns the calls of programs that change the machine."""
    text = (ROOT / "packaging/debian" / name).read_text()
    for folder in ("/etc/remuda", "/run/systemd", "/usr/lib/remuda", "/var/backups"):
        text = text.replace(folder, f"{machine}{folder}")
    calls = machine / "calls"
    calls.write_text("")
    environment = {"PATH": f"{machine / 'bin'}:{os.environ['PATH']}", "CALLS": str(calls)}
    subprocess.run(["sh", "-c", text, name, *words], env=environment, check=True)
    return calls.read_text().replace(str(machine), "").splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="the files of a package belong to root")
def test_only_the_cell_can_read_its_settings(machine: Path) -> None:
    settings = machine / "etc/remuda/cell.toml"
    assert "chown root:remuda /etc/remuda/cell.toml" in run_script(machine, "postinst", "configure", "")
    assert stat.S_IMODE(settings.stat().st_mode) == 0o640
    # What an administrator has chosen stays.
    os.chown(settings, 0, 12345)
    settings.chmod(0o644)
    assert not any(call.startswith("chown") for call in run_script(machine, "postinst", "configure", "0.1.0-1"))
    assert stat.S_IMODE(settings.stat().st_mode) == 0o644
    settings.unlink()
    run_script(machine, "postinst", "configure", "0.1.0-1")


def test_removal_stops_all_units(machine: Path) -> None:
    calls = [call for call in run_script(machine, "prerm", "remove") if call.startswith("systemctl disable")]
    units = {word for call in calls for word in call.split() if word.startswith("remuda")}
    assert units == {"remuda-cell.service", "remuda-cell-backup.timer", "remuda-manager.service"}
    assert all("--now" in call for call in calls)
    assert run_script(machine, "prerm", "upgrade", "0.2.0-1") == []


def load_tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/release/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_package_has_the_pages_to_which_its_texts_link(tmp_path: Path) -> None:
    deb = load_tool("deb")
    pages = [page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")]
    with zipfile.ZipFile(tmp_path / f"remuda_docs-{__version__}-py3-none-any.whl", "w") as wheel:
        for page in pages:
            wheel.writestr(f"remuda_docs/html/{page}", "a page")
        wheel.writestr("remuda_docs/__init__.py", "")
    deb.write_files(tmp_path / "tree", "0.1.0-1+bookworm", "bookworm")
    deb.write_site(tmp_path / "tree", tmp_path)
    documents = tmp_path / "tree/usr/share/doc/remuda"
    assert (documents / "html/reference/generated/cell-settings.html").read_text() == "a page"
    for name in ("README.md", "CHANGELOG.md"):
        links = re.findall(r"\]\((?!https?:)([^)#]+)", (documents / name).read_text())
        assert len(links) > 3
        assert [link for link in links if link.startswith(("docs/", "html/")) and not (documents / link).exists()] == []
    assert "html/assets" in (documents / "copyright").read_text()


def test_the_bill_of_materials_has_what_the_pages_run_in_browsers(tmp_path: Path) -> None:
    sbom = load_tool("sbom")
    page = (
        '<meta name="generator" content="mkdocs-1.6.1, mkdocs-material-9.8.1">\n<script src="a/iframe-worker-1.0.4.js">'
    )
    with zipfile.ZipFile(tmp_path / "docs.whl", "w") as wheel:
        wheel.writestr("remuda_docs/html/index.html", page)
        wheel.writestr("remuda_docs/html/tutorial.html", page.replace("9.8.1", "1.1.1"))
    parts = {(part.kind, part.name, part.version) for part in sbom.read_parts(tmp_path / "docs.whl")}
    assert parts == {("pypi", "mkdocs-material", "9.8.1"), ("npm", "iframe-worker", "1.0.4")}
    wrong = sbom.Part("pypi", "mkdocs-material", "1.1.1", "MIT")
    assert "mkdocs-material 1.1.1 in docs.whl is not what" in next(sbom.check_pins({wrong: {"docs.whl"}}, __version__))
    assert sbom.read_page((ROOT / "mkdocs.yml").read_text()), "the site names its script in another way"


def test_the_package_has_its_settings_for_root_alone(tmp_path: Path) -> None:
    deb = load_tool("deb")
    deb.write_files(tmp_path, "0.1.0-1+bookworm", "bookworm")
    deb.write_control(tmp_path, "0.1.0-1+bookworm", "3.11")
    deb.set_rights_and_times(tmp_path)
    modes = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
        for path in tmp_path.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    assert modes["etc/remuda/cell.toml"] == 0o640
    assert modes["DEBIAN/postinst"] == 0o755
    assert modes["usr/lib/systemd/system/remuda-cell.service"] == 0o644
