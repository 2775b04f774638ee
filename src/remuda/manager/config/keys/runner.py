"""Facts about the keys of `[[runners]]` and its small sections. Pure."""

from dataclasses import replace
from typing import Any

from remuda.manager.config.keys.fact import Fact, Facts, differs, ignored, own, refused, works
from remuda.manager.config.keys.machines import CONNECTOR

FOREIGN_EXECUTORS = {
    "kubernetes": "Remuda does not run jobs in pods; use docker, or instance with machines of your own",
    "docker-windows": "Remuda does not run Windows containers",
    "parallels": "use ssh, or instance with a list of machines",
    "virtualbox": "use ssh, or instance with a list of machines",
    "docker-ssh": "use docker-autoscaler with a list of machines",
    "docker-ssh+machine": "use docker-autoscaler with a list of machines",
}
"""Executors of gitlab-runner that Remuda does not have, and what to use instead."""


def _executor(value: Any) -> Fact | None:
    if not isinstance(value, str) or value not in FOREIGN_EXECUTORS:
        return None
    return refused(f"{value!r} is not supported; {FOREIGN_EXECUTORS[value]}")


def _shell(value: Any) -> Fact | None:
    return None if value in ("", "bash") else refused(f"{value!r} is not supported; only bash is")


RUNNER: Facts = {
    "name": works("for people; default of `register`: this machine's name"),
    "url": works(
        "the server's address; `$NAME` and `${NAME}` stand for variables of the manager's environment", "needed"
    ),
    "id": works("the runner's number on the server, for people"),
    "token": works("the runner's token (`glrt-…`); variables as in `url`", "needed"),
    "token_obtained_at": works("when the token was made"),
    "token_expires_at": works(
        "when the token ends; at three quarters of its life the manager gets a new one and writes it to the file, "
        "comments kept"
    ),
    "executor": replace(
        differs(
            "`shell`, `docker`, `ssh`, `instance`, `docker-autoscaler`, `docker+machine`, `custom`; Remuda's own: "
            "`plugin`. See [Executors](#executors)",
            "needed",
        ),
        unless=_executor,
    ),
    "shell": replace(works("only `bash`", "`bash`"), unless=_shell),
    "builds_dir": differs(
        "where working directories are made; relative to the manager's folder for jobs. Their names differ from "
        "gitlab-runner's",
        "`builds`",
    ),
    "cache_dir": differs(
        "where [caches](standard-steps.md#caches) are kept; relative to the manager's folder for jobs. Archives that "
        "gitlab-runner left there are not read",
        "`cache`",
    ),
    "clone_url": works("the server's address for git, in place of the one the server sends"),
    "environment": works("list of `NAME=value` for every job; the job's own variables win"),
    "limit": works("jobs of this runner at the same time; 0 is no limit of its own", "0"),
    "request_concurrency": works("requests for jobs that may be open at the same time", "1"),
    "strict_check_interval": works("wait the check interval after a job came in, too", "false"),
    "output_limit": works("largest log of a job, in kilobytes", "4096"),
    "pre_get_sources_script": works("runs before the checkout"),
    "post_get_sources_script": works("runs after the checkout"),
    "pre_build_script": works("runs before the job's script, in the same shell"),
    "post_build_script": works("runs after the job's script, in the same shell"),
    "pre_clone_script": ignored("gitlab-runner has removed it too; rename it to `pre_get_sources_script`"),
    "post_clone_script": ignored("gitlab-runner has removed it too; rename it to `post_get_sources_script`"),
    "labels": works("sent to the server", is_open=True),
    "tls-ca-file": works(
        "the authority of the server's certificate, for the manager, for git and uploads of jobs, and as "
        "`CI_SERVER_TLS_CA_FILE`",
        "`certs/HOST.crt` beside the file, else the machine's",
    ),
    "tls-cert-file": differs(
        "the manager's own certificate; jobs do not get it", "`certs/HOST.auth.crt` beside the file, if it is there"
    ),
    "tls-key-file": differs("its key; jobs do not get it", "`certs/HOST.auth.key`"),
    "debug_trace_disabled": differs("always so: there is no debug trace that could show secrets"),
    "safe_directory_checkout": differs(
        "always so for the checkout; the git configuration of the machine is not changed"
    ),
    "clean_git_config": differs(
        "always so, with the shell executor too: what earlier jobs left in a repository's configuration is never used"
    ),
    "unhealthy_requests_limit": differs(
        "a server that refuses is asked again after a short wait, from the first time on"
    ),
    "unhealthy_interval": differs("the wait grows to a minute at most, instead of an hour's silence"),
    "job_status_final_update_retry_limit": differs("the final state is sent again for up to a day, however often"),
    "prepare_timeout": differs(
        "how long it may take until a job has its machine and folders, and its agent runs; getting images is part of "
        "the job",
        "the job's timeout",
    ),
    "get_sources_timeout": works("how long the checkout may take", "the job's timeout"),
    "custom_build_dir.enabled": differs(
        "whether jobs may choose their folder with `GIT_CLONE_PATH`, below `$CI_BUILDS_DIR`. In containers, and with "
        "`run_as`, the folder that `$CI_BUILDS_DIR` names then is the job's alone",
        "true with containers, else false, also for `instance`",
    ),
    "artifact.upload_timeout": differs("how long an upload may take, its attempts together", "the job's timeout"),
    "artifact.response_header_timeout": ignored("the answer to an upload is waited for as long as the upload may take"),
    "monitoring.job_queuing_durations.periods": works(
        "when the entry counts: cron expressions with five fields", "always"
    ),
    "monitoring.job_queuing_durations.timezone": works("of the periods", "the machine's"),
    "monitoring.job_queuing_durations.threshold": works(
        "the acceptable wait, such as `5m`; the last entry that matches counts"
    ),
    "monitoring.job_queuing_durations.jobs_running_for_project": works(
        "regular expression: only for jobs whose project has so many running jobs", "any"
    ),
    "use_slot_cgroups": works(
        "each slot has a [control group of its own](../how-to/autoscaling.md#several-jobs-on-a-machine), which counts "
        "what jobs use; jobs find its name in `GITLAB_RUNNER_SLOT_CGROUP`",
        "false",
    ),
    "slot_cgroup_template": works(
        "its name, the same in every hierarchy of the machine; `${slot}` is the slot's number, on machines that are "
        "created that of the machine. Of containers it is the parent",
        "`gitlab-runner/slot-${slot}`",
    ),
    "referees": ignored("usage is measured by the agent and sent with the result", is_open=True),
    "experimental": ignored("no job is run to try the runner out; `remuda manager status` says whether it is ready"),
    "experimental.boot_verify.enabled": ignored("as all of `[runners.experimental]`"),
    "experimental.boot_verify.timeout": ignored("as all of `[runners.experimental]`"),
    "experimental.boot_verify.acquire_min_backoff": ignored("as all of `[runners.experimental]`"),
    "experimental.boot_verify.acquire_max_backoff": ignored("as all of `[runners.experimental]`"),
}

