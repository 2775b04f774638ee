from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.policy.rules import decide, decide_engine, find_insertions
from remuda.steps.policy.values import Policy, Subject
from remuda.steps.process.limits import Limits, stricter

Build = Callable[..., Policy]
Step = Callable[..., Subject]
COMMIT = "b" * 40


def test_without_a_policy_everything_is_allowed(a_step: Step) -> None:
    decision = decide(Policy(), a_step())
    assert (decision.allowed, decision.rule, decision.reason) == (True, "", "there is no policy")


def test_first_rule_that_fits_decides(policy_of: Build, a_step: Step) -> None:
    policy = policy_of(
        {
            "default": "deny",
            "rules": [
                {"name": "no old checkout", "deny": "builtin:checkout", "version": "<1", "reason": "it leaks"},
                {"name": "ours", "allow": ["builtin", "git:gitlab.example.com/platform/**"]},
            ],
        }
    )
    assert decide(policy, a_step()).rule == "runner r: ours"
    old = decide(policy, a_step("builtin://checkout@0.9.0"))
    assert not old.allowed
    assert old.rule == "runner r: no old checkout"
    assert old.reason == 'builtin://checkout@0.9.0 is denied by "no old checkout" in the policy of runner r: it leaks'
    assert decide(policy, a_step(f"https://gitlab.example.com/platform/a/b@{COMMIT} steps/x/func.yml")).allowed
    foreign = decide(policy, a_step(f"https://gitlab.example.com/other/a@{COMMIT}"))
    assert foreign.reason.endswith("is denied: nothing allows it in the policy of runner r")


