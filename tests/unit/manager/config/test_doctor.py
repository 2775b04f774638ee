"""The doctor: right about each key of a grown configuration, line by line, and its advice."""

import re
from pathlib import Path

from remuda.manager.config.doctor import Report, examine
from remuda.manager.config.keys.fact import Verdict
from remuda.manager.config.plugin_checks import Look

FOLDER = Path(__file__).parents[3] / "data" / "gitlab-runner"
EXPECTED = re.compile(r"# (works|differs|ignored|refused|unknown)$")


def examined(text: str) -> Report:
    return examine(text, file="config.toml", environment={})


def test_it_is_right_about_every_key_of_a_grown_file() -> None:
    text = (FOLDER / "sixty-keys.toml").read_text()
    expected = {
        number: match[1] for number, line in enumerate(text.split("\n"), start=1) if (match := EXPECTED.search(line))
    }
    report = examined(text)
    assert {one.line: one.verdict for one in report.diagnoses} == expected
    assert len(report.diagnoses) == len(expected) >= 60
    assert {str(verdict) for verdict in Verdict} == set(expected.values())


def test_it_says_why_remuda_would_not_start() -> None:
    report = examined((FOLDER / "sixty-keys.toml").read_text())
    said = [problem.in_file("config.toml") for problem in report.problems]
    assert any("tls_cert_path: is not supported, and ignoring it would not be safe" in one for one in said)
    assert any("connector_config.protocol: 'winrm' is not supported" in one for one in said)
    assert all(re.match(r"config\.toml:\d+: runners\[1\]", one) for one in said)


def test_an_effect_is_said_in_plain_words() -> None:
    report = examined('[[runners]]\nurl = "https://x.y"\ntoken = "t"\nexecutor = "shell"\ncache_dir = "c"\nimit = 1\n')
    said = {one.key: one for one in report.diagnoses}
    assert "[" not in said["runners[0].cache_dir"].about
    assert "did you mean limit?" in said["runners[0].imit"].about
    assert (said["runners[0].imit"].line, report.problems) == (6, ())


def test_advice_goes_by_what_the_file_has() -> None:
    plain = examined('[[runners]]\nurl = "https://x.y"\ntoken = "t"\nexecutor = "shell"\n')
    assert any("SIGQUIT" in one for one in plain.advice)
    assert any("run_as" in one for one in plain.advice)
    assert not any("machines" in one for one in plain.advice)
    pool = examined('[[runners]]\nurl = "https://x.y"\ntoken = "t"\nexecutor = "docker+machine"\n')
    assert any("[[runners.remuda.machines]]" in one for one in pool.advice)
    assert any("remuda plugin list" in one for one in pool.advice)


def test_settings_of_a_plugin_are_judged_by_it() -> None:
    text = (
        '[[runners]]\nurl = "https://x.y"\ntoken = "t"\nexecutor = "instance"\n[runners.autoscaler]\nplugin = "p"\n'
        '[runners.autoscaler.plugin_config]\nzone = "hidden"\nzoen = "hidden"\ndisk = {size = "hidden"}\n'
        'ports = [22, "hidden"]\n'
    )
    disk = {"type": "object", "properties": {"size": {"type": "integer"}}}
    ports = {"type": "array", "items": {"type": "integer"}}
    properties = {"zone": {"type": "string"}, "disk": disk, "name": {"type": "string"}, "ports": ports}
    schema = {"properties": properties, "required": ["name"], "additionalProperties": False}

    def about(seen: Look) -> list[tuple[int | None, str, str]]:
        report = examine(text, file="config.toml", environment={}, look=lambda _: seen)
        assert "hidden" not in str(report)
        keys = [(one, one.key.partition("plugin_config")) for one in report.diagnoses]
        return [(one.line, rest.lstrip("."), one.verdict) for one, (_, name, rest) in keys if name]

    assert about(Look(schema=schema)) == [
        (7, "name", "refused"),
        (8, "zone", "works"),
        (9, "zoen", "refused"),
        (10, "disk.size", "refused"),
        (11, "ports[1]", "refused"),
    ]
    assert about(Look()) == [(7, "", "works")]
    report = examine(text, file="config.toml", environment={}, look=lambda _: Look(problem="there is no plugin p"))
    assert report.advice[-1] == "on this host there is no plugin p. Its settings were not looked at"


def test_no_value_is_shown() -> None:
    report = examined((FOLDER / "sixty-keys.toml").read_text())
    assert "not-so-secret" not in str(report)
    assert "J7w4cH2mZqYx8" not in str(report)


def test_a_file_that_is_no_toml() -> None:
    report = examined("concurrent = \n")
    assert (report.diagnoses, report.problems[0].line) == ((), 1)
