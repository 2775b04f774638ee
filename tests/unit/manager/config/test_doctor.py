"""The doctor: its verdict on each key of a real configuration file, line by line, and its advice."""

import re
from pathlib import Path

from remuda.manager.config.doctor import Report, examine
from remuda.manager.config.keys.fact import Verdict
from remuda.manager.config.plugin_checks import Look

FOLDER = Path(__file__).parents[3] / "data" / "gitlab-runner"
EXPECTED = re.compile(r"# (works|differs|ignored|refused|unknown)$")


def examine_text(text: str) -> Report:
    return examine(text, file="config.toml", environment={})


def test_the_verdict_on_every_key_of_a_long_file() -> None:
    text = (FOLDER / "sixty-keys.toml").read_text()
    expected = {
        number: match[1] for number, line in enumerate(text.split("\n"), start=1) if (match := EXPECTED.search(line))
    }
    report = examine_text(text)
    assert {diagnosis.line: diagnosis.verdict for diagnosis in report.diagnoses} == expected
    assert len(report.diagnoses) == len(expected) >= 60
    assert {str(verdict) for verdict in Verdict} == set(expected.values())


def test_problems_that_prevent_a_start() -> None:
    report = examine_text((FOLDER / "sixty-keys.toml").read_text())
    problems = [problem.in_file("config.toml") for problem in report.problems]
    assert any("tls_cert_path: is not supported, and ignoring it would not be safe" in problem for problem in problems)
    assert any("connector_config.protocol: 'winrm' is not supported" in problem for problem in problems)
    assert all(re.match(r"config\.toml:\d+: runners\[1\]", problem) for problem in problems)


def test_texts_about_keys_are_plain() -> None:
    report = examine_text(
        '[[runners]]\nurl = "https://x.y"\ntoken = "t"\nexecutor = "shell"\ncache_dir = "c"\nimit = 1\n'
    )
    diagnoses = {diagnosis.key: diagnosis for diagnosis in report.diagnoses}
    assert "[" not in diagnoses["runners[0].cache_dir"].about
    assert "did you mean limit?" in diagnoses["runners[0].imit"].about
    assert (diagnoses["runners[0].imit"].line, report.problems) == (6, ())


def test_advice_depends_on_the_configured_executors() -> None:
    plain = examine_text('[[runners]]\nurl = "https://x.y"\ntoken = "t"\nexecutor = "shell"\n')
    assert any("SIGQUIT" in advice for advice in plain.advice)
    assert any("run_as" in advice for advice in plain.advice)
    assert not any("machines" in advice for advice in plain.advice)
    pool = examine_text('[[runners]]\nurl = "https://x.y"\ntoken = "t"\nexecutor = "docker+machine"\n')
    assert any("[[runners.remuda.machines]]" in advice for advice in pool.advice)
    assert any("remuda plugin list" in advice for advice in pool.advice)


def test_a_plugin_is_advised_only_if_a_runner_creates_machines() -> None:
    runner = '[[runners]]\nurl = "https://x.y"\n'
    shell = f'{runner}token = "t1"\nexecutor = "shell"\n'
    machines = '[[runners.remuda.machines]]\nhost = "10.0.0.1"\nidentity_file = "/key"\n'
    listed = f'{runner}token = "t2"\nexecutor = "instance"\n{machines}'
    scaled = f'{runner}token = "t3"\nexecutor = "instance"\n[runners.autoscaler]\nplugin = "p"\n'

    def advises_plugin(text: str) -> bool:
        return any("remuda plugin list" in advice for advice in examine_text(text).advice)

    assert not advises_plugin(listed)
    assert not advises_plugin(listed + shell)
    assert advises_plugin(listed + scaled)


def test_plugin_settings_are_checked_against_its_schema() -> None:
    text = (
        '[[runners]]\nurl = "https://x.y"\ntoken = "t"\nexecutor = "instance"\n[runners.autoscaler]\nplugin = "p"\n'
        '[runners.autoscaler.plugin_config]\nzone = "hidden"\nzoen = "hidden"\ndisk = {size = "hidden"}\n'
        'ports = [22, "hidden"]\n'
    )
    disk = {"type": "object", "properties": {"size": {"type": "integer"}}}
    ports = {"type": "array", "items": {"type": "integer"}}
    properties = {"zone": {"type": "string"}, "disk": disk, "name": {"type": "string"}, "ports": ports}
    schema = {"properties": properties, "required": ["name"], "additionalProperties": False}

    def verdicts(plugin: Look) -> list[tuple[int | None, str, str]]:
        report = examine(text, file="config.toml", environment={}, look=lambda _: plugin)
        assert "hidden" not in str(report)
        keys = [(diagnosis, diagnosis.key.partition("plugin_config")) for diagnosis in report.diagnoses]
        return [(diagnosis.line, rest.lstrip("."), diagnosis.verdict) for diagnosis, (_, name, rest) in keys if name]

    assert verdicts(Look(schema=schema)) == [
        (7, "name", "refused"),
        (8, "zone", "works"),
        (9, "zoen", "refused"),
        (10, "disk.size", "refused"),
        (11, "ports[1]", "refused"),
    ]
    assert verdicts(Look()) == [(7, "", "works")]
    report = examine(text, file="config.toml", environment={}, look=lambda _: Look(problem="there is no plugin p"))
    assert report.advice[-1] == "on this host there is no plugin p. Its settings were not checked"


def test_no_value_is_shown() -> None:
    report = examine_text((FOLDER / "sixty-keys.toml").read_text())
    assert "not-so-secret" not in str(report)
    assert "J7w4cH2mZqYx8" not in str(report)


def test_a_file_that_is_not_toml() -> None:
    report = examine_text("concurrent = \n")
    assert (report.diagnoses, report.problems[0].line) == ((), 1)
