"""Checks of fleeting plugins in a configuration file: they result in warnings with line and key, never in errors."""

from pathlib import Path

import pytest

from remuda.manager.config.plugin_checks import Look, find_uses, warn_of_plugins

HEAD = '[[runners]]\nurl = "https://x.y"\ntoken = "glrt-abcdefghijk"\n'
LOCAL = HEAD + 'executor = "instance"\n[runners.autoscaler]\nplugin = "local"\n'
FALLBACK = '[[runners.remuda.fallback]]\nplugin = "other"\n[runners.remuda.fallback.plugin_config]\nzoen = "x"\n'
MACHINE = HEAD + 'executor = "docker+machine"\n[runners.machine]\nMachineDriver = "a"\nMachineName = "ci-%s"\n'
SCHEMA = {
    "type": "object",
    "properties": {"zone": {"type": "string"}, "disk": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    "additionalProperties": False,
}


def check(text: str, *, programs: tuple[str, ...] = (), **looks: Look) -> list[str]:
    def look(plugin: str) -> Look:
        return looks.get(plugin.replace("-", "_"), Look())

    warnings = warn_of_plugins(text, look=look, has_program=programs.__contains__)
    return [warning.in_file("config.toml") for warning in warnings]


def test_warning_for_a_plugin_that_is_not_installed() -> None:
    [warning] = check(LOCAL, local=Look(problem="there is no plugin local. Looked for: it on PATH"))
    assert warning == (
        "config.toml:6: runners[0].autoscaler.plugin: on this host there is no plugin local. Looked for: it on PATH. "
        "If the manager runs on another host, install it there"
    )


def test_settings_are_checked_against_the_schema_of_the_plugin() -> None:
    text = (
        LOCAL + '[runners.autoscaler.plugin_config]\nzoen = "x"\n[runners.autoscaler.plugin_config.disk]\nsize = "y"\n'
    )
    assert check(text, local=Look(schema=SCHEMA)) == [
        "config.toml:8: runners[0].autoscaler.plugin_config.zoen: there is no such setting; did you mean zone? "
        "(says the plugin local)",
        "config.toml:10: runners[0].autoscaler.plugin_config.disk.size: has to be a whole number, not a text "
        "(says the plugin local)",
    ]
    assert check(text, local=Look()) == []


def test_warning_for_a_plugin_whose_version_command_fails(tmp_path: Path) -> None:
    program = tmp_path / "fleeting-plugin-sick"
    program.write_text("#!/bin/sh\necho 'No module named boto9' >&2\nexit 1\n")
    program.chmod(0o755)
    [warning] = [warning.in_file("f") for warning in warn_of_plugins(LOCAL.replace('"local"', f'"{program}"'))]
    assert warning.startswith(f"f:6: runners[0].autoscaler.plugin: {program} version: ended with 1")
    assert "(No module named boto9)" in warning
    assert f"remuda plugin check {program}" in warning
    program.write_text("#!/bin/sh\n[ $1 = version ] && printf 'Name: fleeting-plugin-sick\\nVersion: 1.0.0\\n'\n")
    assert warn_of_plugins(LOCAL.replace('"local"', f'"{program}"')) == []


def test_warning_for_values_that_look_like_variables() -> None:
    text = LOCAL + '[runners.autoscaler.plugin_config]\ntoken = "$CLOUD_TOKEN"\nprice = "$5 or ${LESS}"\n'
    text += '[[runners.autoscaler.plugin_config.disks]]\nkey = "${KEY}"\n'
    first, second = check(text)
    assert first.startswith("config.toml:8: runners[0].autoscaler.plugin_config.token: looks like a variable")
    assert "runners[0].autoscaler.plugin_config.disks[0].key: " in second


def test_a_fallback_group_is_checked_with_its_own_plugin() -> None:
    [warning] = check(LOCAL + FALLBACK, other=Look(schema=SCHEMA))
    assert warning.startswith(
        "config.toml:10: runners[0].remuda.fallback[0].plugin_config.zoen: there is no such setting"
    )


@pytest.mark.parametrize(
    ("capabilities", "is_warned"), [(None, False), (("remuda.provider",), False), (("heartbeat",), True), ((), True)]
)
def test_plugin_scales_needs_a_provider(capabilities: tuple[str, ...] | None, is_warned: bool) -> None:
    text = LOCAL + "[runners.remuda]\nplugin_scales = true\n"
    warnings = check(text, local=Look(capabilities=capabilities))
    assert bool(warnings) is is_warned
    if warnings:
        assert warnings[0].startswith(
            "config.toml:8: runners[0].remuda.plugin_scales: the plugin local is no provider (it"
        )


def test_warning_if_the_docker_machine_program_is_missing() -> None:
    assert check(MACHINE, programs=("docker-machine",)) == []
    [warning] = check(MACHINE)
    assert warning.startswith(
        "config.toml:5: runners[0].machine: the plugin docker-machine runs docker-machine, and there"
    )
    own = LOCAL.replace('"local"', '"docker-machine"') + '[runners.autoscaler.plugin_config]\nprogram = "/opt/dm"\n'
    assert "runs /opt/dm, and there is no such program" in check(own)[0]
    assert check(own, programs=("/opt/dm",)) == []


@pytest.mark.parametrize(
    "text",
    [
        "concurrent = \n",
        'runners = "many"\n',
        'runners = ["one"]\n',
        LOCAL.replace("instance", "shell"),
        LOCAL + '[[runners.remuda.machines]]\nhost = "a"\n',
        LOCAL.replace('plugin = "local"', "plugin = 3"),
        HEAD + 'executor = "instance"\nautoscaler = "no"\nremuda = "no"\n',
        LOCAL + '[runners.remuda]\nfallback = "no"\n',
    ],
)
def test_files_without_a_usable_plugin_name_have_no_warnings(text: str) -> None:
    assert check(text, local=Look(schema=SCHEMA, capabilities=())) == []


def test_a_plugin_is_inspected_once() -> None:
    inspected: list[str] = []

    def look(plugin: str) -> Look:
        inspected.append(plugin)
        return Look()

    warn_of_plugins(LOCAL + LOCAL, look=look, has_program=lambda _: True)
    assert inspected == ["local"]
    assert [use.where for use in find_uses({"runners": [{"executor": "docker+machine"}]})] == ["runners[0].machine"]
