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


async def resolve_text(resolver: Resolver, written: str, base: Path, **options: Any) -> Resolved:
    arguments = {"base": base, "root": None, "env": {}} | options
    return await resolver.resolve(parse_reference(written, PLACE), **arguments)


def write_definitions(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{FUNC}# {name}\n")


async def test_local_paths_are_resolved(resolver: Resolver, tmp_path: Path) -> None:
    write_definitions(tmp_path, "sub/func.yml", "sub/step.yml", "sub/a.yml", "old/step.yml", "a.yml", "func.yml")
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
        resolved = await resolve_text(resolver, written, tmp_path)
        assert resolved.reference == str(tmp_path / name), written
        assert resolved.text.endswith(f"# {name}\n")
        assert (resolved.kind, resolved.folder, resolved.root) == (ReferenceKind.LOCAL, (tmp_path / name).parent, None)
    parent = await resolve_text(resolver, "..", tmp_path / "sub")
    assert parent.folder == tmp_path


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("./a.yaml", "the name of a definition file ends in .yml"),
        ("./sab", r"did you mean sub\?"),
        ("./sub/nope.yml", r"has no nope.yml; it has func.yml"),
        ("./empty", "has neither func.yml nor step.yml"),
        ("./link/deep/nowhere", "does not exist"),
        ("./binary", "is not UTF-8"),
        ("./huge", "has more than 1048576 bytes"),
    ],
)
async def test_invalid_local_paths_are_refused(resolver: Resolver, tmp_path: Path, written: str, message: str) -> None:
    write_definitions(tmp_path, "sub/func.yml", "a.yaml")
    for name in ("empty", "binary", "huge"):
        (tmp_path / name).mkdir()
    (tmp_path / "binary/func.yml").write_bytes(b"\xff\xfe")
    (tmp_path / "huge/func.yml").write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ResolveError, match=message) as error:
        await resolve_text(resolver, written, tmp_path)
    assert not error.value.temporary


@pytest.mark.parametrize(
    "written",
    [
        *("./link", "./link/secret.yml", "./link/no.yml", "./file", "./dangling"),
        *("./link/customer-keys", "./link/customer-kezs", "./link/nowhere/deeper"),
    ],
)
async def test_error_tells_nothing_of_files_outside_package(resolver: Resolver, tmp_path: Path, written: str) -> None:
    write_definitions(
        tmp_path, "outside/customer-keys/a.yml", "outside/secret.yml", "outside/other.yml", "work/func.yml"
    )
    work = tmp_path / "work"
    (work / "link").symlink_to(tmp_path / "outside")
    for name, target in (("file", "secret.yml"), ("dangling", "no.yml")):
        (work / name).mkdir()
        (work / name / "func.yml").symlink_to(tmp_path / "outside" / target)
    with pytest.raises(ResolveError) as error:
        await resolve_text(resolver, written, work, root=work)
    file = written[2:] if written.endswith(".yml") else f"{written[2:]}/func.yml"
    assert str(error.value).startswith(f"{written} {file} leads out of the package that the calling step is in;")


async def test_a_hint_does_not_reveal_the_target_of_a_link(resolver: Resolver, tmp_path: Path) -> None:
    write_definitions(tmp_path, "outside/a.yml", "work/sub/a.txt")
    work = tmp_path / "work"
    for name, target in (("here", "a.yml"), ("gone", "b.yml")):
        (work / f"sub/{name}.yml").symlink_to(tmp_path / "outside" / target)
        (work / f"{name}-step").symlink_to(tmp_path / "outside" / target)
    with pytest.raises(ResolveError, match=r"it has gone.yml, here.yml$"):
        await resolve_text(resolver, "./sub", work, root=work)
    for name in ("here", "gone"):
        with pytest.raises(ResolveError, match=rf"did you mean {name}-step\?"):
            await resolve_text(resolver, f"./{name}-stap", work, root=work)


