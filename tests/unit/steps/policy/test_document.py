import json
import math
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.errors import PolicyError
from remuda.steps.policy.document import parse_layer, parse_policy
from remuda.steps.policy.values import Policy
from remuda.steps.process.limits import Limits


def read_error(document: Any) -> str:
    with pytest.raises(PolicyError) as caught:
        parse_layer(document, author="project 5")
    return str(caught.value)


def test_an_empty_text_is_an_empty_policy() -> None:
    assert parse_policy("") == Policy()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "policy of project 5: an object is needed, not a list"),
        ({"ruels": []}, "policy of project 5: ruels: unknown key; did you mean rules?"),
        ({"default": "alow"}, "policy of project 5: default: 'alow' is not one of allow, deny; did you mean allow?"),
        (
            {"rules": [{"allow": "*"}, {"deny": "*", "versoin": "1"}]},
            "rules[1].versoin: unknown key; did you mean version?",
        ),
        ({"rules": [{"name": "x"}]}, "rules[0]: write either allow or deny"),
        ({"rules": [{"allow": "*", "deny": "*"}]}, "rules[0]: write either allow or deny"),
        ({"rules": [{"allow": []}]}, "rules[0].allow: no source"),
        ({"rules": [{"allow": "bultin:x"}]}, "did you mean builtin?"),
        ({"rules": [{"allow": "git:"}]}, "'git:': a source begins with"),
        ({"rules": [{"allow": "*", "version": "~1"}]}, "rules[0].version: '~1' is not a version"),
        ({"rules": [{"allow": "*", "digest": "abc"}]}, "rules[0].digest: 'abc' is not sha256:"),
        ({"rules": [{"allow": "git", "commit": "abc"}]}, "rules[0].commit: 'abc' is not a whole commit"),
        ({"rules": [{"deny": "*", "limits": {}}]}, "rules[0].limits: a rule that denies has no limits"),
        ({"limits": {"memroy": 1}}, "limits.memroy: unknown key; did you mean memory?"),
        ({"limits": {"memory": "much"}}, "limits.memory: 'much' is not a size"),
        ({"limits": {"memory": True}}, "limits.memory: True is not a size"),
        ({"limits": {"cpu": 0}}, "limits.cpu: 0 is not a number of processors"),
        ({"limits": {"pids": 1.5}}, "limits.pids: 1.5 is not a whole number"),
        ({"limits": {"memory": "9" * 400}}, "9' is not a size"),
        ({"limits": {"memory": 10**400}}, "0 is not a size"),
        ({"limits": {"timeout": 10**400}}, "0 is not a duration"),
        ({"limits": {"timeout": math.nan}}, "nan is not a duration"),
        ({"limits": {"timeout": "9" * 400 + "h"}}, "is not a duration"),
        ({"limits": {"cpu": 10**400}}, "0 is not a number of processors"),
        ({"limits": {"timeout": "soon"}}, "limits.timeout: 'soon' is not a duration"),
        ({"limits": {"network": "off"}}, 'limits.network: write "none", "any" or'),
        ({"limits": {"network": {"allow": ["a b"]}}}, "limits.network.allow: 'a b' is not a host"),
        ({"insert": [{"name": "a b", "step": "builtin://x", "before": "job"}]}, "insert[0].name: a name of letters"),
        ({"insert": [{"name": "a", "step": "builtin://x"}]}, "insert[0]: write either before or after"),
        ({"insert": [{"name": "a", "before": "job"}]}, "insert[0]: write either step or script"),
        ({"insert": [{"name": "a", "step": "./x", "before": "job"}]}, "could be changed by the job"),
        ({"insert": [{"name": "a", "step": "${{ vars.X }}", "before": "job"}]}, "must not contain an expression"),
        ({"insert": [{"name": "a", "script": "x", "inputs": {"a": 1}, "before": "job"}]}, "a script has no inputs"),
        ({"insert": [{"name": "a", "script": "x", "before": "job"}] * 2}, 'the name "a" is taken'),
        (
            {"substitutes": {"builtin://checkout": 1}},
            "substitutes.builtin://checkout: a string is needed, not a number",
        ),
        ({"advisory": False}, "advisory: False is not one of allow, deny"),
    ],
)
def test_error_messages_contain_the_place_of_the_mistake(document: Any, message: str) -> None:
    assert message in read_error(document)


def test_limits_are_parsed() -> None:
    limits = {"memory": "1.5g", "disk": 1000, "cpu": 0.5, "pids": 10, "timeout": "1h 30m", "network": "none"}
    layer = parse_layer({"limits": limits}, author="x")
    assert layer.limits == Limits(
        memory_bytes=3 * 2**29, disk_bytes=1000, cpus=0.5, pids=10, timeout_seconds=5400, network=((),)
    )
    assert layer.limits.names() == ("network", "memory", "cpu", "disk", "pids", "timeout")


def test_a_step_inserted_after_the_job_always_runs() -> None:
    document = {"insert": [{"name": "scan", "step": "builtin://scan@1", "inputs": {"level": 2}, "after": "job"}]}
    (insertion,) = parse_layer(document, author="x").insertions
    assert (insertion.call.origin, insertion.call.condition) == ("inserted", "always()")
    assert insertion.call.inputs == {"level": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "policy: invalid JSON"),
        ("[]", "policy: an object is needed"),
        ('{"version": 2, "layers": []}', "this agent knows 1, not 2"),
        ('{"version": 1, "layers": [{"author": "x"}]}', "policy of x: an object is needed, not nothing"),
    ],
)
def test_invalid_policies_are_refused(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    assert message in str(caught.value)


def test_two_layers_cannot_insert_the_same_name() -> None:
    document = {"insert": [{"name": "scan", "script": "true", "before": "job"}]}
    layers = [{"author": author, "document": document} for author in ("runner r", "project 5")]
    with pytest.raises(PolicyError, match=r'policy of project 5: insert: the name "scan" is taken by .* runner r'):
        parse_policy(json.dumps({"version": 1, "layers": layers}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["allow", "limits", "name"]), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(["default", "rules", "limits", "insert", "substitutes", "advisory"])


@given(st.dictionaries(KEYS, JSON | st.lists(st.dictionaries(st.sampled_from(["allow", "before", "name"]), JSON))))
def test_any_document_is_parsed_or_refused(document: dict[str, Any]) -> None:
    with suppress(PolicyError):
        parse_layer(document, author="x")


DOCS = Path(__file__).parents[4] / "docs/reference"


def test_examples_in_the_documentation_can_be_parsed() -> None:
    examples = re.findall(r"```json\n(.*?)```", (DOCS / "step-policy.md").read_text(), re.DOTALL)
    layer = parse_layer(json.loads(examples[0]), author="x")
    assert len(layer.rules) == 3
    [runner_settings] = re.findall(
        r"```toml\n(\[runners\.remuda\].*?)```", (DOCS / "config-toml.md").read_text(), re.DOTALL
    )
    assert (
        parse_layer(tomllib.loads(runner_settings)["runners"]["remuda"]["policy"], author="x").limits.memory_bytes
        == 2**32
    )
