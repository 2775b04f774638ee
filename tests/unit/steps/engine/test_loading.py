"""The environment with which the package of a step is resolved."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.steps.engine.loading import load
from remuda.steps.errors import DefinitionError
from remuda.steps.job_tree.evaluation import Facts
from remuda.steps.job_tree.tree import Tree
from remuda.steps.language.reading import read_step
from remuda.steps.language.values import Reference
from remuda.steps.resolving.values import Resolved

FACTS = Facts(
    base_env={"SSL_CERT_FILE": "/agents.pem"},
    agent_env={},
    request_env={"CI_SERVER_TLS_CA_FILE": "/exchange/pipe", "SSL_CERT_DIR": "/dev", "https_proxy": "http://p"},
    variables={},
    authorities={"CI_SERVER_TLS_CA_FILE": "/private/copy"},
    work_dir="/work",
    folder=Path("/job"),
    key="key",
)


async def announce(_: Reference) -> None:
    """Tell nobody that a step is fetched: these tests look at its result."""


class Recorder:
    """A resolver that records the environment and finds no package."""

    def __init__(self) -> None:
        self.env: Mapping[str, str] = {}

    async def resolve(self, *_: Any, env: Mapping[str, str], **__: Any) -> Resolved:
        self.env = env
        raise DefinitionError("nothing is found")


@pytest.mark.parametrize("is_confined", [True, False])
async def test_certificate_files_of_a_confined_job_are_replaced_by_copies(is_confined: bool) -> None:
    facts = replace(FACTS, is_confined=is_confined)
    if not is_confined:
        facts = replace(facts, authorities={})
    tree = Tree(read_step("spec: {remuda: 1}\n---\nrun: [{name: a, step: steps.example/a@1}]"), work_dir="/work")
    tree.exports["SSL_CERT_FILE"] = "/exchange/exported"
    resolver, [node] = Recorder(), tree.root.children
    with pytest.raises(DefinitionError):
        await load(tree, facts, node, resolver, substitutes={}, announce=announce)
    copies = {"SSL_CERT_FILE": "/agents.pem", "CI_SERVER_TLS_CA_FILE": "/private/copy", "https_proxy": "http://p"}
    configured = {**FACTS.request_env, "SSL_CERT_FILE": "/exchange/exported"}
    assert resolver.env == (copies if is_confined else configured)
