"""Build a Debian package for one suite: deb.py SUITE PYTHON_VERSION DIST (`make packages-deb` calls it for all suites).

The package has a virtual environment in /usr/lib/remuda for the suite's own Python, so that security updates of Python
come from the distribution. It has the wheels of DIST and the pinned wheels of requirements/run.txt for that version of
Python, so one machine builds the packages of all suites. Needs uv, binutils and dpkg-deb; the network for wheels that
uv has not cached. The same content gives the same bytes: all times are SOURCE_DATE_EPOCH."""

import argparse
import configparser
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email.utils import formatdate
from pathlib import Path

from remuda import __version__
from remuda.manager.process.service_files import ServicePaths, systemd

ROOT = Path(__file__).parents[2]
DEBIAN = ROOT / "packaging" / "debian"
HOME = Path("usr/lib/remuda")
OWN = ("remuda", "fleeting_plugin_docker_machine", "fleeting_plugin_local", "fleeting_plugin_static")
PLATFORM = "x86_64-manylinux_2_34"
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))

CONTROL = """\
Package: remuda
Version: {version}
Section: devel
Priority: optional
Architecture: amd64
Depends: python3 (>= {python}), python3 (<< {next_python}), libc6 (>= 2.34), adduser, git
Recommends: bubblewrap, ca-certificates
Suggests: docker.io | podman
Maintainer: The Remuda authors <remuda@localhost>
Installed-Size: {kibibytes}
Description: runs CI jobs on fleets of machines
 Remuda reads .gitlab-ci.yml, hands jobs out over GitLab's Runner API, creates
 and deletes machines on demand, and runs each job as a tree of steps. This
 package has the command "remuda", the units remuda-cell and remuda-manager,
 the plugins local, static and docker-machine, and the documentation.
"""

CHANGELOG = """\
remuda ({version}) {suite}; urgency=medium

  * See CHANGELOG.md.

 -- The Remuda authors <remuda@localhost>  {date}
"""

SITE_LICENCE = """
Files: html/assets/*
Copyright: Martin Donath and the contributors of Material for MkDocs
License: Expat
Comment: html/assets/LICENSE has the notice.
"""

ENTRY = """\
#!/{home}/bin/python3
import sys

from {module} import {function}

sys.exit({function}())
"""


def run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True)


def install_packages(site: Path, python: str, dist: Path) -> None:
    uv = [Path(sys.prefix) / "bin" / "uv", "pip", "install", "--quiet", "--no-deps", "--target", site]
    uv += ["--python-version", python, "--python-platform", PLATFORM, "--only-binary", ":all:"]
    # `strip` writes into the files: a hard link would change uv's cache and every environment that was made from it.
    uv += ["--link-mode", "copy"]
    run(*uv, "--require-hashes", "--requirement", ROOT / "requirements" / "run.txt")
    run(*uv, *(next(dist.glob(f"{name}-{__version__}-*.whl")) for name in OWN))
    for library in site.rglob("*.so*"):
        run("strip", "--strip-unneeded", library)
    # uv's own notes, and scripts for the Python that runs uv.
    for name in ("bin", ".lock"):
        path = site / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for information in site.glob("*.dist-info"):
        # They name the folder of the wheel, and would differ in each clone.
        notes = ("direct_url.json", "uv_cache.json")
        for note in notes:
            (information / note).unlink(missing_ok=True)
        record = information / "RECORD"
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not line.split(",")[0].endswith(notes)))


