"""Steps in images of a real registry: platforms, layers, credentials, cache, and errors."""

import gzip
import json
import os
import stat
from base64 import b64encode
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.http_server import PlainHandler, run_http_server
from tests.support.step_packages import PASSWORD, STEP_LAYER, USER, StepRegistry, a_layer, zstd

from remuda.steps.language.reading import read_step
from remuda.steps.language.values import ReferenceKind
from remuda.steps.resolving.errors import ResolveError, TemporaryResolveError
from remuda.steps.resolving.resolver import Resolver
from remuda.steps.resolving.values import Resolved

Resolve = Callable[..., Coroutine[None, None, Resolved]]
FUNC = "spec: {}\n---\nexec:\n  command: [echo, hello]\n"


def func_text(word: str) -> str:
    return FUNC.replace("hello", word)


async def test_image_of_hosts_platform_is_preferred_to_generic(registry: StepRegistry, resolve: Resolve) -> None:
    images = {
        name: registry.image("hello", zstd(a_layer({"func.yml": func_text(name)})), media_type=STEP_LAYER)
        for name in ("linux_amd64", "linux_arm64", "linux_s390x", "generic")
    }
    registry.index("hello", "1.0", **images)
    machine = {"x86_64": "linux_amd64", "aarch64": "linux_arm64"}.get(os.uname().machine, "generic")
    step = await resolve(f"{registry.host}/hello:1.0")
    assert step.text == func_text(machine)
    assert step.reference == f"{registry.host}/hello@{images[machine]['digest']} func.yml"
    assert (step.kind, step.version, step.commit) == (ReferenceKind.OCI, "1.0", None)
    registry.index("hello", "2.0", generic=images["generic"], linux_s390x=images["linux_s390x"])
    assert (await resolve(f"{registry.host}/hello:2.0")).text == func_text("generic")
    registry.index("hello", "3.0", linux_s390x=images["linux_s390x"])
    with pytest.raises(ResolveError, match=r"has no image for linux/.*; it has linux/s390x"):
        await resolve(f"{registry.host}/hello:3.0")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd], ids=["tar", "gzip", "zstd"])
async def test_image_of_one_manifest(registry: StepRegistry, resolve: Resolve, pack: Callable[[bytes], bytes]) -> None:
    registry.image("tools/hello", pack(a_layer({"dir/step.yml": FUNC, "dir/big": "x" * 700_000})), tag="v1")
    step = await resolve(f"{registry.host}/tools/hello:v1 dir")
    assert (step.text, step.file, step.folder.name) == (FUNC, "step.yml", "dir")
    assert (step.folder / "big").stat().st_size == 700_000
    by_fields = await resolve(
        {"oci": {"registry": registry.host, "repository": "tools/hello", "tag": "v1", "dir": "dir", "file": "step.yml"}}
    )
    assert by_fields.folder == step.folder


async def test_oci_files_stay_executable_and_links_stay_links(registry: StepRegistry, resolve: Resolve) -> None:
    files: dict[str, str | tuple[str, int]] = {
        "func.yml": FUNC,
        "bin/run": ("#!/bin/sh\n", 0o755),
        "data": ("secret", 0o640),
    }
    registry.image("hello", a_layer(files, {"run": "bin/run", "bin/up": "../data"}), tag="1")
    step = await resolve(f"{registry.host}/hello:1")
    modes = {name: stat.S_IMODE((step.folder / name).stat().st_mode) for name in ("func.yml", "bin/run", "data")}
    assert modes == {"func.yml": 0o644, "bin/run": 0o755, "data": 0o644}
    assert {name: os.readlink(step.folder / name) for name in ("run", "bin/up")} == {
        "run": "bin/run",
        "bin/up": "../data",
    }


