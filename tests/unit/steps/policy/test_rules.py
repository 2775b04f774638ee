from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.policy.rules import decide, decide_engine, find_insertions
from remuda.steps.policy.values import Policy, Subject
from remuda.steps.process.limits import Limits, stricter

CreatePolicy = Callable[..., Policy]
CreateStep = Callable[..., Subject]
COMMIT = "b" * 40


def test_without_a_policy_everything_is_allowed(create_step: CreateStep) -> None:
    decision = decide(Policy(), create_step())
    assert (decision.allowed, decision.rule, decision.reason) == (True, "", "there is no policy")


def test_the_first_matching_rule_decides(create_policy: CreatePolicy, create_step: CreateStep) -> None:
    policy = create_policy(
        {
            "default": "deny",
            "rules": [
                {"name": "no old checkout", "deny": "builtin:checkout", "version": "<1", "reason": "it leaks"},
                {"name": "ours", "allow": ["builtin", "git:gitlab.example.com/platform/**"]},
            ],
        }
    )
    assert decide(policy, create_step()).rule == "runner r: ours"
    old = decide(policy, create_step("builtin://checkout@0.9.0"))
    assert not old.allowed
    assert old.rule == "runner r: no old checkout"
    assert old.reason == 'builtin://checkout@0.9.0 is denied by "no old checkout" in the policy of runner r: it leaks'
    assert decide(policy, create_step(f"https://gitlab.example.com/platform/a/b@{COMMIT} steps/x/func.yml")).allowed
    foreign = decide(policy, create_step(f"https://gitlab.example.com/other/a@{COMMIT}"))
    assert foreign.reason.endswith("is denied: nothing allows it in the policy of runner r")


@pytest.mark.parametrize(
    ("source", "reference", "is_allowed"),
    [
        ("*", "/builds/ci/func.yml", True),
        ("local", "/builds/ci/func.yml", True),
        ("local:/builds/**", "/builds/ci/func.yml", True),
        ("local:/builds/*", "/builds/ci/func.yml", False),
        ("builtin:cache_*", "builtin://cache_save@1.0.0", True),
        ("git:host.example/a/*", f"https://host.example/a/b@{COMMIT}", True),
        ("git:host.example/a/*", f"https://host.example/a/b/c@{COMMIT}", False),
        ("git:host.example:8443/**", f"https://host.example:8443/a@{COMMIT}", True),
        ("git:host.example/**", f"https://host.example.evil/a@{COMMIT}", False),
        ("oci:registry.example/steps/*", "registry.example/steps/scan@sha256:" + "a" * 64, True),
        ("oci:registry.example/steps/*", "evil.example/registry.example/steps/scan@sha256:" + "a" * 64, False),
        ("git", "registry.example/steps/scan@sha256:" + "a" * 64, False),
    ],
)
def test_sources_match_completely(
    create_policy: CreatePolicy, create_step: CreateStep, source: str, reference: str, is_allowed: bool
) -> None:
    policy = create_policy({"default": "deny", "rules": [{"allow": source}]})
    assert decide(policy, create_step(reference)).allowed is is_allowed


def test_an_unknown_version_counts_against_the_step(create_policy: CreatePolicy, create_step: CreateStep) -> None:
    without_version = create_step(f"https://host.example/a@{COMMIT}")
    allow = create_policy({"default": "deny", "rules": [{"allow": "git", "version": ">=1"}]})
    deny = create_policy({"rules": [{"deny": "git", "version": "<1"}]})
    assert not decide(allow, without_version).allowed
    assert not decide(deny, without_version).allowed
    invalid = create_step(f"https://host.example/a@{COMMIT}", version="latest")
    assert not decide(allow, invalid).allowed
    assert not decide(deny, invalid).allowed
    valid = create_step(f"https://host.example/a@{COMMIT}", version="v1.2.0")
    assert decide(allow, valid).allowed
    assert decide(deny, valid).allowed


def test_commits_and_digests_are_compared_exactly(create_policy: CreatePolicy, create_step: CreateStep) -> None:
    policy = create_policy(
        {"default": "deny", "rules": [{"allow": "git", "commit": COMMIT, "digest": "sha256:" + "a" * 64}]}
    )
    reference = f"https://host.example/a@{COMMIT}"
    assert decide(policy, create_step(reference, commit=COMMIT)).allowed
    assert not decide(policy, create_step(reference, commit="c" * 40)).allowed
    assert not decide(policy, create_step(reference, commit=COMMIT, digest="sha256:" + "b" * 64)).allowed


def test_all_layers_must_allow_and_all_are_named(create_policy: CreatePolicy, create_step: CreateStep) -> None:
    outer, inner = {"rules": [{"name": "all", "allow": "*"}]}, {"rules": [{"name": "no", "deny": "local"}]}
    policy = create_policy(**{"organization 1": outer, "project 5": inner})
    assert decide(policy, create_step()).rule == "organization 1: all; project 5: default"
    denied = decide(policy, create_step("/builds/func.yml"))
    assert (denied.allowed, denied.rule) == (False, "project 5: no")


def test_stricter_limits_win(create_policy: CreatePolicy, create_step: CreateStep) -> None:
    policy = create_policy(
        one={"limits": {"memory": "1g", "pids": 10, "network": {"allow": ["a.example", "b.example"]}}},
        two={"limits": {"memory": "2g", "timeout": 5, "network": {"allow": ["b.example"]}}},
    )
    limits = decide(policy, create_step(), within=Limits(pids=5, cpus=1)).limits
    assert limits == Limits(
        memory_bytes=2**30, pids=5, cpus=1, timeout_seconds=5, network=(("a.example", "b.example"), ("b.example",))
    )


