"""Steps that call steps: inputs, environment, outputs, exports, masking of secrets, and error texts."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.step_jobs import Build

from remuda.testing.agent_process import AgentProcess, Seen, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobVariable, LogChunk


def write_package(work: Path, name: str, definition: Any, spec: Any = None, **files: str) -> None:
    """Write the step ./NAME with more files beside it."""
    folder = work / name
    folder.mkdir()
    (folder / "func.yml").write_text(f"{json.dumps({'spec': spec or {}})}\n---\n{json.dumps(definition)}")
    for file, text in files.items():
        (folder / file).write_text(text)
        (folder / file).chmod(0o755)


def print_step(*arguments: str) -> dict[str, Any]:
    return {"exec": {"command": ["printf", "%s\\n", *arguments]}}


def shell_step(text: str, **more: Any) -> dict[str, Any]:
    return {"exec": {"command": ["sh", "-ec", text]}} | more


def results_by_path(seen: Seen) -> dict[str, Any]:
    """The finished event of each step; of several attempts the last one."""
    return {event["path"]: event for event in seen.results if event["event"] == "finished"}


async def test_nested_run_with_inputs_and_outputs(agent: AgentProcess, a_job: Build, work: Path) -> None:
    spec = {"inputs": {"who": {"type": "string", "default": "you"}, "times": {"type": "number"}}}
    spec |= {"outputs": {"text": {"type": "string"}}}
    write_package(
        work,
        "greet",
        {
            "exec": {
                "command": [
                    "sh",
                    "-ec",
                    'echo "hello $1 $2 $GREETED"; echo "{\\"name\\":\\"text\\",\\"value\\":\\"hi $1\\"}" >>"$3"',
                    "sh",
                    "${{ inputs.who }}",
                    "${{ inputs.times }}",
                    "${{ output_file }}",
                ]
            },
            "env": {"GREETED": "${{ inputs.who }} in ${{ func_dir }}"},
        },
        spec,
    )
    write_package(
        work,
        "outer",
        {
            "run": [
                {"name": "one", "step": "../greet", "inputs": {"who": "${{ inputs.name }}", "times": 2}},
                {"name": "two", "step": "../greet", "inputs": {"who": "${{ steps.one.outputs.text }}", "times": 3}},
            ],
            "outputs": {"last": "${{ steps.two.outputs.text }}", "both": ["${{ steps.one.outputs }}", 1]},
        },
        {
            "inputs": {"name": {"type": "string"}},
            "outputs": {"last": {"type": "string"}, "both": {"type": "array"}},
        },
    )
    entries: list[dict[str, Any]] = [
        {"name": "outer", "step": "./outer", "inputs": {"name": "${{ vars.NAME }}"}},
        {"name": "show", "script": "echo 'got ${{ steps.outer.outputs.last }} ${{ steps.outer.outputs.both }}'"},
    ]
    seen = await run_job(agent, a_job(steps=steps_text(*entries), variables=[JobVariable(key="NAME", value="ann")]))
    assert seen.check().status == "success", seen.log
    assert seen.lines == [
        f"hello ann 2 ann in {work}/greet".encode(),
        f"hello hi ann 3 hi ann in {work}/greet".encode(),
        b'got hi hi ann [{"text":"hi ann"},1]',
    ]
    results = results_by_path(seen)
    assert list(results) == ["/outer/one", "/outer/two", "/outer", "/show"]
    assert results["/outer"]["outputs"] == {"last": "hi hi ann", "both": [{"text": "hi ann"}, 1]}
    assert results["/outer/two"]["inputs"] == {"who": "hi ann", "times": 3}
    assert results["/outer/one"]["env"] == {"GREETED": f"ann in {work}/greet"}
    assert results["/outer/one"]["written"] == "../greet"
    assert results["/outer/one"]["resolved"]["reference"] == f"{work}/greet/func.yml"
    assert results["/outer/one"]["resolved"]["digest"].startswith("sha256:")
    assert results["/outer/one"]["command"][-3:-1] == ["ann", "2"]
    started = [event["path"] for event in seen.results if event["event"] == "started"]
    assert started == ["/outer", "/outer/one", "/outer/two", "/show"]


async def test_error_texts_nest_and_end_in_exit_status(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_package(work, "fail", shell_step("exit 3"))
    write_package(work, "outer", {"run": [{"name": "inner", "step": "../fail"}, {"name": "never", "step": "../fail"}]})
    seen = await run_job(agent, a_job(steps=steps_text({"name": "outer", "step": "./outer"})))
    end = seen.check()
    assert (end.message, end.exit_code) == ('step "outer": step "inner": exit status 3', 3)
    assert {path: event["status"] for path, event in results_by_path(seen).items()} == {
        "/outer/inner": "failure", "/outer/never": "skipped", "/outer": "failure"
    }  # fmt: skip
    assert results_by_path(seen)["/outer"]["error_kind"] == "step"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"step": "./none"}, "none does not exist"),
        ({"step": "./broken"}, "func.yml:2"),
        ({"step": "./typed", "inputs": {"n": "five"}}, 'input "n": a number is needed, not a string'),
        ({"step": "./typed"}, 'input "n" required, but not defined'),
        ({"step": "./typed", "inputs": {"n": 1, "w": 2}}, 'step does not accept input with name "w"'),
        ({"script": "echo ${{ vars.NOPE }}"}, "attribute not found"),
        ({"script": "true", "if": "vars.NOPE"}, "attribute not found"),
        ({"step": "./missing"}, 'exec: "no-such-program": executable file not found in $PATH'),
        ({"step": "./plain"}, 'plain/x": permission denied: no execute bit is set'),
        ({"step": "./interpreted"}, 'interpreted/x": its interpreter /no/such/program does not exist'),
        ({"step": "./nowhere"}, "no such directory"),
        ({"step": "builtin://chekout"}, "did you mean builtin://checkout?"),
        ({"step": "./typed", "inputs": {"n": 1}, "run": [{"name": "x", "script": "true"}]}, "makes no environment"),
    ],
)
async def test_a_load_failure_is_a_result_too(
    agent: AgentProcess, a_job: Build, work: Path, entry: dict[str, Any], text: str
) -> None:
    write_package(work, "typed", print_step("${{ inputs.n }}"), {"inputs": {"n": {"type": "number"}}})
    write_package(work, "missing", {"exec": {"command": ["no-such-program"]}})
    for name, mode in (("plain", 0o644), ("interpreted", 0o755)):
        write_package(work, name, {"exec": {"command": ["${{ func_dir }}/x"]}})
        (work / name / "x").write_text("#! /no/such/program -u\n")
        (work / name / "x").chmod(mode)
    write_package(work, "nowhere", {"exec": {"command": ["true"], "work_dir": "no/where"}})
    (work / "broken").mkdir()
    (work / "broken/func.yml").write_text("spec: [\n")
    seen = await run_job(agent, a_job(steps=steps_text({"name": "it"} | entry, {"name": "next", "script": "true"})))
    end = seen.check()
    assert (end.status, end.reason) == ("failure", "script_failure")
    assert text in end.message
    results = results_by_path(seen)
    assert (results["/it"]["status"], results["/it"]["fault"], results["/next"]["status"]) == (
        "failure",
        "user",
        "skipped",
    )
    assert any(text.encode() in line for line in seen.agent_lines)
    assert b"shim" not in seen.log
    assert results["/it"]["error_kind"] == "load"


async def test_self_reference_is_refused(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_package(work, "self", {"run": [{"name": "again", "step": "./"}]})
    seen = await run_job(agent, a_job(steps=steps_text({"name": "it", "step": "./self"})))
    assert (seen.check().reason, results_by_path(seen)["/it/again"]["error_kind"]) == ("script_failure", "load")
    assert "the step calls itself" in seen.check().message


async def test_steps_cannot_go_too_deep(agent: AgentProcess, a_job: Build, work: Path) -> None:
    for number in range(40):
        write_package(work, f"s{number}", {"run": [{"name": "n", "step": f"../s{number + 1}"}]})
    seen = await run_job(agent, a_job(steps=steps_text({"name": "n", "step": "./s0"})))
    assert "more than 32 levels deep" in seen.check().message


async def test_precedence_of_environment_variables(agent: AgentProcess, a_job: Build, work: Path) -> None:
    show = 'echo "$0: $A $B $C $D $E"'
    write_package(
        work,
        "show",
        {"exec": {"command": ["sh", "-c", show, "${{ env.WHO }}"]}, "env": {"A": "definition-${{ env.A }}"}},
    )
    write_package(
        work,
        "outer",
        {
            "run": [{"name": "in", "step": "../show", "env": {"B": "invocation", "A": "call"}}],
            "env": {"C": "run", "B": "run"},
        },
    )
    entries: list[dict[str, Any]] = [
        {
            "name": "export",
            "script": """for n in A B C D; do printf '{"name":"%s","value":"export"}\\n' $n; done >>$REMUDA_EXPORTS""",
        },
        {"name": "outer", "step": "./outer", "env": {"WHO": "me"}},
    ]
    everything = dict.fromkeys("ABCDE", "request")
    seen = await run_job(agent, a_job(steps=steps_text(*entries), env=everything))
    assert seen.lines == [b"me: definition-call invocation run export request"]
    assert results_by_path(seen)["/export"]["exports"] == dict.fromkeys("ABCD", "export")


EXPORT = 'echo \'{"name":"%s","value":"%s"}\' >>$REMUDA_EXPORTS'


async def test_export_redefines_in_nested_run(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_package(
        work,
        "outer",
        {"run": [
            {"name": "set", "script": EXPORT % ("OLD", "new") + "; " + EXPORT % ("FRESH", "fresh")},
            {"name": "in", "script": "echo in $OLD $FRESH"},
        ]},
    )  # fmt: skip
    seen = await run_job(
        agent,
        a_job(
            steps=steps_text(
                {"name": "outer", "step": "./outer"}, {"name": "after", "script": "echo after $OLD $FRESH"}
            ),
            env={"OLD": "old"},
        ),
    )
    assert seen.lines == [b"in new fresh", b"after new fresh"]


async def test_exports_do_not_reach_another_job(agent: AgentProcess, a_job: Build) -> None:
    await run_job(agent, a_job("1", steps=steps_text({"name": "set", "script": EXPORT % ("LEAK", "leaked")})))
    seen = await run_job(agent, a_job("2", script="echo got ${LEAK-nothing}"))
    assert seen.lines == [b"got nothing"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"name":"S","value":{}}', 'export "S"'),
        ('{"name":"A-B","value":"x"}', 'export "A-B" is not a variable name'),
    ],
)
async def test_struct_export_fails_step_not_the_agent(agent: AgentProcess, a_job: Build, line: str, error: str) -> None:
    seen = await run_job(agent, a_job(steps=steps_text({"name": "set", "script": f"echo '{line}' >>$REMUDA_EXPORTS"})))
    end = seen.check()
    assert (end.reason, results_by_path(seen)["/set"]["error_kind"]) == ("script_failure", "outputs")
    assert error in end.message
    assert (await run_job(agent, a_job("2", script="echo alive"))).lines == [b"alive"]


async def test_script_can_write_its_own_outputs(agent: AgentProcess, a_job: Build) -> None:
    write = """echo '{"name":"any","value":{"deep":[1,true]}}' >>"$REMUDA_OUTPUTS" """
    seen = await run_job(
        agent,
        a_job(
            steps=steps_text(
                {"name": "write", "script": write},
                {"name": "read", "script": "echo ${{ steps.write.outputs.any.deep[0] }}"},
            )
        ),
    )
    assert seen.lines == [b"1"]
    assert results_by_path(seen)["/write"]["outputs"] == {"any": {"deep": [1, True]}}


async def test_outputs_are_checked_and_a_failed_step_has_none(agent: AgentProcess, a_job: Build, work: Path) -> None:
    spec = {"outputs": {"n": {"type": "number"}}}
    write = """echo '{"name":"%s","value":%s}' >>"$REMUDA_OUTPUTS"; exit %s"""
    for name, values in {
        "good": ("n", 1, 0),
        "type": ("n", '"x"', 0),
        "other": ("m", 1, 0),
        "failed": ("n", 1, 4),
    }.items():
        write_package(work, name, shell_step(write % values), spec)
    write_package(work, "none", shell_step("true"), spec)
    for name, text in {
        "type": "a number is needed", "other": "not declared", "failed": "exit status 4", "none": "was not written"
    }.items():  # fmt: skip
        seen = await run_job(agent, a_job(name, steps=steps_text({"name": "it", "step": f"./{name}"})))
        assert text in seen.check().message
        assert "outputs" not in results_by_path(seen)["/it"]
    seen = await run_job(agent, a_job("good", steps=steps_text({"name": "it", "step": "./good"})))
    assert results_by_path(seen)["/it"]["outputs"] == {"n": 1}


async def test_output_line_above_64_kib_is_read(agent: AgentProcess, a_job: Build) -> None:
    write = """printf '{"name":"long","value":"%0100000d"}\\n' 7 >>$REMUDA_OUTPUTS"""
    read = "x='${{ steps.write.outputs.long }}'; echo ${#x}"
    seen = await run_job(
        agent, a_job(steps=steps_text({"name": "write", "script": write}, {"name": "read", "script": read}))
    )
    assert seen.lines == [b"100000"]
    assert len(results_by_path(seen)["/write"]["outputs"]["long"]) == 100_000


async def test_command_is_found_in_the_steps_path(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_package(work, "own", {"exec": {"command": ["my-tool"]}, "env": {"PATH": "${{ func_dir }}:${{ env.PATH }}"}})
    (work / "own/my-tool").write_text("#!/bin/sh\necho mine\n")
    (work / "own/my-tool").chmod(0o755)
    seen = await run_job(agent, a_job(steps=steps_text({"name": "it", "step": "./own"})))
    assert seen.lines == [b"mine"]


async def test_relative_work_dir_is_relative_to_the_job(agent: AgentProcess, a_job: Build, work: Path) -> None:
    (work / "sub").mkdir()
    write_package(work, "where", {"exec": {"command": ["pwd"], "work_dir": "sub"}})
    seen = await run_job(agent, a_job(steps=steps_text({"name": "it", "step": "./where"})))
    assert seen.lines == [f"{work}/sub".encode()]
    assert results_by_path(seen)["/it"]["work_dir"] == f"{work}/sub"


async def test_secrets_and_inputs_are_not_in_argv(agent: AgentProcess, a_job: Build) -> None:
    script = "tr '\\0' ' ' </proc/$PPID/cmdline; tr '\\0' ' ' </proc/$$/cmdline; : '${{ vars.S }}'"
    seen = await run_job(
        agent,
        a_job(steps=steps_text({"name": "it", "script": script}), variables=[JobVariable(key="S", value="needle")]),
    )
    assert b"remuda-shim" in b"".join(seen.lines)
    assert b"needle" not in b"".join(seen.lines)


async def test_dynamic_path_is_relative_to_the_caller(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_package(work, "outer", {"run": [{"name": "in", "step": "./${{ vars.WHICH }}"}]})
    write_package(work / "outer", "sub", print_step("the inner one"))
    seen = await run_job(
        agent,
        a_job(steps=steps_text({"name": "it", "step": "./outer"}), variables=[JobVariable(key="WHICH", value="sub")]),
    )
    assert seen.lines == [b"the inner one"]


SECRET = {"inputs": {"token": {"type": "string", "sensitive": True}}}


async def test_sensitive_values_are_masked_everywhere(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_package(
        work,
        "make",
        shell_step("""echo '{"name":"key","value":"made-secret"}' >>$REMUDA_OUTPUTS"""),
        {"outputs": {"key": {"type": "string", "sensitive": True}}},
    )
    write_package(work, "use", shell_step('echo "$0 $K"; exit 3') | {"env": {"K": "${{ inputs.token }}x"}}, SECRET)
    use = json.loads((work / "use/func.yml").read_text().partition("---")[2])
    use["exec"]["command"].append("${{ inputs.token }}")
    (work / "use/func.yml").write_text(f"{json.dumps({'spec': SECRET})}\n---\n{json.dumps(use)}")
    steps: list[dict[str, Any]] = [
        {"name": "make", "step": "./make"},
        {"name": "use", "step": "./use", "inputs": {"token": "${{ steps.make.outputs.key }}"}},
    ]
    seen = await run_job(agent, a_job(steps=steps_text(*steps)))
    assert seen.lines == [b"[MASKED] [MASKED]"]
    results = results_by_path(seen)
    assert results["/make"]["outputs"] == {"key": "[MASKED]"}
    assert results["/use"]["inputs"] == {"token": "[MASKED]"}
    assert results["/use"]["env"] == {"K": "[MASKED]"}
    assert b"made-secret" not in json.dumps(seen.results).encode()


async def test_sensitive_value_into_plain_input_is_refused(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_package(work, "plain", print_step("${{ inputs.token }}"), {"inputs": {"token": {"type": "string"}}})
    write_package(
        work, "outer", {"run": [{"name": "in", "step": "../plain", "inputs": {"token": "${{ inputs.token }}"}}]}, SECRET
    )
    seen = await run_job(
        agent, a_job(steps=steps_text({"name": "it", "step": "./outer", "inputs": {"token": "s3cret-value"}}))
    )
    assert 'input "token" is given a sensitive value' in seen.check().message
    assert b"s3cret-value" not in seen.log


async def test_mask_added_at_run_time(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    script = """echo hidden-text >>"$REMUDA_MASKS"; echo a hidden-text b; printf hidd; sleep 0.7; echo en-text"""
    steps = steps_text(
        {"name": "one", "script": script},
        {"name": "two", "script": "echo two hidden-text; exit 3", "env": {"E": "hidden-text"}},
    )
    seen = await run_job(agent, a_job(steps=steps))
    assert seen.lines == [b"a [MASKED] b", b"[MASKED]", b"two [MASKED]"]
    assert results_by_path(seen)["/two"]["env"] == {"E": "[MASKED]"}


async def test_a_script_with_a_secret_in_it_is_still_shown(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_package(
        work, "outer", {"run": [{"name": "in", "script": "echo 'use ${{ inputs.token }}'\necho plain"}]}, SECRET
    )
    entry = {"name": "it", "step": "./outer", "inputs": {"token": "s3cret-value"}}
    seen = await run_job(agent, a_job(steps=steps_text(entry)))
    assert seen.lines == [b"use [MASKED]", b"plain"]
    assert results_by_path(seen)["/it/in"]["inputs"] == {"script": "[MASKED]"}


async def test_script_above_128_kib_runs(agent: AgentProcess, a_job: Build) -> None:
    seen = await run_job(agent, a_job(steps=steps_text({"name": "it", "script": f": {'x' * 300_000}\necho ran"})))
    assert seen.lines == [b"ran"]
    assert "characters more" in results_by_path(seen)["/it"]["inputs"]["script"]


async def test_environment_over_os_limit_is_started(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_package(work, "small", shell_step("echo ${#SMALL} ${#HUGE}"))
    variables = [JobVariable(key="SMALL", value="s"), JobVariable(key="HUGE", value="h" * 200_000)]
    steps = steps_text({"name": "script", "script": "echo ${#SMALL} ${#HUGE}"}, {"name": "exec", "step": "./small"})
    seen = await run_job(agent, a_job(steps=steps, variables=variables))
    assert seen.lines == [b"1 200000", b"1 0"]


async def test_export_names_are_checked(agent: AgentProcess, a_job: Build) -> None:
    seen = await run_job(agent, a_job(steps=steps_text({"name": "set", "script": EXPORT % ("A=B", "x")})))
    assert 'export "A=B" is not a variable name' in seen.check().message


async def test_large_results_stream(agent: AgentProcess, a_job: Build) -> None:
    """Outputs of hundreds of KiB in each of many steps are available to later steps and in results."""
    write = """printf '{"name":"long","value":"%0300000d"}\\n' 7 >>$REMUDA_OUTPUTS"""
    entries = [{"name": f"w{number}", "script": write} for number in range(20)]
    last = {"name": "last", "script": "x='${{ steps.w19.outputs.long }}'; echo ${#x}"}
    seen = await run_job(agent, a_job(steps=steps_text(*entries, last)))
    assert seen.lines == [b"300000"]
    assert all(len(results_by_path(seen)[f"/w{number}"]["outputs"]["long"]) == 300_000 for number in range(20))


async def test_shim_and_native_see_the_same_variables(agent: AgentProcess, a_job: Build, work: Path) -> None:
    """A script, a command, and a command in a nested list have the same environment."""
    write_package(work, "show", {"exec": {"command": ["env"]}})
    write_package(work, "outer", {"run": [{"name": "in", "step": "../show"}]})
    steps = [{"name": "a", "script": "exec env"}, {"name": "b", "step": "./show"}, {"name": "c", "step": "./outer"}]
    variable_names = []
    for number, step in enumerate(steps):
        variables = [JobVariable(key="A", value="1"), JobVariable(key="FILE", value="2", file=True)]
        seen = await run_job(agent, a_job(str(number), steps=steps_text(step), variables=variables, env={"B": "3"}))
        names = {line.partition(b"=")[0] for line in seen.lines}
        variable_names.append(names - {b"PWD", b"OLDPWD", b"SHLVL", b"_"})
    assert variable_names[0] == variable_names[1] == variable_names[2]
    assert {b"A", b"B", b"FILE", b"CI_JOB_STATUS"} <= variable_names[0]


async def test_request_timeout_ends_the_job(agent: AgentProcess, a_job: Build) -> None:
    seen = await run_job(agent, a_job(script="sleep 60", timeout_seconds=1))
    assert (seen.check().reason, results_by_path(seen)["/script"]["error_kind"]) == ("job_execution_timeout", "timeout")


async def test_cancelled_is_reported(agent: AgentProcess, a_job: Build) -> None:
    async with agent.client() as client:
        await client.start(a_job("2", script="sleep 60"))
        await until(lambda: any((agent.data / "jobs").glob("*/step-0.pid")))
        await client.cancel("2")
        seen = await follow(client, "2")
    assert (seen.check().status, results_by_path(seen)["/script"]["status"]) == ("cancelled", "cancelled")


async def test_error_texts_hold_no_secrets(agent: AgentProcess, a_job: Build, work: Path) -> None:
    job = a_job(
        steps=steps_text({"name": "it", "step": "./${{ vars.S }}", "inputs": {"a": "${{ vars.S }}"}}),
        variables=[JobVariable(key="S", value="s3cret-value", masked=True)],
    )
    seen = await run_job(agent, job)
    assert "[MASKED]" in seen.check().message
    assert b"s3cret" not in seen.log + json.dumps(seen.results).encode() + seen.check().message.encode()


async def test_results_hold_no_secrets(agent: AgentProcess, a_job: Build) -> None:
    entry = {
        "name": "it",
        "script": 'echo {\\"name\\": \\"o\\", \\"value\\": \\"$S\\"} >>$REMUDA_OUTPUTS',
        "env": {"E": "${{ vars.S }}"},
    }
    variables = [JobVariable(key="S", value="s3cret-value", masked=True)]
    seen = await run_job(agent, a_job(steps=steps_text(entry), variables=variables, env={"CI_STEPS_DEBUG": "true"}))
    assert (results_by_path(seen)["/it"]["outputs"], results_by_path(seen)["/it"]["env"]) == (
        {"o": "[MASKED]"},
        {"E": "[MASKED]"},
    )
    assert b"s3cret" not in seen.log + json.dumps(seen.results).encode()


async def test_masks_have_a_limit(agent: AgentProcess, a_job: Build) -> None:
    seen = await run_job(agent, a_job(script='seq 100000 120000 >>"$REMUDA_MASKS"; echo 100005 119999'))
    assert seen.lines == [b"[MASKED] 119999"]
    assert any(b"a step may have 10000 texts masked" in line for line in seen.agent_lines)


async def test_temporary_directories_are_removed(agent: AgentProcess, a_job: Build) -> None:
    await run_job(agent, a_job(script='echo x >$REMUDA_OUTPUTS.mine; echo \'{"name":"a","value":1}\' >$REMUDA_OUTPUTS'))
    (folder,) = (agent.data / "jobs").iterdir()
    assert {path.name for path in folder.iterdir()} == {"events", "log", "mark", "request"}


async def test_a_job_may_be_one_command(agent: AgentProcess, a_job: Build) -> None:
    seen = await run_job(agent, a_job(steps='{}\n---\n{"exec": {"command": ["echo", "only"]}}'))
    assert (seen.lines, seen.statuses) == ([b"only"], {"step": "success"})


async def test_an_output_file_must_be_a_plain_file(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    (tmp_path / "private").write_text('{"name":"a","value":"private"}')
    for number, trick in enumerate([f"ln -s {tmp_path}/private", "mkfifo", "mkdir"]):
        seen = await run_job(agent, a_job(str(number), script=f'{trick} "$REMUDA_OUTPUTS"'))
        assert "has to be a plain file" in seen.check().message


@pytest.mark.parametrize("ending", ["cancel", "timeout", "step timeout"])
async def test_resolution_of_a_step_can_be_stopped(agent: AgentProcess, a_job: Build, ending: str, work: Path) -> None:
    """The server accepts the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        reference = {"git": {"url": f"http://127.0.0.1:{port}/project", "rev": "v1"}}
        entry: dict[str, Any] = {"name": "it", "step": reference, "timeout": 60}
        if ending == "step timeout":
            write_package(work, "outer", {"run": [entry]}, {"remuda": 1})
            entry = {"name": "it", "step": "./outer", "timeout": 1}
        job = a_job(steps=steps_text(entry), timeout_seconds=1 if ending == "timeout" else 0)
        async with agent.client() as client:
            await client.start(job)
            async with asyncio.timeout(20):
                connection, _ = await asyncio.get_running_loop().sock_accept(server)
            with connection:
                if ending == "cancel":
                    await client.cancel("1")
                seen = await follow(client, "1")
    expected = {"cancel": "job_canceled", "timeout": "job_execution_timeout", "step timeout": "script_failure"}
    assert seen.check().reason == expected[ending]
    assert results_by_path(seen)["/it"]["status"] == ("cancelled" if ending == "cancel" else "failure")


