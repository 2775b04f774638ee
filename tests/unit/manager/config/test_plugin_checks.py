"""What is said of plugins: only warnings, each with the line of its key."""

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


def said(text: str, *, programs: tuple[str, ...] = (), **looks: Look) -> list[str]:
    def look(plugin: str) -> Look:
        return looks.get(plugin.replace("-", "_"), Look())

    found = warn_of_plugins(text, look=look, has_program=programs.__contains__)
    return [one.in_file("config.toml") for one in found]


def test_a_plugin_that_is_not_there_may_be_on_another_host() -> None:
    [one] = said(LOCAL, local=Look(problem="there is no plugin local. Looked for: it on PATH"))
    assert one == (
        "config.toml:6: runners[0].autoscaler.plugin: on this host there is no plugin local. Looked for: it on PATH. "
        "If the manager runs on another host, it has to be there"
    )


def test_settings_are_judged_by_the_plugin() -> None:
    text = (
        LOCAL + '[runners.autoscaler.plugin_config]\nzoen = "x"\n[runners.autoscaler.plugin_config.disk]\nsize = "y"\n'
    )
    assert said(text, local=Look(schema=SCHEMA)) == [
        "config.toml:8: runners[0].autoscaler.plugin_config.zoen: there is no such setting; did you mean zone? "
        "(says the plugin local)",
        "config.toml:10: runners[0].autoscaler.plugin_config.disk.size: has to be a whole number, not a text "
        "(says the plugin local)",
    ]
    assert said(text, local=Look()) == []


def test_a_plugin_that_cannot_even_say_its_version_is_doubtful(tmp_path: Path) -> None:
    program = tmp_path / "fleeting-plugin-sick"
    program.write_text("#!/bin/sh\necho 'No module named boto9' >&2\nexit 1\n")
    program.chmod(0o755)
    [one] = [one.in_file("f") for one in warn_of_plugins(LOCAL.replace('"local"', f'"{program}"'))]
    assert one.startswith(f"f:6: runners[0].autoscaler.plugin: {program} version: ended with 1")
    assert "(No module named boto9)" in one
    assert f"remuda plugin check {program}" in one
    program.write_text("#!/bin/sh\n[ $1 = version ] && printf 'Name: fleeting-plugin-sick\\nVersion: 1.0.0\\n'\n")
    assert warn_of_plugins(LOCAL.replace('"local"', f'"{program}"')) == []


def test_variables_are_not_filled_in() -> None:
    text = LOCAL + '[runners.autoscaler.plugin_config]\ntoken = "$CLOUD_TOKEN"\nprice = "$5 or ${LESS}"\n'
    text += '[[runners.autoscaler.plugin_config.disks]]\nkey = "${KEY}"\n'
    first, second = said(text)
    assert first.startswith("config.toml:8: runners[0].autoscaler.plugin_config.token: looks like a variable")
    assert "runners[0].autoscaler.plugin_config.disks[0].key: " in second


def test_each_group_has_its_own_plugin() -> None:
    [one] = said(LOCAL + FALLBACK, other=Look(schema=SCHEMA))
    assert one.startswith("config.toml:10: runners[0].remuda.fallback[0].plugin_config.zoen: there is no such setting")


@pytest.mark.parametrize(
    ("capabilities", "is_said"), [(None, False), (("remuda.provider",), False), (("heartbeat",), True), ((), True)]
)
def test_who_is_to_scale_by_itself_has_to_be_a_provider(capabilities: tuple[str, ...] | None, is_said: bool) -> None:
    text = LOCAL + "[runners.remuda]\nplugin_scales = true\n"
    found = said(text, local=Look(capabilities=capabilities))
    assert bool(found) is is_said
    if found:
        assert found[0].startswith(
            "config.toml:8: runners[0].remuda.plugin_scales: the plugin local is no provider (it"
        )


def test_docker_machine_needs_its_program() -> None:
    assert said(MACHINE, programs=("docker-machine",)) == []
    [one] = said(MACHINE)
    assert one.startswith("config.toml:5: runners[0].machine: the plugin docker-machine runs docker-machine, and there")
    own = LOCAL.replace('"local"', '"docker-machine"') + '[runners.autoscaler.plugin_config]\nprogram = "/opt/dm"\n'
    assert "runs /opt/dm, and there is no such program" in said(own)[0]
    assert said(own, programs=("/opt/dm",)) == []


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
def test_what_names_no_plugin_is_passed_over(text: str) -> None:
    assert said(text, local=Look(schema=SCHEMA, capabilities=())) == []


def test_a_plugin_is_looked_for_once() -> None:
    asked: list[str] = []

    def look(plugin: str) -> Look:
        asked.append(plugin)
        return Look()

    warn_of_plugins(LOCAL + LOCAL, look=look, has_program=lambda _: True)
    assert asked == ["local"]
    assert [use.where for use in find_uses({"runners": [{"executor": "docker+machine"}]})] == ["runners[0].machine"]