async def test_oci_pull_authenticates(
    closed_registry: StepRegistry, resolve: Resolve, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = closed_registry
    registry.image("tools/hello", a_layer({"func.yml": FUNC}), tag="1")
    monkeypatch.setenv("HOME", str(tmp_path))
    reference = f"{registry.host}/tools/hello:1"
    with pytest.raises(ResolveError, match=r"asks for credentials.*DOCKER_AUTH_CONFIG"):
        await resolve(reference)

    def auths(password: str) -> str:
        return json.dumps({"auths": {registry.host: {"auth": b64encode(f"{USER}:{password}".encode()).decode()}}})

    with pytest.raises(ResolveError, match="does not accept the credentials") as error:
        await resolve(reference, env={"DOCKER_AUTH_CONFIG": auths("wrong-one")})
    assert "wrong-one" not in str(error.value)
    assert (await resolve(reference, env={"DOCKER_AUTH_CONFIG": auths(PASSWORD)})).text == FUNC
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(auths(PASSWORD))
    assert (await resolve(reference)).text == FUNC
    for folder, _, names in os.walk(cache):
        for name in names:
            assert PASSWORD.encode() not in Path(folder, name).read_bytes()


async def test_oci_pull_is_cached_by_digest(registry: StepRegistry, resolve: Resolve, cache: Path) -> None:
    image = registry.image("hello", a_layer({"func.yml": FUNC}), tag="1")
    first = await resolve(f"{registry.host}/hello:1")
    assert registry.blobs_sent() == 1
    registry.index("hello", "again", generic=image)
    by_tag = await resolve(f"{registry.host}/hello:again")
    by_digest = await resolve(f"{registry.host}/hello@{image['digest']}")
    assert {by_tag.folder, by_digest.folder} == {first.folder}
    assert registry.blobs_sent() == 1
    assert len(list((cache / "packages").iterdir())) == 1
    requests = registry.log.read_text().count("GET /v2/")
    assert (await resolve(f"{registry.host}/hello@{image['digest']}")).folder == first.folder
    assert registry.log.read_text().count("GET /v2/") == requests, "a digest in the cache was requested from the server"


async def test_a_moved_tag_resolves_to_the_new_image(registry: StepRegistry, resolve: Resolve) -> None:
    registry.image("hello", a_layer({"func.yml": FUNC}), tag="latest")
    await resolve(f"{registry.host}/hello:latest")
    registry.image("hello", a_layer({"func.yml": func_text("moved")}), tag="latest")
    assert (await resolve(f"{registry.host}/hello:latest")).text == func_text("moved")


async def test_oci_step_adds_no_tree_level(registry: StepRegistry, resolve: Resolve) -> None:
    registry.image("hello", a_layer({"func.yml": FUNC}), tag="1")
    step = await resolve(f"{registry.host}/hello:1")
    # The result is the author's definition, without a step around it that fetches the image.
    definition = read_step(step.text, file=step.file).definition
    assert definition.exec is not None
    assert definition.exec.command == ("echo", "hello")


async def test_offline_run_from_cache(tmp_path: Path, resolve: Resolve, registry: StepRegistry) -> None:
    image = registry.image("hello", a_layer({"func.yml": FUNC}), tag="1")
    first = await resolve(f"{registry.host}/hello:1")
    reference = {"oci": {"registry": registry.host, "repository": "hello", "tag": "1"}}
    registry.stop()
    second = await resolve(reference)
    assert second.folder == first.folder
    assert "cannot be reached" in second.remark
    third = await Resolver(tmp_path / "cache").resolve(first.pinned, base=tmp_path, root=None, env={})
    assert (third.folder, third.remark, third.pinned.tag) == (first.folder, "", image["digest"])


async def test_errors_for_missing_and_damaged_images(
    registry: StepRegistry, resolve: Resolve, untrusted_server: str, tmp_path: Path
) -> None:
    with pytest.raises(ResolveError, match="hello has no manifests 1: the registry answers 404") as error:
        await resolve(f"{registry.host}/hello:1")
    assert not error.value.temporary
    digest = "sha256:" + "0" * 64
    with pytest.raises(ResolveError, match="answers 404"):
        await resolve(f"{registry.host}/hello@{digest}")
    registry.image("hello", b"no tar at all", tag="1")
    with pytest.raises(ResolveError, match="a layer is damaged or not a tar archive"):
        await resolve(f"{registry.host}/hello:1")


@pytest.mark.parametrize("place", ["manifest", "token"])
async def test_deeply_nested_answers_are_refused(resolve: Resolve, place: str) -> None:
    class Nested(PlainHandler):
        def respond(self) -> None:
            if place == "token" and self.path.startswith("/v2/"):
                self.answer(401, headers={"WWW-Authenticate": f'Bearer realm="http://{self.headers["Host"]}/token"'})
            else:
                self.answer(200, b"[" * 100_000)

    with run_http_server(Nested) as server:
        with pytest.raises(ResolveError, match=r"is not a manifest|answers without a token") as error:
            await resolve(f"127.0.0.1:{server.server_port}/hello:1")
        assert not error.value.temporary


async def test_missing_ca_certificates_are_named(resolve: Resolve, untrusted_server: str, tmp_path: Path) -> None:
    # The resolver does not treat this address as local, so it uses TLS.
    reference = f"{untrusted_server.replace('127.0.0.1', '0.0.0.0')}/hello:1"
    with pytest.raises(TemporaryResolveError, match="install CA certificates on this machine"):
        await resolve(reference)
    with pytest.raises(TemporaryResolveError, match="the file in SSL_CERT_FILE cannot be used"):
        await resolve(reference, env={"SSL_CERT_FILE": str(tmp_path / "none.pem")})


@pytest.mark.parametrize("change", ["altered", "short", "long"])
async def test_blob_of_wrong_digest_refused(registry: StepRegistry, resolve: Resolve, cache: Path, change: str) -> None:
    content = a_layer({"func.yml": FUNC})
    image = registry.image("hello", content, tag="1")
    (blob,) = [path for path in registry.log.parent.rglob("data") if path.read_bytes() == content]
    altered = {"altered": content.replace(b"hello", b"jello"), "short": content[:-512], "long": content + b"x"}
    blob.write_bytes(altered[change])
    with pytest.raises(ResolveError, match=r"another digest|bytes early"):
        await resolve(f"{registry.host}/hello@{image['digest']}")
    assert not list((cache / "packages").iterdir())
    assert not list((cache / "new").iterdir())


async def test_later_layers_replace_and_remove(registry: StepRegistry, resolve: Resolve) -> None:
    first = a_layer(
        {"func.yml": func_text("old"), "gone": "x", "dir/a": "a", "dir/b": "b", "kept": "k"}, {"link": "kept"}
    )
    second = a_layer({"func.yml": FUNC, ".wh.gone": "", "dir/.wh..wh..opq": "", "dir/c": "c", "link": "now a file"})
    registry.image("hello", first, second, tag="1")
    step = await resolve(f"{registry.host}/hello:1")
    names = sorted(str(path.relative_to(step.folder)) for path in step.folder.rglob("*"))
    assert names == ["dir", "dir/c", "func.yml", "kept", "link"]
    assert step.text == FUNC
    assert (step.folder / "kept").read_text() == "k"


async def test_a_token_is_requested_for_this_repository_only(closed_registry: StepRegistry, resolve: Resolve) -> None:
    closed_registry.image("tools/hello", a_layer({"func.yml": FUNC}), tag="1")
    config: dict[str, Any] = {"auths": {f"{closed_registry.host}/tools": {"username": USER, "password": PASSWORD}}}
    await resolve(f"{closed_registry.host}/tools/hello:1", env={"DOCKER_AUTH_CONFIG": json.dumps(config)})
    assert all("scope=repository%3Atools%2Fhello%3Apull&" in path + "&" for path in closed_registry.token_requests)


async def test_a_repository_does_not_serve_what_only_another_has(registry: StepRegistry, resolve: Resolve) -> None:
    image = registry.image("untrusted/hello", a_layer({"func.yml": FUNC}), tag="v1")
    digest = image["digest"]
    assert (await resolve(f"{registry.host}/untrusted/hello@{digest}")).text == FUNC
    with pytest.raises(ResolveError, match="trusted/other has no"):
        await resolve(f"{registry.host}/trusted/other@{digest}")
