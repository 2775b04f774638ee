"""The step `function/oci/publish`: publishes an archive of `function/oci/build` under the tags of its version.

Blobs and manifests come first, then the version's own tag, then the moving ones, so a tag never refers to an incomplete
image. A repeated step changes nothing. A version that is published with other content is refused."""

import os
from functools import partial
from pathlib import Path

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import write_outputs
from remuda.stdsteps.common.transfer import CHUNK_BYTES
from remuda.stdsteps.function_images.layout import INDEX, MANIFEST, Archive
from remuda.stdsteps.function_images.registry import Registry
from remuda.stdsteps.function_images.versions import choose_tags


def run(inputs: Inputs) -> None:
    name, repository = inputs.text("archive", "function-image.tar"), inputs.text("to_repository")
    inputs.done()
    registry = Registry(repository, os.environ)
    archive = Archive(Path.cwd() / name)
    try:
        tags = _publish(archive, registry)
    finally:
        archive.close()
    say(f"Published {repository}@{archive.digest} as {', '.join(tags)}")
    ref = f"{repository}@{archive.digest}"
    write_outputs(ref=ref, digest=archive.digest, version=archive.version, tags=tags)


def _publish(archive: Archive, registry: Registry) -> list[str]:
    published = registry.digest_of(archive.version, INDEX)
    if published and published != archive.digest:
        raise StepError(
            f"{registry.name}:{archive.version} is published already, with other content ({published}); build the "
            "function with another version"
        )
    for manifest in archive.manifests:
        for blob in archive.blobs(manifest):
            registry.push_blob(blob.digest, blob.size, partial(archive.parts, blob, CHUNK_BYTES))
        registry.push_manifest(manifest, MANIFEST, archive.manifest(manifest))
    tags = choose_tags(archive.version, registry.tags())
    for tag in tags:
        registry.push_manifest(tag, INDEX, archive.index)
    return tags
