"""Reading the configuration file: values, error messages with file, line and key, and warnings."""

import os
from pathlib import Path

import pytest

from remuda.manager.config.file import ConfigFile
from remuda.manager.config.load import inspect, load, parse
from remuda.manager.config.values import Loaded, listen_address, short_token
from remuda.manager.errors import ConfigError

RUNNER = '[[runners]]\nname = "one"\nurl = "https://gitlab.example.com/"\ntoken = "glrt-abc"\nexecutor = "shell"\n'


def read(text: str, **environment: str) -> Loaded:
    return parse(text, file="config.toml", environment=environment)


def test_a_typical_file() -> None:
    loaded = read(
        'concurrent = 4\ncheck_interval = 0\nlog_level = "warn"\nlisten_address = ":9252"\nshutdown_timeout = 60\n'
        '[remuda]\ndrain_timeout = "1h30m"\n'
        + RUNNER
        + 'id = 3\nlimit = 2\nrequest_concurrency = 5\noutput_limit = 100\nenvironment = ["A=1", "B=x=y"]\n'
        'tls-ca-file = "/etc/ca.pem"\ntoken_obtained_at = 2026-01-01T00:00:00Z\nbuilds_dir = "/srv/builds"\n'
        '[runners.labels]\nzone = "a"\n[runners.docker]\nimage = "alpine"\n'
    )
    assert loaded.warnings == ()
    config = loaded.config
    assert (config.concurrent, config.check_interval_seconds, config.drain_seconds) == (4, 3, 5400)
    assert config.shutdown_seconds == 60
    [runner] = config.runners
    assert (runner.limit, runner.request_concurrency, runner.environment) == (2, 5, ("A=1", "B=x=y"))
    assert (runner.tls_ca_file, runner.labels) == ("/etc/ca.pem", {"zone": "a"})


def test_defaults() -> None:
    config = read(RUNNER).config
    assert (config.concurrent, config.check_interval_seconds, config.drain_seconds) == (1, 3, 7200)
    assert config.runners[0].output_limit == 4096