@pytest.mark.parametrize(
    ("source", "reference", "fits"),
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
def test_sources_are_matched_whole(policy_of: Build, a_step: Step, source: str, reference: str, fits: bool) -> None:
    policy = policy_of({"default": "deny", "rules": [{"allow": source}]})
    assert decide(policy, a_step(reference)).allowed is fits


def test_what_is_not_known_counts_against_the_step(policy_of: Build, a_step: Step) -> None:
    unknown = a_step(f"https://host.example/a@{COMMIT}")
    allow = policy_of({"default": "deny", "rules": [{"allow": "git", "version": ">=1"}]})
    deny = policy_of({"rules": [{"deny": "git", "version": "<1"}]})
    assert not decide(allow, unknown).allowed
    assert not decide(deny, unknown).allowed
    named = a_step(f"https://host.example/a@{COMMIT}", version="latest")
    assert not decide(allow, named).allowed
    assert not decide(deny, named).allowed
    known = a_step(f"https://host.example/a@{COMMIT}", version="v1.2.0")
    assert decide(allow, known).allowed
    assert decide(deny, known).allowed


def test_pins_are_exact(policy_of: Build, a_step: Step) -> None:
    policy = policy_of(
        {"default": "deny", "rules": [{"allow": "git", "commit": COMMIT, "digest": "sha256:" + "a" * 64}]}
    )
    reference = f"https://host.example/a@{COMMIT}"
    assert decide(policy, a_step(reference, commit=COMMIT)).allowed
    assert not decide(policy, a_step(reference, commit="c" * 40)).allowed
    assert not decide(policy, a_step(reference, commit=COMMIT, digest="sha256:" + "b" * 64)).allowed


def test_all_layers_must_allow_and_all_are_named(policy_of: Build, a_step: Step) -> None:
    outer, inner = {"rules": [{"name": "all", "allow": "*"}]}, {"rules": [{"name": "no", "deny": "local"}]}
    policy = policy_of(**{"organization 1": outer, "project 5": inner})
    assert decide(policy, a_step()).rule == "organization 1: all; project 5: default"
    denied = decide(policy, a_step("/builds/func.yml"))
    assert (denied.allowed, denied.rule) == (False, "project 5: no")


def test_stricter_limits_win(policy_of: Build, a_step: Step) -> None:
    policy = policy_of(
        one={"limits": {"memory": "1g", "pids": 10, "network": {"allow": ["a.example", "b.example"]}}},
        two={"limits": {"memory": "2g", "timeout": 5, "network": {"allow": ["b.example"]}}},
    )
    limits = decide(policy, a_step(), within=Limits(pids=5, cpus=1)).limits
    assert limits == Limits(
        memory_bytes=2**30, pids=5, cpus=1, timeout_seconds=5, network=(("a.example", "b.example"), ("b.example",))
    )


def test_limits_of_a_rule_take_the_place_of_the_documents(policy_of: Build, a_step: Step) -> None:
    policy = policy_of(
        {
            "limits": {"network": "none", "memory": "1g"},
            "rules": [{"allow": "builtin:checkout", "limits": {"network": "any", "memory": "2g"}}],
        }
    )
    assert decide(policy, a_step()).limits == Limits(memory_bytes=2**31)
    assert decide(policy, a_step("builtin://script@1.0.0")).limits.network == ((),)


def test_inserted_steps_enclose_the_job_outer_layer_first(policy_of: Build) -> None:
    def both(name: str) -> dict[str, object]:
        return {
            "insert": [
                {"name": f"{name}_first", "script": "true", "before": "job"},
                {"name": f"{name}_last", "script": "true", "after": "job"},
            ]
        }

    around = find_insertions(policy_of(one=both("a"), two=both("b")))
    assert [call.name for call in around.before] == ["a_first", "b_first"]
    assert [call.name for call in around.after] == ["b_last", "a_last"]
    assert {call.origin for call in (*around.before, *around.after)} == {"inserted"}


def test_steps_are_inserted_around_one_that_matches(policy_of: Build, a_step: Step) -> None:
    policy = policy_of({"insert": [{"name": "scan", "script": "true", "before": ["oci", "git:host.example/**"]}]})
    assert find_insertions(policy).before == ()
    assert find_insertions(policy, a_step()).before == ()
    git = a_step(f"https://host.example/a@{COMMIT}")
    assert [call.name for call in find_insertions(policy, git).before] == ["scan"]
    assert find_insertions(policy, a_step(f"https://host.example/a@{COMMIT}", origin="inserted")).before == ()


def test_who_inserts_allows_and_who_is_above_decides(policy_of: Build, a_step: Step) -> None:
    step = a_step("builtin://script@1.0.0", name="scan", origin="inserted")
    nested = a_step("builtin://script@1.0.0", name="x", path="/outer/scan/x", origin="inserted")
    insert = {"insert": [{"name": "scan", "script": "true", "before": "job"}]}
    deny = {"default": "deny"}
    for subject in (step, nested):
        assert decide(policy_of(one=insert | deny, two=deny), subject).allowed
        assert not decide(policy_of(one=deny, two=insert), subject).allowed


def test_a_job_cannot_take_the_name_of_an_inserted_step(policy_of: Build, a_step: Step) -> None:
    policy = policy_of({"insert": [{"name": "scan", "script": "true", "before": "job"}]})
    decision = decide(policy, a_step(name="scan"))
    assert not decision.allowed
    assert 'the name "scan" belongs to a step that the policy of runner r inserts' in decision.reason


def test_outer_substitutes_stand(policy_of: Build) -> None:
    name = "builtin://checkout"
    policy = policy_of(one={"substitutes": {name: "/a"}}, two={"substitutes": {name: "/b", "builtin://x": "/c"}})
    assert policy.substitutes == {name: "/a", "builtin://x": "/c"}


def test_an_engine_is_allowed_by_every_layer_or_not_at_all(policy_of: Build) -> None:
    address = "unix:///run/user/7/docker.sock"
    assert not decide_engine(policy_of(), address).allowed
    assert not decide_engine(policy_of({}), address).allowed
    assert decide_engine(policy_of({"engines": "unix:///run/user/*/docker.sock"}), address).allowed
    assert not decide_engine(policy_of({"engines": ["unix:///run/*/docker.sock"]}), address).allowed
    denied = decide_engine(policy_of(one={"engines": ["**"]}, two={}), address)
    assert (denied.allowed, denied.rule) == (False, "two: engines")
    assert decide_engine(policy_of(one={"engines": ["**"]}, two={"engines": ["unix://**"]}), address).allowed


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
def test_a_link_leads_around_no_rule(policy_of: Build, a_step: Step, rule: dict[str, str], is_allowed: bool) -> None:
    policy = policy_of({"rules": [rule], "default": "deny" if "allow" in rule else "allow"})
    step = a_step(reference="/work/link/func.yml", real="/work/denied/func.yml")
    assert decide(policy, step).allowed == is_allowed


LIMITS = st.builds(
    Limits,
    memory_bytes=st.none() | st.integers(1, 9),
    pids=st.none() | st.integers(1, 9),
    network=st.none() | st.lists(st.sampled_from([(), ("a",), ("b",)]), min_size=1, max_size=2).map(tuple),
)


@given(LIMITS, LIMITS)
def test_both_limits_are_never_weaker_than_one(one: Limits, other: Limits) -> None:
    both = stricter(one, other)
    for limits in (one, other):
        for name in ("memory_bytes", "pids"):
            if (limit := getattr(limits, name)) is not None:
                assert getattr(both, name) is not None
                assert getattr(both, name) <= limit
        assert set(limits.network or ()) <= set(both.network or ())
        assert limits.network is None or both.network is not None
