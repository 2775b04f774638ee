"""The table of configuration keys: complete, consistent with the values that are read, and shown in the docs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from remuda.manager.compile.containers import INIT_FLAG
from remuda.manager.config.keys.fact import UNSAFE, Verdict
from remuda.manager.config.keys.lookup import FACTS, GROUPS, Finding, plain, walk
from remuda.manager.config.values import ManagerConfig
from remuda.manager.metrics.metric_table import HIGH_CARDINALITY_FLAG
from remuda.manager.polling.poller import ADAPTIVE_FLAG
from remuda.manager.registration.token_rotation import FLAG as ROTATION_FLAG

KEYS = Path(__file__).parents[5] / "docs" / "reference" / "generated" / "config-toml.md"
UNUSED = ("runners.autoscaler.", "runners.machine.", "runners.instance.", "session_server.")
"""Sections whose values are read although nothing uses them yet."""


def fields(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    """Yield the paths of all keys that are read."""
    for field in msgspec.structs.fields(struct):
        types = [kind for kind in (field.type, *get_args(field.type)) if isinstance(kind, type)]
        nested = [kind for kind in types if issubclass(kind, msgspec.Struct)]
        path = f"{prefix}{field.encode_name}"
        if nested:
            yield from fields(nested[0], f"{path}.")
        else:
            yield path


READ = set(fields(ManagerConfig)) - {"runners.feature_flags"}


def test_every_key_that_is_read_is_in_the_table() -> None:
    assert READ - set(FACTS) == set()


def test_a_key_that_is_read_is_not_listed_as_ignored() -> None:
    ignored = {path for path in READ if FACTS[path].verdict is Verdict.IGNORED and not path.startswith(UNUSED)}
    # These are read only to explain why a storage cannot be used.
    assert ignored == {"runners.cache.s3.RoleARN", "runners.cache.s3.UploadRoleARN"}


def test_a_key_that_works_is_read() -> None:
    flags = "runners.feature_flags."
    working = {path for path, fact in FACTS.items() if fact.verdict is Verdict.WORKS and not path.startswith(flags)}
    assert working - READ == set()


def test_remudas_own_keys_are_marked() -> None:
    own = {path for path, fact in FACTS.items() if fact.is_own}
    assert own == {path for path in READ if "remuda" in path.split(".")[:2]} | {
        "runners.docker.pids_limit",
        "runners.docker.min_free_disk",
    }


def test_the_list_of_keys_has_every_key_with_its_text() -> None:
    sections = re.split(r"^## `?\[*([a-z_.]+|Top level)\]*`?\n", KEYS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    listed = {
        "" if section == "Top level" else section: {
            key: " ".join(text.split())
            for keys, text in re.findall(r"^((?:`\S+`\n)+): {3}(.*?)(?=\n\n|\Z)", body, re.MULTILINE | re.DOTALL)
            for key in re.findall(r"`(\S+)`\n", keys)
        }
        for section, body in zip(sections[1::2], sections[2::2], strict=True)
    }
    assert listed.keys() == GROUPS.keys()
    for section, facts in GROUPS.items():
        assert listed[section].keys() == facts.keys()
        for key, fact in facts.items():
            assert plain(fact.about.removeprefix(UNSAFE))[1:] in plain(listed[section][key])


def findings_by_key(document: dict[str, Any]) -> dict[str, Finding]:
    return {finding.where: finding for finding in walk(document)}


def test_a_value_may_change_the_verdict() -> None:
    docker = {"executor": "docker", "docker": {"tls_verify": False}, "cache": {"Type": "gcs"}}
    assert findings_by_key({"runners": [docker]})["runners[0].docker.tls_verify"].fact.verdict is Verdict.WORKS
    assert findings_by_key({"runners": [docker]})["runners[0].cache.Type"].fact.verdict is Verdict.IGNORED
    docker["docker"] = {"tls_verify": True}
    assert findings_by_key({"runners": [docker]})["runners[0].docker.tls_verify"].fact.verdict is Verdict.REFUSED


def test_a_section_of_another_executor_is_one_finding() -> None:
    findings = findings_by_key(
        {"runners": [{"executor": "shell", "docker": {"imgae": "x"}, "kubernetes": {"a": {"b": 1}}}]}
    )
    assert set(findings) == {"runners[0].executor", "runners[0].docker", "runners[0].kubernetes"}
    assert findings["runners[0].docker"].is_foreign


@pytest.mark.parametrize(
    ("document", "where", "nearest"),
    [
        ({"concurent": 1}, "concurent", "concurrent"),
        ({"runners": [{"executor": "docker", "docker": {"services": [{"alais": "x"}]}}]}, "", "alias"),
        ({"runners": [{"executor": "instance", "autoscaler": {"connector_config": {"usename": "x"}}}]}, "", "username"),
        ({"runners": [{"executor": "docker+machine", "machine": {"idlecount": 1}}]}, "", "IdleCount"),
        ({"runners": [{"feature_flags": {"FF_TIMESTAMP": True}}]}, "", "FF_TIMESTAMPS"),
        ({"runners": [{"monitoring": {"job_queuing_durations": [{"treshold": "5m"}]}}]}, "", "threshold"),
        ({"runners": [{"something_else": 1}]}, "runners[0].something_else", ""),
    ],
)
def test_the_nearest_name_of_an_unknown_key(document: dict[str, Any], where: str, nearest: str) -> None:
    [unknown] = [finding for finding in walk(document) if finding.fact.verdict is Verdict.UNKNOWN]
    assert unknown.nearest == nearest
    assert where in unknown.where


def test_an_unknown_key_of_remudas_own_is_refused() -> None:
    for document in ({"remuda": {"drain_timout": 1}}, {"runners": [{"remuda": {"run_az": "x"}}]}):
        [refused] = [finding for finding in walk(document) if finding.fact.verdict is Verdict.REFUSED]
        assert "unknown; did you mean" in refused.about
    assert not [
        finding
        for finding in walk({"runners": [{"remuda": {"policy": {"anything": 1}}}]})
        if finding.fact.verdict is not Verdict.WORKS
    ]


@pytest.mark.parametrize("flag", [ADAPTIVE_FLAG, HIGH_CARDINALITY_FLAG, INIT_FLAG, ROTATION_FLAG])
@pytest.mark.parametrize("value", [True, False])
def test_feature_flags_that_are_used_are_listed_as_working(flag: str, value: bool) -> None:
    findings = [
        finding for finding in walk({"runners": [{"feature_flags": {flag: value}}]}) if finding.where.endswith(flag)
    ]
    assert [finding.fact.verdict for finding in findings] == [Verdict.WORKS]
