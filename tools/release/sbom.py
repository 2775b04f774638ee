"""Write the bill of materials of a release as CycloneDX 1.5 JSON: sbom.py DIST VERSION OUTPUT.

It lists what is in the files of DIST: the Python distributions in the Debian packages and in the image, the Debian
packages in the image, the programs in the pages of the documentation, and each file with its SHA-256. Fails if a
distribution has another version than the one that requirements/run.txt pins (for the documentation, dev.txt), or is not
pinned at all, so that the list is what was tested."""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
METADATA = re.compile(r".*/site-packages/[^/]+\.dist-info/METADATA")
STATUS = "var/lib/dpkg/status"
SITE = re.compile(r".*/html/index\.html")
THEME = "mkdocs-material"
IN_SITE = (("pypi", THEME, rf"\b{THEME}-(\d[\d.]*\d)"), ("npm", "iframe-worker", r"/iframe-worker-([\d.]+)\.js"))
"""Kind and name of what the pages of the documentation run in browsers, and what precedes its version in each page."""


class Part(NamedTuple):
    kind: str
    """`pypi`, `deb` or `npm`, the type of its package URL."""
    name: str
    version: str
    licence: str


def read_pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return {match[1]: match[2] for line in lines if (match := re.match(r"([a-z0-9-]+)==(\S+)", line))}


def read_distribution(text: str) -> Part:
    headers = HeaderParser().parsestr(text)
    name = re.sub(r"[-_.]+", "-", headers["Name"]).lower()
    return Part("pypi", name, headers["Version"], headers["License-Expression"] or "")


def read_debian_packages(text: str) -> Iterator[Part]:
    for paragraph in text.strip().split("\n\n"):
        fields = HeaderParser().parsestr(paragraph)
        if fields["Status"] == "install ok installed" and fields["Package"] != "remuda":
            yield Part("deb", fields["Package"], fields["Version"], "")


def read_page(text: str) -> Iterator[Part]:
    for kind, name, pattern in IN_SITE:
        if match := re.search(pattern, text):
            yield Part(kind, name, match[1], "MIT")


def read_archive(archive: tarfile.TarFile) -> Iterator[Part]:
    for member in archive:
        is_distribution = METADATA.fullmatch(member.name) is not None
        is_page = SITE.fullmatch(member.name) is not None
        if not is_distribution and not is_page and member.name != STATUS:
            continue
        file = archive.extractfile(member)
        text = file.read().decode() if file is not None else ""
        if is_distribution:
            yield read_distribution(text)
        elif is_page:
            yield from read_page(text)
        else:
            yield from read_debian_packages(text)


def read_wheel(path: Path) -> Iterator[Part]:
    """Yield what a wheel has of others: programs in its pages. Its own distribution is a file of the release."""
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if SITE.fullmatch(name):
                yield from read_page(wheel.read(name).decode())


def read_package(path: Path) -> Iterator[Part]:
    command = ["dpkg-deb", "--fsys-tarfile", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            yield from read_archive(archive)
        if process.stdout is not None:
            process.stdout.read()
    if process.returncode != 0:
        sys.exit(f"sbom.py: dpkg-deb cannot read {path}")


def read_image(path: Path) -> Iterator[Part]:
    with tarfile.open(path) as image:
        manifest = image.extractfile("manifest.json")
        layers = json.load(manifest)[0]["Layers"] if manifest is not None else []
        for name in layers:
            with tarfile.open(fileobj=image.extractfile(name), mode="r|gz") as layer:
                yield from read_archive(layer)


def read_parts(path: Path) -> set[Part]:
    if path.suffix == ".whl":
        return set(read_wheel(path))
    if path.suffix == ".deb":
        return set(read_package(path))
    return set(read_image(path)) if path.name.endswith(".tar") else set()


def check_pins(parts: dict[Part, set[str]], version: str) -> Iterator[str]:
    pins = read_pins("run.txt") | {THEME: read_pins("dev.txt")[THEME]}
    for part, files in sorted(parts.items()):
        is_own = part.name == "remuda" or part.name.startswith("fleeting-plugin-")
        if part.kind == "pypi" and part.version != (version if is_own else pins.get(part.name)):
            yield f"{part.name} {part.version} in {', '.join(sorted(files))} is not what requirements/ pins"


def component(part: Part, files: set[str]) -> dict[str, Any]:
    namespace = "debian/" if part.kind == "deb" else ""
    result: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"{part.kind}:{part.name}@{part.version}",
        "name": part.name,
        "version": part.version,
        "purl": f"pkg:{part.kind}/{namespace}{part.name}@{part.version.replace('+', '%2B').replace(':', '%3A')}",
        "properties": [{"name": "remuda:file", "value": name} for name in sorted(files)],
    }
    if part.licence:
        result["licenses"] = [{"expression": part.licence}]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=Path)
    parser.add_argument("version")
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    files = sorted(path for path in options.dist.iterdir() if path.suffix in (".whl", ".deb", ".tar"))
    parts: dict[Part, set[str]] = defaultdict(set)
    for path in files:
        for part in read_parts(path):
            parts[part].add(path.name)
    if problems := list(check_pins(parts, options.version)):
        sys.exit("sbom.py: " + "\n".join(problems))
    listed = [component(part, names) for part, names in sorted(parts.items())]
    for path in files:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        listed.append({"type": "file", "name": path.name, "hashes": [{"alg": "SHA-256", "content": digest}]})
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(EPOCH, UTC).isoformat().replace("+00:00", "Z"),
            "component": {"type": "application", "name": "remuda", "version": options.version},
        },
        "components": listed,
    }
    options.output.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