def test_url_and_token_come_from_the_environment() -> None:
    text = '[[runners]]\nurl = "https://${HOST}"\ntoken = "$TOKEN"\nexecutor = "shell"\n'
    [runner] = read(text, HOST="cell.example", TOKEN="glrt-secret").config.runners
    assert (runner.url, runner.token) == ("https://cell.example", "glrt-secret")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("concurrent = \n" + RUNNER, ["config.toml:1", "not valid TOML"]),
        ("concurrent = 0\n" + RUNNER, ["config.toml", "concurrent", "at least 1"]),
        ('concurrent = "four"\n' + RUNNER, ["config.toml", "concurrent", "int"]),
        (RUNNER + 'limit = "x"\n', ["runners[0].limit", "int"]),
        ("", ["no [[runners]]", "register"]),
        (RUNNER.replace("https", "ftp"), ["runners[0].url", "ftp"]),
        (RUNNER.replace('url = "https://gitlab.example.com/"', ""), ["runners[0].url", "missing"]),
        (RUNNER.replace('token = "glrt-abc"', ""), ["runners[0].token", "missing"]),
        (RUNNER.replace("glrt-abc", "$NOT_SET"), ["runners[0].token", "NOT_SET", "not set"]),
        (RUNNER.replace("shell", "kubernetes"), ["runners[0].executor", "not supported", "docker"]),
        (RUNNER.replace("shell", "shel"), ["runners[0].executor", "shel"]),
        (RUNNER.replace('executor = "shell"', ""), ["runners[0].executor", "missing"]),
        (RUNNER + '[runners.remuda]\nsigning_key = "key"\n', ["runners[0].remuda.signing_key", "the whole path"]),
        (RUNNER + '[runners.remuda]\ngit_mirrors = "much"\n', ["runners[0].remuda.git_mirrors", "not a size"]),
        (RUNNER + 'shell = "pwsh"\n', ["runners[0].shell", "pwsh"]),
        (RUNNER + "limit = -1\n", ["runners[0].limit", "below"]),
        (RUNNER + 'environment = ["no equals sign"]\n', ["runners[0].environment", "NAME=value"]),
        (RUNNER + 'tls-cert-file = "a"\n', ["tls-key-file"]),
        (RUNNER + RUNNER, ["runners[1].token", "stand in runners[0]", "limit"]),
        ('user = "builder"\n' + RUNNER, ["user", "safe"]),
        ('log_level = "loud"\n' + RUNNER, ["log_level", "loud"]),
        ('log_format = "xml"\n' + RUNNER, ["log_format", "xml"]),
        ('listen_address = "nowhere"\n' + RUNNER, ["listen_address", "nowhere"]),
        ("shutdown_timeout = -1\n" + RUNNER, ["shutdown_timeout"]),
        ('runners = "none"\n', ["runners"]),
    ],
)
def test_a_bad_file_is_refused_with_file_and_key(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("\n" + RUNNER.replace('token = "glrt-abc"', ""), "config.toml:2: runners[0].token: is missing"),
        (
            RUNNER + "\n" + RUNNER.replace('url = "https://gitlab.example.com/"', ""),
            "config.toml:7: runners[1].url: is",
        ),
        (RUNNER + "# limit = 1\nlimit = 'x'\n", "config.toml:7: runners[0].limit: expected int"),
        ('# four\nconcurrent = "four"\n' + RUNNER, "config.toml:2: concurrent: expected int"),
        ("concurrent = 1\n" + RUNNER.replace("shell", "parallels"), "config.toml:6: runners[0].executor: 'parallels'"),
        (RUNNER + "[runners.labels]\nlimit = 1\n", "config.toml:6: runners[0].labels: expected str"),
        (RUNNER + RUNNER, "config.toml:9: runners[1].token: the same url and token stand in runners[0]"),
        ("runners = [{token = 'x'}]\n", "config.toml:1: runners[0].url: is missing"),
        ("runners = 'x'\n", "config.toml:1: runners: expected array"),
        ("concurrent = 1\n", "config.toml: there is no [[runners]]"),
    ],
)
def test_an_error_has_its_line(text: str, start: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert str(caught.value).startswith(start), str(caught.value)


def test_a_misspelt_key_is_warned_with_the_nearest_name() -> None:
    loaded = read("concurent = 3\n" + RUNNER + 'buidls_dir = "x"\nsomething_else = 1\n')
    assert loaded.warnings == (
        "config.toml:1: concurent is unknown and ignored; did you mean concurrent?",
        "config.toml:7: runners[0].buidls_dir is unknown and ignored; did you mean builds_dir?",
        "config.toml:8: runners[0].something_else is unknown and ignored",
    )


def test_a_known_but_unsupported_key_is_warned_with_its_effect() -> None:
    loaded = read('sentry_dsn = "x"\n' + RUNNER + 'unhealthy_interval = "60m"\n[runners.cache]\nType = "s3"\n')
    assert loaded.warnings[0] == "config.toml:1: sentry_dsn is not supported: errors are logged, not sent to Sentry"
    assert loaded.warnings[1].startswith(
        "config.toml:8: runners[0].cache: cache.s3 has no BucketName, AccessKey, SecretKey; caches are kept in"
    )


def test_caches_in_a_bucket() -> None:
    section = (
        '[runners.cache]\nType = "s3"\nPath = "ci"\nShared = true\n[runners.cache.s3]\nServerAddress = "s3.test"\n'
    )
    loaded = read(RUNNER + section + 'AccessKey = "a"\nSecretKey = "s"\nBucketName = "b"\nInsecure = true\n')
    assert loaded.warnings == ()
    cache = loaded.config.runners[0].cache
    assert (cache.is_in_objects, cache.path, cache.s3.insecure, cache.s3.path_style) == (True, "ci", True, None)
    [warning] = read(RUNNER + '[runners.cache]\nType = "gcs"\n').warnings
    assert "gcs is not supported" in warning


def test_an_empty_cache_section_has_no_warnings() -> None:
    loaded = read(
        RUNNER + 'cache_dir = "/srv/cache"\n[runners.cache]\nMaxUploadedArchiveSize = 0\n[runners.cache.s3]\n'
    )
    assert loaded.warnings == ()
    assert loaded.config.runners[0].cache_dir == "/srv/cache"


def test_a_pipe_is_refused_without_reading(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read_file in (load, ConfigFile.read):
        with pytest.raises(ConfigError, match="pipe: cannot be read: it is no regular file"):
            read_file(tmp_path / "pipe")


def test_concurrent_has_a_maximum() -> None:
    assert read(f"concurrent = 1000000\n{RUNNER}").config.concurrent == 1000000
    with pytest.raises(ConfigError, match=r"config.toml:1: concurrent: 99999999999999999999 .* at most 1000000"):
        read(f"concurrent = 99999999999999999999\n{RUNNER}")


def test_the_error_for_a_missing_file_names_the_register_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="remuda manager register"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("token", "short"),
    [
        ("glrt-t1_abcdefghijklmnop", "abcdefghi"),
        ("glrt-abcdefghijklmnop", "abcdefghi"),
        ("glrtr-abcdefghijklmnop", "abcdefghi"),
        ("acme-glrt-abcdefghijklmnop", "abcdefghi"),
        ("GR1348941abcdefghijklmnop", "abcdefghi"),
        ("abcdefghijklmnop", "abcdefghi"),
        ("t3_abcdefghijklmnop", "abcdefghi"),
        ("short", "short"),
    ],
)
def test_the_short_token_has_no_prefix(token: str, short: str) -> None:
    assert short_token(token) == short


@pytest.mark.parametrize(
    ("text", "address"),
    [(":9252", ("0.0.0.0", 9252)), ("localhost:1", ("localhost", 1)), ("[::1]:9252", ("::1", 9252))],
)
def test_listen_addresses(text: str, address: tuple[str, int]) -> None:
    assert listen_address(text) == address


DOCKER = RUNNER.replace("shell", "docker")


def test_a_docker_section() -> None:
    loaded = read(
        DOCKER + '[runners.docker]\nimage = "alpine:3"\npull_policy = "if-not-present"\nmemory = "512m"\ncpus = "1.5"\n'
        'volumes = ["/cache", "/srv:/srv:ro"]\nservice_memory = "64m"\nwait_for_services_timeout = -1\n'
        '[[runners.docker.services]]\nname = "redis:7"\n'
    )
    assert loaded.warnings == ()
    docker = loaded.config.runners[0].docker
    assert (docker.image, docker.policies, docker.wait_seconds) == ("alpine:3", ("if-not-present",), 0)
    assert docker.job_options() == {"memory": "512m", "cpus": "1.5"}
    assert docker.service_options() == {"memory": "64m"}
    assert docker.services[0].name == "redis:7"


def test_a_section_of_another_executor_is_ignored() -> None:
    loaded = read(RUNNER + "[runners.docker]\nimage = 5\nnonsense = true\ntls_verify = true\n")
    assert (loaded.warnings, loaded.config.runners[0].docker.image) == ((), "")


def test_a_shell_runner_whose_jobs_decide_about_containers() -> None:
    by_job = '[runners.remuda]\ncontainers = "by-job"\n'
    [runner] = read(f'{RUNNER}{by_job}[runners.docker]\nhost = "auto"\nimage = "ruby:3.1"\n').config.runners
    assert (runner.docker.host, runner.docker.image) == ("auto", "ruby:3.1")
    assert (runner.has_containers, runner.may_use_containers) == (False, True)
    with pytest.raises(ConfigError, match=r"runners.0..docker.image"):
        read(f"{RUNNER}{by_job}[runners.docker]\nimage = 5\n")
    with pytest.raises(ConfigError, match=r"remuda.containers: 'sometimes'; write 'by-job'"):
        read(f'{RUNNER}[runners.remuda]\ncontainers = "sometimes"\n')
    with pytest.raises(ConfigError, match='is for executor = "shell" only'):
        read(f"{DOCKER}{by_job}")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('pull_policy = "sometimes"', ["runners[0].docker.pull_policy", "none of always"]),
        ('allowed_pull_policies = ["no"]', ["pull_policy", "'no'"]),
        ("tls_verify = true", ["runners[0].docker.tls_verify", "not supported"]),
        ('host = "ssh://x"', ["runners[0].docker", "not an address of a container engine"]),
        ('memory = "much"', ["runners[0].docker", "memory", "not a size"]),
        ('cpus = "two"', ["cpus", "not a number of processors"]),
        ('min_free_disk = "?"', ["min_free_disk", "not a size"]),
        ('volumes = ["x"]', ["volumes", "'x'"]),
        ("image = 5", ["runners[0].docker.image", "expected str"]),
    ],
)
def test_errors_in_the_docker_section(line: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"{DOCKER}[runners.docker]\n{line}\n")
    assert all(word in str(caught.value) for word in words), caught.value


