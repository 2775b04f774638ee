"""Text output of step results."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remuda.cli.job.listing import describe
from remuda.lib.clock import stamp
from remuda.localrun.render.step_lines import step_lines, used_in_words
from remuda.localrun.render.step_tree import result_of, summary_of
from remuda.model.step_tree import tree_of
from remuda.wire.proto import agent_pb2 as pb

NOW = 1_750_000_000.0
DIGEST = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"


def finished_event(path: str, **more: Any) -> dict[str, Any]:
    return {
        "event": "finished",
        "path": path,
        "name": path.rpartition("/")[2],
        "status": "success",
        "exit_code": 0,
        "started_at": stamp(NOW),
        "finished_at": stamp(NOW + 1.5),
    } | more


def render_lines(*events: dict[str, Any]) -> list[str]:
    return step_lines(tree_of(events))


def test_status_environment_and_usage_are_shown() -> None:
    usage = {"cpu_user_seconds": 1.25, "cpu_system_seconds": 0.25, "max_rss_bytes": 64 << 20, "io_read_bytes": 2048}
    resolved = {"reference": "builtin://container@1.0.0", "digest": DIGEST}
    assert render_lines(
        {"event": "started", "path": "/container", "name": "container", "time": stamp(NOW)},
        finished_event("/container/+open", origin="compiled"),
        finished_event("/container/step_script", environment="/container", usage=usage, status="failure", exit_code=3,
                       error="exit status 3", reference="builtin://script@1.0.0"),
        finished_event("/container", status="failure", exit_code=3, resolved=resolved,
                       error='step "script": exit status 3'),
        finished_event("/upload", status="skipped", started_at=None, exit_code=None),
    ) == [
        "✗ container  failure, 1.5s, exit code 3, builtin://container@1.0.0 sha256:0123456789ab",
        '    step "script": exit status 3',
        "  ✓ open     success, 1.5s",
        "  ✗ script   failure, 1.5s, exit code 3, builtin://script@1.0.0, in /container, cpu 1.5s, memory 64.0 MiB, "
        "read 2.0 KiB",
        "      exit status 3",
        "- upload     skipped",
    ]  # fmt: skip


def test_a_digest_that_the_reference_names_is_not_repeated() -> None:
    reference = f"registry.example/lint@{DIGEST}"
    [line] = render_lines(finished_event("/lint", resolved={"reference": reference, "digest": DIGEST}))
    assert line == f"✓ lint  success, 1.5s, {reference}"


def test_outputs_and_exports_are_shown() -> None:
    outputs = {"hit": True, "key": "main", "bytes": 1024, "long": "x" * 100}
    [line] = render_lines(finished_event("/cache", outputs=outputs, exports={"A": "1", "B": "2"}))
    assert line == f"✓ cache  success, 1.5s, gave hit=true key=main bytes=1024 long={'x' * 40}…, exported A, B"
    [line] = render_lines(finished_event("/cache", outputs={f"o{number}": number for number in range(8)}))
    assert line.endswith("gave o0=0 o1=1 o2=2 o3=3 o4=4 o5=5 and 2 more")


def test_repeated_text_of_a_policy_is_left_out() -> None:
    denied = {"decision": "denied", "rule": "no curl", "reason": "curl is denied"}
    why = {"network": "own user", "disk": "measured", "memory": "own user"}
    limits = {"advisory": ["network", "disk", "memory", "pids"], "why": why}
    allowed = {"decision": "allowed", "rule": "ours", "reason": "allowed by ours", **limits}
    failed = finished_event(
        "/curl", status="failure", started_at=None, exit_code=None, policy=denied, error="curl is denied"
    )
    assert render_lines(failed, finished_event("/scan", policy=allowed)) == [
        "✗ curl  failure",
        '    denied by rule "no curl": curl is denied',
        "✓ scan  success, 1.5s",
        '    allowed by rule "ours"',
        "    advisory: network, memory (own user), disk (measured), pids",
    ]


def test_policy_decisions_are_shown() -> None:
    policy = {"decision": "denied", "rule": "no curl", "reason": "it is not allowed here"}
    denied = finished_event("/curl", status="failure", started_at=None, exit_code=None, policy=policy)
    limits = {"enforced": ["memory"], "advisory": ["network"], "why": {"network": "no namespaces here"}}
    allowed = {"decision": "allowed", "rule": "", "reason": "", **limits}
    assert render_lines(denied, finished_event("/scan", origin="inserted", policy=allowed)) == [
        "✗ curl  failure",
        '    denied by rule "no curl": it is not allowed here',
        "✓ scan  success, 1.5s, inserted by policy",
        "    enforced: memory",
        "    advisory: network (no namespaces here)",
    ]


def test_attempts() -> None:
    failed = finished_event("/fetch", status="failure", exit_code=7, error="exit status 7", attempt=1, retried=True)
    assert render_lines(failed, finished_event("/fetch", attempt=2, left_out=["outputs"])) == [
        "✓ fetch  success, 1.5s, 2 attempts",
        "    attempt 1: failure, 1.5s, exit code 7: exit status 7",
        "    too long to be kept: outputs",
    ]


def test_values_of_other_types_are_ignored() -> None:
    [line] = render_lines(finished_event("/a", usage=5, outputs=[1], policy="x", resolved=None, exports=""))
    assert line == "✓ a  success, 1.5s"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
USAGE = {"cpu_user_seconds": JSON, "max_rss_bytes": JSON}
POLICY = {"decision": JSON, "rule": JSON, "advisory": JSON, "why": JSON, "enforced": JSON}
FIELDS = (
    *(
        "status",
        "name",
        "started_at",
        "exit_code",
        "error",
        "origin",
        "reference",
        "resolved",
        "environment",
        "attempt",
    ),
    *("usage", "outputs", "exports", "policy", "attempts", "steps", "left_out", "retried"),
)


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(FIELDS, JSON)
        | {"usage": st.fixed_dictionaries(USAGE), "policy": st.fixed_dictionaries(POLICY)},
    )
)
def test_any_result_can_be_rendered(more: dict[str, Any]) -> None:
    assert render_lines({"event": "finished", "path": "/a"} | more)
    assert describe(JOB | {"steps": [{"event": "finished", "path": "/a"} | more]})


JOB: dict[str, Any] = {
    "id": 7, "name": "build", "status": "failed", "stage": "test", "ref": "main", "pipeline": {"id": 3},
    "steps": [
        {"event": "started", "path": "/box", "name": "box", "time": stamp(NOW)},
        finished_event("/box/+open"),
        finished_event("/box/step_script", status="failure", exit_code=3, error="exit status 3"),
        finished_event("/box", status="failure", exit_code=3),
        finished_event("/upload", status="skipped", started_at=None),
    ],
}  # fmt: skip


def test_a_short_description_has_top_level_and_failed_steps() -> None:
    assert describe(JOB)[-4:] == [
        "  steps",
        "    box       failure  1.5s",
        "      script  failure  1.5s",
        "    upload    skipped",
    ]


def test_a_job_with_all_of_its_steps() -> None:
    output = describe(JOB, steps=True)
    assert output[output.index("  steps") + 2] == "      ✓ open    success, 1.5s"


def test_the_result_of_one_step() -> None:
    end_event = finished_event("/step", outputs={"said": "hi\x1b[2J"}, log_start=1, log_end=2)
    start_event = {"event": "started", "path": "/step", "name": "step", "time": stamp(NOW)}
    events = [start_event, finished_event("/step/a", log_stream="01"), end_event]
    result = result_of(events, pb.JobEnd(status="success"), root="/step")
    assert (result["outputs"], [step["name"] for step in result["steps"]]) == ({"said": "hi\x1b[2J"}, ["a"])
    assert set(result["steps"][0]) >= {"outputs", "exports", "steps"}
    assert "log_stream" not in result["steps"][0]
    assert summary_of(result).splitlines() == [
        "✓ a  success, 1.5s",
        "✓ success",
        "  output said = hi\\x1b[2J",
    ]


def test_resource_usage_of_a_job() -> None:
    used = {"cpu_user_seconds": 1.5, "cpu_system_seconds": 0.5, "memory_peak_bytes": 3 * 2**20, "source": "rusage"}
    used |= {"disk_written_bytes": 2**20, "work_dir_bytes": 5 * 2**20, "network_sent_bytes": 2**30}
    events = [{"event": "started", "path": "/a"}, "nonsense", {"event": "used", "used": used}]
    assert used_in_words(events) == "cpu 2.0s, memory 3.0 MiB, wrote 1.0 MiB, sent 1.0 GiB, work folder 5.0 MiB"
    assert used_in_words([{"event": "used", "used": 7}]) == ""
    assert used_in_words([]) == ""
