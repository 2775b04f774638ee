import os
from pathlib import Path
from typing import Any

import pytest

from remuda.steps.language.references import parse_reference
from remuda.steps.language.values import Place, Reference, ReferenceKind
from remuda.steps.resolving.errors import ResolveError
from remuda.steps.resolving.resolver import Resolver
from remuda.steps.resolving.values import Resolved, describe

FUNC = "spec: {}\n---\nexec:\n  command: [echo, hello]\n"
PLACE = Place(file="test", line=1)


@pytest.fixture
def resolver(tmp_path: Path) -> Resolver:
    return Resolver(tmp_path / "cache")


async def find(resolver: Resolver, written: str, base: Path, **options: Any) -> Resolved:
    given = {"base": base, "root": None, "env": {}} | options
    return await resolver.resolve(parse_reference(written, PLACE), **given)


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{FUNC}# {name}\n")


async def test_local_paths(resolver: Resolver, tmp_path: Path) -> None:
    put(tmp_path, "sub/func.yml", "sub/step.yml", "sub/a.yml", "old/step.yml", "a.yml", "func.yml")
    cases = {
        "./sub": "sub/func.yml",
        "./sub/": "sub/func.yml",
        ".//sub//": "sub/func.yml",
        "./old": "old/step.yml",
        "./a.yml": "a.yml",
        "./sub/a.yml": "sub/a.yml",
        ".": "func.yml",
        "./sub/../old": "old/step.yml",
        str(tmp_path / "sub"): "sub/func.yml",
    }
    for written, name in cases.items():
        found = await find(resolver, written, tmp_path)
        assert found.reference == str(tmp_path / name), written
        assert found.text.endswith(f"# {name}\n")
        assert (found.kind, found.folder, found.root) == (ReferenceKind.LOCAL, (tmp_path / name).parent, None)
    inner = await find(resolver, "..", tmp_path / "sub")
    assert inner.folder == tmp_path


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("./a.yaml", "a definition file is named .yml"),
        ("./sab", r"did you mean sub\?"),
        ("./sub/nope.yml", r"has no nope.yml; there is func.yml"),
        ("./empty", "has neither func.yml nor step.yml"),
        ("./link/deep/nowhere", "does not exist"),
        ("./binary", "is not UTF-8"),
        ("./huge", "has more than 1048576 bytes"),
    ],
)
async def test_local_paths_that_lead_nowhere(resolver: Resolver, tmp_path: Path, written: str, words: str) -> None:
    put(tmp_path, "sub/func.yml", "a.yaml")
    for name in ("empty", "binary", "huge"):
        (tmp_path / name).mkdir()
    (tmp_path / "binary/func.yml").write_bytes(b"\xff\xfe")
    (tmp_path / "huge/func.yml").write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ResolveError, match=words) as error:
        await find(resolver, written, tmp_path)
    assert not error.value.temporary


@pytest.mark.parametrize(
    "written",
    [
        *("./link", "./link/secret.yml", "./link/no.yml", "./file", "./dangling"),
        *("./link/customer-keys", "./link/customer-kezs", "./link/nowhere/deeper"),
    ],
)
async def test_nothing_is_told_of_what_lies_behind_a_link_out_of_the_package(
    resolver: Resolver, tmp_path: Path, written: str
) -> None:
    put(tmp_path, "outside/customer-keys/a.yml", "outside/secret.yml", "outside/other.yml", "work/func.yml")
    work = tmp_path / "work"
    (work / "link").symlink_to(tmp_path / "outside")
    for name, target in (("file", "secret.yml"), ("dangling", "no.yml")):
        (work / name).mkdir()
        (work / name / "func.yml").symlink_to(tmp_path / "outside" / target)
    with pytest.raises(ResolveError) as error:
        await find(resolver, written, work, root=work)
    file = written[2:] if written.endswith(".yml") else f"{written[2:]}/func.yml"
    assert str(error.value).startswith(f"{written} {file} leads out of the package that the calling step is in;")


async def test_a_hint_does_not_tell_where_a_link_leads(resolver: Resolver, tmp_path: Path) -> None:
    put(tmp_path, "outside/a.yml", "work/sub/a.txt")
    work = tmp_path / "work"
    for name, target in (("here", "a.yml"), ("gone", "b.yml")):
        (work / f"sub/{name}.yml").symlink_to(tmp_path / "outside" / target)
        (work / f"{name}-step").symlink_to(tmp_path / "outside" / target)
    with pytest.raises(ResolveError, match=r"there is gone.yml, here.yml$"):
        await find(resolver, "./sub", work, root=work)
    for name in ("here", "gone"):
        with pytest.raises(ResolveError, match=rf"did you mean {name}-step\?"):
            await find(resolver, f"./{name}-stap", work, root=work)