def write_environment(home: Path, site: Path, python: str) -> None:
    (home / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n")
    programs = home / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(f"/usr/bin/python{python}")
    for name in OWN:
        points = configparser.ConfigParser()
        points.read(next(site.glob(f"{name}-*.dist-info")) / "entry_points.txt")
        for program, target in points["console_scripts"].items():
            module, function = target.split(":")
            path = programs / program
            path.write_text(ENTRY.format(home=HOME, module=module, function=function))
            path.chmod(0o755)


def write_files(tree: Path, version: str, suite: str) -> None:
    """Write what is outside of the virtual environment: the command, units, configuration, documents."""
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/remuda").symlink_to("../lib/remuda/bin/remuda")
    units = tree / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    paths = ServicePaths(program="/usr/bin/remuda", config="/etc/remuda/config.toml")
    (units / "remuda-manager.service").write_text(systemd(paths))
    for name in ("remuda-cell.service", "remuda-cell-backup.service", "remuda-cell-backup.timer"):
        unit = (ROOT / "packaging/systemd" / name).read_text()
        (units / name).write_text(unit.replace("/usr/local/bin/remuda", "/usr/bin/remuda"))
    (tree / "etc/remuda").mkdir(parents=True)
    shutil.copy(DEBIAN / "cell.toml", tree / "etc/remuda")
    documents = tree / "usr/share/doc/remuda"
    documents.mkdir(parents=True)
    for name in ("README.md", "CHANGELOG.md"):
        # Their links lead into the folder of `write_site`.
        (documents / name).write_text(re.sub(r"\(docs/([\w/-]+)\.md", r"(html/\1.html", (ROOT / name).read_text()))
    text = (
        f"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n{write_licence()}{SITE_LICENCE}"
    )
    (documents / "copyright").write_text(text)
    entry = CHANGELOG.format(version=version, suite=suite, date=formatdate(EPOCH))
    (documents / "changelog.Debian.gz").write_bytes(gzip.compress(entry.encode(), mtime=0))


def write_site(tree: Path, dist: Path) -> None:
    """Write the pages of the documentation, which are in the wheel of remuda-docs."""
    prefix = "remuda_docs/html/"
    with zipfile.ZipFile(next(dist.glob(f"remuda_docs-{__version__}-*.whl"))) as wheel:
        for name in wheel.namelist():
            if name.startswith(prefix):
                file = tree / "usr/share/doc/remuda/html" / name.removeprefix(prefix)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(wheel.read(name))


def write_licence() -> str:
    lines = (ROOT / "LICENSE").read_text().splitlines()
    holder = next(line for line in lines if line.startswith("Copyright"))
    body = "\n".join(f" {line}" if line.strip() else " ." for line in lines)
    return f"Files: *\nCopyright: {holder.removeprefix('Copyright').strip()}\nLicense: Expat\n{body}\n"


def write_control(tree: Path, version: str, python: str) -> None:
    control = tree / "DEBIAN"
    size = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file())
    control.mkdir()
    major, minor = map(int, python.split("."))
    values = {"version": version, "python": python, "next_python": f"{major}.{minor + 1}", "kibibytes": size // 1024}
    (control / "control").write_text(CONTROL.format(**values))
    (control / "conffiles").write_text("/etc/remuda/cell.toml\n")
    for name in ("postinst", "prerm", "postrm"):
        shutil.copy(DEBIAN / name, control)
        (control / name).chmod(0o755)


def set_rights_and_times(tree: Path) -> None:
    settings = tree / "etc/remuda/cell.toml"
    for path in sorted(tree.rglob("*"), reverse=True):
        if not path.is_symlink():
            is_program = path.is_dir() or (os.access(path, os.X_OK) and path.parent.name in ("bin", "DEBIAN"))
            # The settings may get secrets; postinst lets the cell read them.
            path.chmod(0o755 if is_program else 0o640 if path == settings else 0o644)
        os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite")
    parser.add_argument("python")
    parser.add_argument("dist", type=Path)
    options = parser.parse_args()
    version = f"{__version__}-1+{options.suite}"
    output = options.dist / f"remuda_{version}_amd64.deb"
    with tempfile.TemporaryDirectory(prefix="remuda-deb-") as folder:
        tree = Path(folder) / "tree"
        home = tree / HOME
        site = home / "lib" / f"python{options.python}" / "site-packages"
        site.mkdir(parents=True)
        install_packages(site, options.python, options.dist)
        write_environment(home, site, options.python)
        write_files(tree, version, options.suite)
        write_site(tree, options.dist)
        write_control(tree, version, options.python)
        set_rights_and_times(tree)
        tree.chmod(0o755)
        run("dpkg-deb", "--root-owner-group", "-Zxz", "-z2", "--build", tree, output)


if __name__ == "__main__":
    main()