_LOGIN = {key: f"`{key}` of this group's machines" for key in CONNECTOR}

OWN: Facts = {
    "run_as": own(
        "whom the steps of all jobs run as: a user's name, `UID` or `UID:GID`. Needs a manager that is root. The user "
        "gets working directories and caches apart from others' (`cache_dir/USER`). What is above `builds_dir` and "
        "`cache_dir` must be open for everybody to search",
        "the manager's user",
    ),
    "first_uid": own(
        "instead of `run_as`: a user for each slot, this number and the slot's (from 0). They need not exist. Runners "
        "must not overlap"
    ),
    "policy": own("what steps may do: a [step policy](step-policy.md)", is_open=True),
    "signing_key": own(
        "file with an Ed25519 key, from `/` on, on the machine where jobs run: artifacts are "
        "[signed](standard-steps.md#signatures)"
    ),
    "git_mirrors": own(
        "room for [copies of repositories](standard-steps.md#mirrors) that checkouts share, such as `20g`"
    ),
    "machines.host": own("a machine of `instance`, `docker-autoscaler` or `docker+machine`: its address", "needed"),
    "machines.name": own("what it is called in messages; keep it when the address changes", "the host"),
    "machines.port": own("of SSH", "22"),
    "machines.user": own("who logs in", "`username` of `connector_config`, or root"),
    "machines.identity_file": own("private key", "`key_path` of `connector_config`"),
    "machines.password": own("in its place", "`password` of `connector_config`"),
    "machines.known_hosts_file": own("where the machine's key is looked up", "`~/.ssh/known_hosts`"),
    "machines.host_key": own("the machine's public key in one line, in place of a file"),
    "machines.capacity": own("jobs at the same time", "`capacity_per_instance`, or 1"),
    "machines.use_count": own(
        "jobs after which it gets no more; 0 is no limit", "`max_use_count` or `MaxBuilds`, or 0"
    ),
    "fallback.name": own(
        "of a group that is used for what those before it cannot give: what it is called", "the plugin's name"
    ),
    "fallback.plugin": own("its plugin; this key and those below as in `[runners.autoscaler]`", "needed"),
    "fallback.plugin_config": own("the plugin's own settings", is_open=True),
    **{
        f"fallback.connector_config.{key}": own(about, "all of `connector_config` of `[runners.autoscaler]`")
        for key, about in _LOGIN.items()
    },
    "fallback.capacity_per_instance": own("jobs at the same time on a machine", "that of `[runners.autoscaler]`"),
    "fallback.max_use_count": own("jobs that a machine gets in its life", "that of `[runners.autoscaler]`"),
    "fallback.max_instances": own("machines of this group in any state", "the plugin's maximum"),
    "fallback.failure_threshold": own("failed health checks in a row", "that of `[runners.autoscaler]`"),
    "fallback.scale_throttle.limit": own("machines a second that may be asked for", "100"),
    "fallback.scale_throttle.burst": own("how many at once", "`max_instances`, or the limit"),
    "plugin_scales": own(
        "the plugin of `[runners.autoscaler]` is a provider: it scales by itself, and policies and limits are its own",
        "false",
    ),
    "known_hosts_file": own(
        "where the host keys of machines that are created are looked up", "the key seen first counts from then on"
    ),
    "environment.plugin": own(
        'with `executor = "plugin"`: an installed plugin\'s name, or the path of its program', "needed"
    ),
    "environment.config": own("handed to the plugin as it is", is_open=True),
    "hold_failed": own(
        "how long a failed job's environment stays, to look at it with `remuda job shell`, such as `30m`", "0"
    ),
    "hold_by_job": own("the most that a job may ask for with the variable `REMUDA_HOLD_FAILED`", "0"),
    "allow_shell": own("whether maintainers may open shells in jobs with `remuda job shell`", "true"),
    "before_job": own("shell command on the machine before each job, as the agent's user, outside the job"),
    "after_job": own("the same after each job"),
    "sandbox": own("jobs run in a bubblewrap sandbox", "false"),
    "slot_memory": own(
        "what a job may have, all its processes and containers together, such as `2g`, swap included: more is killed. "
        "With this key and the next two slots have control groups; a job that cannot be held to them fails",
        "no limit",
    ),
    "slot_cpus": own("the same in processors, such as `1.5`: more is slowed down", "no limit"),
    "slot_pids": own("the same in processes and threads: more cannot be started", "no limit"),
    "log_waiting_limit": own("what of a job's log may wait on the agent's disk, such as `100m`", "the agent's"),
    "least_disk": own(
        "with less room where jobs run, no job is asked for (`local`: also on the disks of `builds_dir`, `cache_dir`); "
        "`0`: no limit",
        "`64m`",
    ),
    "frozen_agent": own("file with the frozen agent, for machines without Python 3.11"),
    "agent_patience": own("how long an agent waits for its manager before it cleans up after itself", "24h"),
}