def test_warnings_for_keys_of_the_docker_section() -> None:
    [unknown, unsupported] = read(f'{DOCKER}[runners.docker]\nhelper_image = "x"\nimgae = "y"\n').warnings
    assert "runners[0].docker.helper_image is not supported: there is no helper container" in unsupported
    assert "runners[0].docker.imgae is unknown and ignored; did you mean image?" in unknown


MACHINE = '[[runners.remuda.machines]]\nhost = "10.0.0.1"\nidentity_file = "/key"\n'


@pytest.mark.parametrize(
    ("executor", "section", "words"),
    [
        ("ssh", "", ["runners[0].ssh.host", "missing"]),
        ("ssh", '[runners.ssh]\nhost = "h"\n', ["runners[0].ssh", "set one of them for the login"]),
        ("ssh", '[runners.ssh]\nhost = "h"\nport = "x"\npassword = "p"\n', ["runners[0].ssh.port", "no port"]),
        ("custom", "", ["runners[0].custom.run_exec", "missing"]),
        ("custom", '[runners.custom]\nrun_exec = "r"\nprepare_exec_timeout = -1\n', ["prepare_exec_timeout", "below"]),
        ("plugin", "", ["runners[0].remuda.environment.plugin", "missing"]),
        ("instance", "", ["runners[0].autoscaler.plugin", "[[runners.remuda.machines]]"]),
        ("docker+machine", "[runners.machine]\nMaxBuilds = 1\n", ["machine.MachineDriver", "is missing"]),
        ("instance", MACHINE + "capacity = 0\n", ["machines[0].capacity", "at least 1"]),
        ("instance", MACHINE.replace('"/key"', '""'), ["machines[0]", "set one of them for the login"]),
        ("instance", MACHINE + MACHINE, ["'10.0.0.1' is there twice"]),
        ("instance", "[runners.autoscaler.vm_isolation]\nenabled = true\n" + MACHINE, ["vm_isolation", "not be safe"]),
        ("shell", 'prepare_timeout = "soon"\n', ["runners[0].prepare_timeout", "not a duration"]),
        ("shell", 'use_slot_cgroups = true\nslot_cgroup_template = "ci"\n', ["slot_cgroup_template", "${slot}"]),
        ("shell", 'slot_cgroup_template = "../${slot}"\n', ["slot_cgroup_template", "leads out"]),
        ("shell", '[runners.remuda]\nhold_failed = "x"\n', ["remuda.hold_failed", "not a duration"]),
        ("shell", '[runners.cache.s3]\nServerSideEncryption = "KMS"\n', ["ServerSideEncryption", "not be safe"]),
    ],
)
def test_errors_for_missing_or_invalid_settings_of_an_executor(executor: str, section: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(RUNNER.replace("shell", executor) + section)
    assert all(word in str(caught.value) for word in words), caught.value


def test_executors_with_complete_settings() -> None:
    for executor, section in (
        ("ssh", '[runners.ssh]\nhost = "h"\nport = "2222"\npassword = "p"\n'),
        ("custom", '[runners.custom]\nrun_exec = "/run"\n'),
        ("plugin", '[runners.remuda.environment]\nplugin = "pods"\nconfig = {zone = "a"}\n'),
        ("instance", MACHINE),
        ("docker-autoscaler", MACHINE),
        ("docker+machine", MACHINE),
    ):
        assert read(RUNNER.replace("shell", executor) + section).warnings == ()


def test_all_problems_are_found_at_once() -> None:
    text = 'user = "x"\nconcurrent = 0\n' + RUNNER.replace("shell", "ssh") + RUNNER.replace("abc", "d") + "limit = -1\n"
    problems = [problem.in_file("c") for problem in inspect(text, file="c", environment={}).problems]
    assert [problem.split(": ")[:2] for problem in problems] == [
        ["c:1", "user"],
        ["c:3", "runners[0].ssh.host"],
        ["c:13", "runners[1].limit"],
        ["c:2", "concurrent"],
    ]


def test_global_labels_are_merged_into_those_of_runners() -> None:
    text = '[labels]\nfleet = "a"\nzone = "b"\n' + RUNNER + '[runners.labels]\nzone = "c"\n'
    assert read(text).config.runners[0].labels == {"fleet": "a", "zone": "c"}


def test_caches_stay_in_the_folder_if_keys_come_from_a_role() -> None:
    section = '[runners.cache]\nType = "s3"\n[runners.cache.s3]\nBucketName = "b"\nAccessKey = "a"\nSecretKey = "s"\n'
    for line in ('RoleARN = "arn"', 'AuthenticationType = "iam"'):
        loaded = read(f"{RUNNER}{section}{line}\n")
        assert not loaded.config.runners[0].cache.is_in_objects
        assert "keys from a role are not supported" in loaded.warnings[0]


def test_the_control_group_of_a_slot() -> None:
    text = RUNNER + "use_slot_cgroups = true\n"
    assert read(text).config.runners[0].slot_cgroup(3) == "gitlab-runner/slot-3"
    assert read(text + 'slot_cgroup_template = "/ci/${slot}/jobs"\n').config.runners[0].slot_cgroup(0) == "ci/0/jobs"
    assert read(RUNNER).config.runners[0].slot_cgroup(3) == ""
    limited = read(RUNNER + '[runners.remuda]\nslot_memory = "2g"\nslot_cpus = 1.5\n').config.runners[0]
    assert (limited.slot_cgroup(1), limited.remuda.slot_memory_bytes) == ("gitlab-runner/slot-1", 2 << 30)