async def test_builtin_steps(resolver: Resolver, tmp_path: Path) -> None:
    for written in ("builtin://checkout", "builtin://checkout@1", "dist://checkout@1.0", "builtin://checkout@1.0.0"):
        found = await find(resolver, written, tmp_path)
        assert found.reference == "builtin://checkout@1.0.0"
        assert (found.kind, found.version, found.pinned.version) == (ReferenceKind.BUILTIN, "1.0.0", "1.0.0")
        assert (found.folder / "func.yml").read_text() == found.text
        assert found.digest.startswith("sha256:")
    with pytest.raises(ResolveError, match=r"did you mean builtin://checkout\?"):
        await find(resolver, "builtin://chekout", tmp_path)
    with pytest.raises(ResolveError, match=r"builtin://checkout@2: this agent has version 1.0.0"):
        await find(resolver, "builtin://checkout@2", tmp_path)


async def test_a_builtin_folder_that_vanished_is_made_anew(resolver: Resolver, tmp_path: Path) -> None:
    found = await find(resolver, "builtin://checkout", tmp_path)
    found.folder.rename(tmp_path / "away")
    again = await find(resolver, "builtin://checkout", tmp_path)
    assert again == found
    assert found.folder.is_dir()


async def test_substitutes(resolver: Resolver, tmp_path: Path) -> None:
    put(tmp_path, "own/func.yml", "newer/func.yml")
    substitutes = {"builtin://checkout": str(tmp_path / "own"), "builtin://checkout@2": str(tmp_path / "newer")}
    inside = {"root": tmp_path / "package", "substitutes": substitutes}
    found = await find(resolver, "builtin://checkout@1", tmp_path, **inside)
    assert (found.kind, found.folder) == (ReferenceKind.LOCAL, tmp_path / "own")
    assert (await find(resolver, "builtin://checkout@2", tmp_path, **inside)).folder == tmp_path / "newer"
    assert (await find(resolver, "builtin://cache_save", tmp_path, **inside)).kind is ReferenceKind.BUILTIN
    for wrong in ("./own", "${{ inputs.x }}", "nonsense"):
        with pytest.raises(ResolveError, match="takes the place of builtin://checkout"):
            await find(resolver, "builtin://checkout", tmp_path, substitutes={"builtin://checkout": wrong})


async def test_what_is_not_evaluated_yet(resolver: Resolver, tmp_path: Path) -> None:
    with pytest.raises(ResolveError, match="have to be evaluated first"):
        await find(resolver, "${{ inputs.step }}", tmp_path)


async def test_a_name_for_a_file_cannot_lead_elsewhere(resolver: Resolver, tmp_path: Path) -> None:
    put(tmp_path, "func.yml", "sub/func.yml")
    reference = Reference(kind=ReferenceKind.LOCAL, text="./sub", path="./sub", file="../func.yml")
    with pytest.raises(ResolveError, match="is no file name"):
        await resolver.resolve(reference, base=tmp_path, root=None, env={})


def test_references_are_shown_without_credentials() -> None:
    texts = {
        "user:pw@host/p/-/x@v1": "https://host/p@v1",
        "http://u:p@host:8080/p@main": "http://host:8080/p@main",
        "registry/repo:1": "registry/repo:1",
        f"registry/repo@sha256:{'0' * 64}": f"registry/repo@sha256:{'0' * 64}",
        "dist://x@1": "builtin://x@1",
        "./x": "./x",
    }
    assert {written: describe(parse_reference(written, PLACE)) for written in texts} == texts


async def test_a_cache_that_cannot_be_written_is_this_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResolveError, match="builtin://checkout") as error:
        await find(Resolver(tmp_path / "file"), "builtin://checkout", tmp_path)
    assert error.value.temporary


async def test_a_pipe_in_the_place_of_a_definition_is_not_waited_for(
    resolver: Resolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "func.yml")
    monkeypatch.setattr(Path, "is_file", lambda _: True)  # as it was a moment before
    with pytest.raises(ResolveError, match=r"func\.yml is no file"):
        await find(resolver, ".", tmp_path)