def test_limits_of_a_rule_replace_those_of_the_document(create_policy: CreatePolicy, create_step: CreateStep) -> None:
    policy = create_policy(
        {
            "limits": {"network": "none", "memory": "1g"},
            "rules": [{"allow": "builtin:checkout", "limits": {"network": "any", "memory": "2g"}}],
        }
    )
    assert decide(policy, create_step()).limits == Limits(memory_bytes=2**31)
    assert decide(policy, create_step("builtin://script@1.0.0")).limits.network == ((),)


def test_inserted_steps_surround_the_job_with_the_outer_layer_outside(create_policy: CreatePolicy) -> None:
    def create_document(name: str) -> dict[str, object]:
        return {
            "insert": [
                {"name": f"{name}_first", "script": "true", "before": "job"},
                {"name": f"{name}_last", "script": "true", "after": "job"},
            ]
        }

    insertions = find_insertions(create_policy(one=create_document("a"), two=create_document("b")))
    assert [call.name for call in insertions.before] == ["a_first", "b_first"]
    assert [call.name for call in insertions.after] == ["b_last", "a_last"]
    assert {call.origin for call in (*insertions.before, *insertions.after)} == {"inserted"}


def test_steps_are_inserted_around_a_matching_step(create_policy: CreatePolicy, create_step: CreateStep) -> None:
    policy = create_policy({"insert": [{"name": "scan", "script": "true", "before": ["oci", "git:host.example/**"]}]})
    assert find_insertions(policy).before == ()
    assert find_insertions(policy, create_step()).before == ()
    git = create_step(f"https://host.example/a@{COMMIT}")
    assert [call.name for call in find_insertions(policy, git).before] == ["scan"]
    assert find_insertions(policy, create_step(f"https://host.example/a@{COMMIT}", origin="inserted")).before == ()


def test_inserted_step_is_allowed_by_its_layer_not_outer(create_policy: CreatePolicy, create_step: CreateStep) -> None:
    step = create_step("builtin://script@1.0.0", name="scan", origin="inserted")
    nested = create_step("builtin://script@1.0.0", name="x", path="/outer/scan/x", origin="inserted")
    insert = {"insert": [{"name": "scan", "script": "true", "before": "job"}]}
    deny = {"default": "deny"}
    for subject in (step, nested):
        assert decide(create_policy(one=insert | deny, two=deny), subject).allowed
        assert not decide(create_policy(one=deny, two=insert), subject).allowed


def test_a_job_cannot_take_the_name_of_an_inserted_step(create_policy: CreatePolicy, create_step: CreateStep) -> None:
    policy = create_policy({"insert": [{"name": "scan", "script": "true", "before": "job"}]})
    decision = decide(policy, create_step(name="scan"))
    assert not decision.allowed
    assert 'the name "scan" belongs to a step that the policy of runner r inserts' in decision.reason


def test_substitutes_of_an_outer_layer_win(create_policy: CreatePolicy) -> None:
    name = "builtin://checkout"
    policy = create_policy(one={"substitutes": {name: "/a"}}, two={"substitutes": {name: "/b", "builtin://x": "/c"}})
    assert policy.substitutes == {name: "/a", "builtin://x": "/c"}


def test_an_engine_must_be_allowed_by_every_layer(create_policy: CreatePolicy) -> None:
    address = "unix:///run/user/7/docker.sock"
    assert not decide_engine(create_policy(), address).allowed
    assert not decide_engine(create_policy({}), address).allowed
    assert decide_engine(create_policy({"engines": "unix:///run/user/*/docker.sock"}), address).allowed
    assert not decide_engine(create_policy({"engines": ["unix:///run/*/docker.sock"]}), address).allowed
    denied = decide_engine(create_policy(one={"engines": ["**"]}, two={}), address)
    assert (denied.allowed, denied.rule) == (False, "two: engines")
    assert decide_engine(create_policy(one={"engines": ["**"]}, two={"engines": ["unix://**"]}), address).allowed


@pytest.mark.parametrize(
    ("rule", "is_allowed"),
    [
        ({"deny": "local:/work/denied/**"}, False),
        ({"deny": "local:/work/link/**"}, False),
        ({"deny": "local:/work/other/**"}, True),
        ({"allow": "local:/work/link/**"}, False),
        ({"allow": "local:/work/denied/**"}, True),
    ],
)
def test_rules_apply_to_a_link_and_to_its_target(
    create_policy: CreatePolicy, create_step: CreateStep, rule: dict[str, str], is_allowed: bool
) -> None:
    policy = create_policy({"rules": [rule], "default": "deny" if "allow" in rule else "allow"})
    step = create_step(reference="/work/link/func.yml", real="/work/denied/func.yml")
    assert decide(policy, step).allowed == is_allowed


LIMITS = st.builds(
    Limits,
    memory_bytes=st.none() | st.integers(1, 9),
    pids=st.none() | st.integers(1, 9),
    network=st.none() | st.lists(st.sampled_from([(), ("a",), ("b",)]), min_size=1, max_size=2).map(tuple),
)


@given(LIMITS, LIMITS)
def test_combined_limits_are_never_weaker_than_either(first: Limits, second: Limits) -> None:
    combined = stricter(first, second)
    for limits in (first, second):
        for name in ("memory_bytes", "pids"):
            if (limit := getattr(limits, name)) is not None:
                assert getattr(combined, name) is not None
                assert getattr(combined, name) <= limit
        assert set(limits.network or ()) <= set(combined.network or ())
        assert limits.network is None or combined.network is not None
