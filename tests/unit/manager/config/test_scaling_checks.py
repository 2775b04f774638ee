"""Settings of autoscaled runners that cannot work are errors, and doubtful ones are warnings; each with its line."""

import pytest

from remuda.manager.config.load import inspect

HEAD = '[[runners]]\nname = "builder"\nurl = "https://x.y"\ntoken = "glrt-abcdefghijk"\n'
AWS = HEAD + 'executor = "instance"\n[runners.autoscaler]\nplugin = "fleeting-plugin-aws"\n'
MACHINE = (
    HEAD + 'limit = 30\nexecutor = "docker+machine"\n[runners.docker]\nimage = "alpine"\n[runners.machine]\n'
    'MachineDriver = "amazonec2"\nMachineName = "ci-%s"\nMaxBuilds = 20\nMaxGrowthRate = 4\n'
)


def problems(text: str) -> list[str]:
    inspection = inspect(text, file="config.toml", environment={})
    return [problem.in_file("config.toml") for problem in inspection.problems]


def warnings(text: str) -> list[str]:
    inspection = inspect(text, file="config.toml", environment={})
    assert not inspection.problems
    warnings = [warning for warning in inspection.warnings if not warning.text.startswith("concurrent")]
    return [warning.in_file("config.toml") for warning in warnings]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + 'executor = "instance"\n', ["config.toml:1: runners[0].autoscaler.plugin", "is missing"]),
        (AWS + "[[runners.autoscaler.policy]]\nidle_count = -3\n", ["policy[0].idle_count: -3 is below 0"]),
        (AWS + "max_instances = -1\n", ["config.toml:8: runners[0].autoscaler.max_instances", "below 0"]),
        (AWS + 'update_interval = "soon"\n', ["autoscaler.update_interval", "not a duration"]),
        (
            AWS + '[[runners.autoscaler.policy]]\n[[runners.autoscaler.policy]]\nperiods = ["* * *"]\n',
            ["config.toml:10: runners[0].autoscaler.policy[1].periods: ", "has 3 fields"],
        ),
        (
            AWS + '[[runners.autoscaler.policy]]\ntimezone = "Mars"\n',
            ["config.toml:9: runners[0].autoscaler.policy[0].timezone: there is no time zone 'Mars'"],
        ),
        (MACHINE + "IdleCount = -1\n", ["config.toml:14: runners[0].machine.IdleCount: -1 is below 0"]),
        (
            MACHINE + 'OffPeakPeriods = ["* * *"]\n',
            ["config.toml:14: runners[0].machine.OffPeakPeriods: ", "has 3 fields"],
        ),
        (
            MACHINE + '[[runners.machine.autoscaling]]\nPeriods = ["* * * * * * *"]\nTimezone = "Mars"\n',
            ["config.toml:16: runners[0].machine.autoscaling[0].Timezone: there is no time zone"],
        ),
        (
            MACHINE + 'OffPeakPeriods = ["* * * * *"]\n[[runners.machine.autoscaling]]\nPeriods = ["x"]\n',
            ["config.toml:16: runners[0].machine.autoscaling[0].Periods: ", "has 1 fields"],
        ),
        (AWS + '[runners.autoscaler.connector_config]\nprotocol = "winrm"\n', ["protocol", "reached by ssh"]),
        (AWS + "[runners.autoscaler.connector_config]\nuse_static_credentials = true\n", ["username", "who logs in"]),
        (AWS + "[[runners.remuda.fallback]]\nmax_instances = 1\n", ["remuda.fallback[0].plugin", "is missing"]),
        (AWS + '[[runners.remuda.fallback]]\nplugin = "b"\nname = "a/b"\n', ["fallback[0].name", "has a /"]),
        (MACHINE.replace("ci-%s", "ci"), ["machine.MachineName", "no %s"]),
        (
            AWS + AWS.replace("abcdefghijk", "other"),
            ["config.toml:9: runners[1].name: ", "are called 'builder' at the same server"],
        ),
    ],
)
def test_errors_name_line_and_key(text: str, words: list[str]) -> None:
    [problem] = problems(text)
    assert all(word in problem for word in words), problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            AWS + "[[runners.autoscaler.policy]]\npreemptive_mode = true\n",
            "config.toml:9: runners[0].autoscaler.policy[0].preemptive_mode: on a plain GitLab, preemptive_mode",
        ),
        (
            AWS + "max_instances = 4\ncapacity_per_instance = 2\n[[runners.autoscaler.policy]]\nidle_count = 9\n",
            "config.toml:11: runners[0].autoscaler.policy[0].idle_count: there can never be room for 9 idle jobs: all "
            "machines together take 8",
        ),
        (
            AWS.replace('name = "builder"\n', ""),
            "config.toml:1: runners[0].name: is missing, and so is the id: machines belong to a runner by these",
        ),
        (
            AWS + '[[runners.autoscaler.policy]]\nperiods = ["* * * * *", "* * 31 2 *"]\n',
            "config.toml:9: runners[0].autoscaler.policy[0].periods: '* * 31 2 *' never comes",
        ),
        (
            MACHINE + "IdleCount = 90\nIdleScaleFactor = 0.5\nIdleCountMin = 40\n",
            "config.toml:16: runners[0].machine.IdleCountMin: there can never be room for 40",
        ),
        (MACHINE + "IdleCount = 31\n", "config.toml:14: runners[0].machine.IdleCount: there can never be room for 31"),
        (
            AWS.replace('"instance"', '"docker-autoscaler"'),
            "config.toml:5: runners[0].executor: docker-autoscaler runs jobs in containers, and there is no",
        ),
        (
            AWS.replace("https://x.y", "http://127.0.0.1:80"),
            "config.toml:3: runners[0].url: 127.0.0.1 is the machine itself for the machines that are created",
        ),
    ],
)
def test_warnings_name_line_and_key(text: str, expected: str) -> None:
    [warning] = warnings(text)
    assert warning.startswith(expected)


@pytest.mark.parametrize(
    "text",
    [
        AWS + "max_instances = 4\n[[runners.autoscaler.policy]]\nidle_count = 4\n",
        AWS + "[[runners.autoscaler.policy]]\nidle_count = 900\n",
        AWS + "max_instances = 4\n[[runners.autoscaler.policy]]\nidle_count = 6\n"
        '[[runners.remuda.fallback]]\nplugin = "b"\nmax_instances = 1\ncapacity_per_instance = 2\n',
        AWS.replace('"instance"', '"docker-autoscaler"') + '[runners.docker]\nimage = "alpine"\n',
        AWS.replace("https://x.y", "http://localhost.example"),
        MACHINE + "IdleCount = 30\n",
    ],
)
def test_plausible_settings_have_no_warnings(text: str) -> None:
    assert warnings(text) == []


@pytest.mark.parametrize("host", ["localhost", "[::1]:8"])
def test_warning_for_other_loopback_addresses(host: str) -> None:
    assert "is the machine itself" in warnings(AWS.replace("https://x.y", f"http://{host}"))[0]


@pytest.mark.parametrize(("head", "is_warned"), [("concurrent = 1\n", True), ("", True), ("concurrent = 2\n", False)])
def test_warning_if_machines_take_more_jobs_than_concurrent(head: str, is_warned: bool) -> None:
    text = head + AWS + "max_instances = 3\ncapacity_per_instance = 2\n"
    warnings = inspect(text, file="config.toml", environment={}).warnings
    expected = ["concurrent: one job runs at a time, while machines of runners[0] could take 6; raise it"]
    assert [warning.text for warning in warnings] == (expected if is_warned else [])