async def test_builtin_steps_are_resolved(resolver: Resolver, tmp_path: Path) -> None:
    for written in ("builtin://checkout", "builtin://checkout@1", "dist://checkout@1.0", "builtin://checkout@1.0.0"):
        resolved = await resolve_text(resolver, written, tmp_path)
        assert resolved.reference == "builtin://checkout@1.0.0"
        assert (resolved.kind, resolved.version, resolved.pinned.version) == (ReferenceKind.BUILTIN, "1.0.0", "1.0.0")
        assert (resolved.folder / "func.yml").read_text() == resolved.text
        assert resolved.digest.startswith("sha256:")
    with pytest.raises(ResolveError, match=r"did you mean builtin://checkout\?"):
        await resolve_text(resolver, "builtin://chekout", tmp_path)
    with pytest.raises(ResolveError, match=r"builtin://checkout@2: this agent has only version 1.0.0"):
        await resolve_text(resolver, "builtin://checkout@2", tmp_path)


async def test_a_removed_folder_of_a_builtin_step_is_created_again(resolver: Resolver, tmp_path: Path) -> None:
    resolved = await resolve_text(resolver, "builtin://checkout", tmp_path)
    resolved.folder.rename(tmp_path / "away")
    resolved_again = await resolve_text(resolver, "builtin://checkout", tmp_path)
    assert resolved_again == resolved
    assert resolved.folder.is_dir()


async def test_substitutes_replace_builtin_steps(resolver: Resolver, tmp_path: Path) -> None:
    write_definitions(tmp_path, "own/func.yml", "newer/func.yml")
    substitutes = {"builtin://checkout": str(tmp_path / "own"), "builtin://checkout@2": str(tmp_path / "newer")}
    options = {"root": tmp_path / "package", "substitutes": substitutes}
    resolved = await resolve_text(resolver, "builtin://checkout@1", tmp_path, **options)
    assert (resolved.kind, resolved.folder) == (ReferenceKind.LOCAL, tmp_path / "own")
    assert (await resolve_text(resolver, "builtin://checkout@2", tmp_path, **options)).folder == tmp_path / "newer"
    assert (await resolve_text(resolver, "builtin://cache_save", tmp_path, **options)).kind is ReferenceKind.BUILTIN
    for substitute in ("./own", "${{ inputs.x }}", "nonsense"):
        with pytest.raises(ResolveError, match="the substitute for builtin://checkout"):
            await resolve_text(resolver, "builtin://checkout", tmp_path, substitutes={"builtin://checkout": substitute})


async def test_a_reference_with_an_expression_is_refused(resolver: Resolver, tmp_path: Path) -> None:
    with pytest.raises(ResolveError, match="must be evaluated first"):
        await resolve_text(resolver, "${{ inputs.step }}", tmp_path)


async def test_a_path_as_file_name_is_refused(resolver: Resolver, tmp_path: Path) -> None:
    write_definitions(tmp_path, "func.yml", "sub/func.yml")
    reference = Reference(kind=ReferenceKind.LOCAL, text="./sub", path="./sub", file="../func.yml")
    with pytest.raises(ResolveError, match="is not a file name"):
        await resolver.resolve(reference, base=tmp_path, root=None, env={})


def test_descriptions_of_references_contain_no_credentials() -> None:
    texts = {
        "user:pw@host/p/-/x@v1": "https://host/p@v1",
        "http://u:p@host:8080/p@main": "http://host:8080/p@main",
        "registry/repo:1": "registry/repo:1",
        f"registry/repo@sha256:{'0' * 64}": f"registry/repo@sha256:{'0' * 64}",
        "dist://x@1": "builtin://x@1",
        "./x": "./x",
    }
    assert {written: describe(parse_reference(written, PLACE)) for written in texts} == texts


async def test_an_unwritable_cache_is_a_temporary_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResolveError, match="builtin://checkout") as error:
        await resolve_text(Resolver(tmp_path / "file"), "builtin://checkout", tmp_path)
    assert error.value.temporary


async def test_no_pipe_is_a_definition(resolver: Resolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "func.yml")
    monkeypatch.setattr(Path, "is_file", lambda _: True)  # as if the file was replaced after the check
    with pytest.raises(ResolveError, match=r"func\.yml is not a regular file"):
        await resolve_text(resolver, ".", tmp_path)
