import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.errors import DefinitionError
from remuda.steps.language.references import parse_reference, without_credentials
from remuda.steps.language.values import Reference, ReferenceKind

DIGEST = "sha256:" + "0123456789abcdef" * 4


def local(path: str, file: str = "") -> Reference:
    return Reference(kind=ReferenceKind.LOCAL, text="", path=path, file=file)


def git(url: str, version: str, path: str = "steps", file: str = "") -> Reference:
    return Reference(kind=ReferenceKind.GIT, text="", url=url, version=version, path=path, file=file)


def oci(registry: str, repository: str, tag: str, path: str = "", file: str = "") -> Reference:
    return Reference(
        kind=ReferenceKind.OCI, text="", registry=registry, repository=repository, tag=tag, path=path, file=file
    )


def builtin(name: str, version: str = "") -> Reference:
    return Reference(kind=ReferenceKind.BUILTIN, text="", path=name, version=version)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("./a", local("./a")),
        (".", local(".")),
        ("../a", local("../a")),
        ("./a//b///c", local("./a/b/c")),
        ("./a/b.yml", local("./a", "b.yml")),
        ("/b.yml", local("/", "b.yml")),
        ("/a/b", local("/a/b")),
        (".hidden/a", local(".hidden/a")),
        ("./a@v1", local("./a@v1")),
        ("builtin://checkout", builtin("checkout")),
        ("builtin://checkout@1", builtin("checkout", "1")),
        ("builtin://checkout@1.2.3", builtin("checkout", "1.2.3")),
        ("dist://step/oci/fetch", builtin("step/oci/fetch")),
        ("gitlab.com/a/b@v1", git("https://gitlab.com/a/b", "v1")),
        ("http://host/a@main", git("http://host/a", "main")),
        ("gitlab.com/a/b/-/c/d@v1", git("https://gitlab.com/a/b", "v1", "steps/c/d")),
        ("gitlab.com/a/b/-/c/my.yml@v1", git("https://gitlab.com/a/b", "v1", "steps/c", "my.yml")),
        ("gitlab.com/a/b/-/my.yml@v1", git("https://gitlab.com/a/b", "v1", "steps", "my.yml")),
        ("user:p@ss@host/a@v1", git("https://user:p@ss@host/a", "v1")),
        ("https://user:pw@host/a/-/b@feature/x", git("https://user:pw@host/a", "feature/x", "steps/b")),
        ("host/a@b@c", git("https://host/a@b", "c")),
        ("host@v1", git("https://host", "v1")),
        ("registry.com/a/b:1.2", oci("registry.com", "a/b", "1.2")),
        ("registry.com:5000/a:latest", oci("registry.com:5000", "a", "latest")),
        ("registry.com/a:1 dir/func.yml", oci("registry.com", "a", "1", "dir", "func.yml")),
        ("registry.com/a:1 func.yml", oci("registry.com", "a", "1", "", "func.yml")),
        ("registry.com/a:1  dir/sub", oci("registry.com", "a", "1", "dir/sub")),
        (f"registry.com/a@{DIGEST}", oci("registry.com", "a", DIGEST)),
        (f"registry.com/a:1@{DIGEST}", oci("registry.com", "a", DIGEST)),
        ({"git": {"url": "gitlab.com/a", "rev": "v1"}}, git("https://gitlab.com/a", "v1", "")),
        ({"git": {"url": "h", "rev": "v", "dir": "/b//c", "file": "x.yml"}}, git("https://h", "v", "b/c", "x.yml")),
        ({"git": {"url": "x:${{ vars.T }}@h/a", "rev": "v1"}}, git("https://x:${{ vars.T }}@h/a", "v1", "")),
        ({"oci": {"registry": "r", "repository": "a/b", "tag": DIGEST}}, oci("r", "a/b", DIGEST)),
        ({"oci": {"registry": "r", "repository": "a", "tag": "1", "dir": "d"}}, oci("r", "a", "1", "d")),
    ],
)  # fmt: skip
def test_references_are_parsed(written: str | dict[str, dict[str, str]], expected: Reference) -> None:
    reference = parse_reference(written, "here")
    if isinstance(written, str):
        assert reference.text == written
    names = ("kind", "path", "file", "url", "version", "registry", "repository", "tag")
    assert {name: getattr(reference, name) for name in names} == {name: getattr(expected, name) for name in names}


def test_a_reference_with_an_expression_is_dynamic() -> None:
    for text in ("./${{ a }}", "builtin://${{ a }}", "host/${{ a }}@v1"):
        assert parse_reference(text, "here") == Reference(kind=ReferenceKind.DYNAMIC, text=text)


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ("", "empty"),
        ("sub", 'expecting url@rev. got "sub"; a folder of this repository begins with ./'),
        ("sub/func.yml", "expecting url@rev"),
        (" ./a", "registry/repository:tag"),
        ("user:secret@host/a", 'expecting url@rev. got "host/a"'),
        ("builtin://", "not the name of a builtin"),
        ("builtin://../a", "not the name of a builtin"),
        ("builtin://a@", "is not a version"),
        ("builtin://a@latest", "is not a version"),
        ("ssh://git@host/a@v1", "http:// and https:// URLs only, not ssh://"),
        ("file:///a@v1", "not file://"),
        ("host/a@", "not a revision"),
        ("host/a@-x", "not a revision"),
        ("user:pw@registry/a:1", "DOCKER_AUTH_CONFIG"),
        ("registry/a:1:2", "neither a tag nor a digest"),
        ("https://registry/a:1", "an OCI reference is"),
        ({"git": {"url": "a"}}, '"git" needs "rev"'),
        ({"git": {"url": "a", "rev": "${{ b }}"}}, '"rev" cannot contain an expression'),
        ({"git": {"url": "a", "rev": "b", "more": "c"}}, 'no field "more"'),
        ({"oci": {"registry": "a", "repository": "b"}}, '"oci" needs "tag"'),
        ({"oci": {}, "git": {}}, "exactly one"),
        ({"zip": {}}, "exactly one"),
        ({"git": {"url": 1, "rev": "b"}}, "a mapping of strings"),
    ],
)
def test_invalid_references_are_refused(written: str | dict[str, dict[str, str]], error: str) -> None:
    with pytest.raises(DefinitionError, match=error) as caught:
        parse_reference(written, "func.yml:7")
    assert str(caught.value).startswith("func.yml:7: ")
    assert "secret" not in str(caught.value)


def test_credentials_are_removed() -> None:
    assert without_credentials("https://user:pw@host/a@v1") == "https://host/a@v1"
    assert without_credentials("user:p@w@host/a") == "host/a"
    assert without_credentials("host/a@v1") == "host/a@v1"
    assert without_credentials("host@v1") == "host@v1"


@given(st.text(alphabet="ab1./:@- ${}\\?#", max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(DefinitionError):
        reference = parse_reference(text, "here")
        if reference.kind in (ReferenceKind.GIT, ReferenceKind.OCI):
            assert ".." not in reference.path.split("/")
            assert not reference.path.startswith("/")