async def test_a_step_that_cannot_be_loaded_is_retried(agent: AgentProcess, a_job: Build, work: Path) -> None:
    write_package(work, "made", print_step("here"))
    steps = steps_text(
        {"name": "group", "parallel": [
            {"name": "late", "step": "./late", "retry": {"times": 50, "delay": 0.1}},
            {"name": "make", "script": "sleep 0.3; mv made late"},
        ]},
    )  # fmt: skip
    seen = await run_job(agent, a_job(steps=steps))
    assert seen.check().status == "success"
    late = [event for event in seen.results if event["name"] == "late" and event["event"] == "finished"]
    assert late[-1]["status"] == "success"
    assert [event["attempt"] for event in late] == list(range(1, len(late) + 1))


@pytest.mark.parametrize("form", ["127.0.0.1:{}/silent/step:1", "http://127.0.0.1:{}/silent/-/step@main"])
async def test_a_silent_server_of_a_step_is_announced(agent: AgentProcess, a_job: Build, form: str) -> None:
    """After how long: see the unit tests of `step_start`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        job = a_job(steps=steps_text({"name": "it", "step": form.format(port)}))
        seen = b""
        async with agent.client() as client:
            await client.start(job)
            async with client.watch() as watch, asyncio.timeout(60):
                await watch.subscribe(job.id)
                async for event in watch:
                    seen += event.data if isinstance(event, LogChunk) else b""
                    if b"Waiting for 127.0.0.1:%d, which has not sent the step" % port in seen:
                        break
            await client.cancel(job.id)
            assert (await follow(client, job.id)).check().status == "cancelled"
