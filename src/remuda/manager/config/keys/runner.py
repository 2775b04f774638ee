"""Says how Remuda treats each key of `[[runners]]` and its small sections: works, differs, ignored or refused."""

from dataclasses import replace
from typing import Any

from remuda.manager.config.keys.fact import Fact, Facts, differs, ignored, own, refused, works
from remuda.manager.config.keys.machines import CONNECTOR
from remuda.manager.config.values import EXECUTORS

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
    """Return the fact about one executor. The key differs only in the set of executors that each side has."""
    if value in EXECUTORS:
        return own("a plugin of Remuda") if value == "plugin" else works("where jobs run")
    if not isinstance(value, str) or value not in FOREIGN_EXECUTORS:
        return None
    return refused(f"{value!r} is not supported; {FOREIGN_EXECUTORS[value]}")


def _shell(value: Any) -> Fact | None:
    return None if value in ("", "bash") else refused(f"{value!r} is not supported; only bash is")


RUNNER: Facts = {
    "name": works("a name for people; `register` uses the name of the machine by default"),
    "url": works(
        "address of the server; `$NAME` and `${NAME}` are replaced from the manager's environment", "required"
    ),
    "id": works("number of the runner on the server; created machines belong to the runner by it, else by `name`"),
    "token": works("token of the runner (`glrt-…`); variables are replaced like in `url`", "required"),
    "token_obtained_at": works("when the token was created"),
    "token_expires_at": works(
        "when the token expires; after three quarters of its lifetime the manager gets a new one and writes it to the "
        "file, keeping comments"
    ),
    "executor": replace(
        differs(
            "`shell`, `docker`, `ssh`, `instance`, `docker-autoscaler`, `docker+machine`, `custom`; only in "
            "Remuda: `plugin`. See [Executors](config-toml.md#executors)",
            "required",
            there="also `kubernetes`, `parallels`, `virtualbox` and `docker-windows`, but no `plugin`",
        ),
        unless=_executor,
    ),
    "shell": replace(works("only `bash`", "`bash`"), unless=_shell),
    "builds_dir": differs(
        "folder of the working directories, relative to the manager's folder for jobs",
        "`builds`",
        there="relative to its working directory, with other names below it",
    ),
    "cache_dir": differs(
        "folder of the [caches](standard-steps.md#caches), relative to the manager's folder for jobs",
        "`cache`",
        there="archives with other names, which are not read here",
    ),
    "clone_url": works("address of the server for git, instead of the one that the server sends"),
    "environment": works("list of `NAME=value` for every job; variables of the job have precedence"),
    "limit": works("jobs of this runner that may run at the same time; 0 means no limit", "0"),
    "request_concurrency": works("job requests that may be open at the same time", "1"),
    "strict_check_interval": works("wait for `check_interval` also after a request that brought a job", "false"),
    "output_limit": works(
        "limit for the output of a job's steps in its log, in KiB, without time stamps and section marks", "4096"
    ),
    "pre_get_sources_script": works("runs before the checkout"),
    "post_get_sources_script": works("runs after the checkout"),
    "pre_build_script": works("runs before the job's script, in the same shell"),
    "post_build_script": works("runs after the job's script, in the same shell"),
    "pre_clone_script": ignored("gitlab-runner removed it, too; rename it to `pre_get_sources_script`"),
    "post_clone_script": ignored("gitlab-runner removed it, too; rename it to `post_get_sources_script`"),
    "labels": works("sent to the server", is_open=True),
    "tls-ca-file": works(
        "file with the CA of the server's certificate, for the manager, for git and uploads of jobs, and as "
        "`CI_SERVER_TLS_CA_FILE`",
        "`certs/HOST.crt` beside the file, else the CAs of the machine",
    ),
    "tls-cert-file": differs(
        "client certificate of the manager; jobs do not get it",
        "`certs/HOST.auth.crt` beside the file, if it exists",
        there="jobs get it as CI_SERVER_TLS_CERT_FILE",
    ),
    "tls-key-file": differs(
        "key of the client certificate; jobs do not get it",
        "`certs/HOST.auth.key`",
        there="jobs get it as CI_SERVER_TLS_KEY_FILE",
    ),
    "debug_trace_disabled": works("`CI_DEBUG_TRACE` of a job has no effect; the log of the job says so", "false"),
    "safe_directory_checkout": differs(
        "always on for the checkout; the git configuration of the machine is not changed",
        there="on unless false, and the folder is written to git's configuration",
    ),
    "clean_git_config": differs(
        "always on, also with the shell executor: git configuration that earlier jobs left in a repository is not used",
        there="off by default with the shell executor",
    ),
    "unhealthy_requests_limit": differs(
        "the value is ignored: the manager pauses after the first refused job request",
        there="it pauses after so many, by default 3",
    ),
    "unhealthy_interval": differs(
        "the value is ignored: the pause grows up to a minute", there="the length of the pause, by default an hour"
    ),
    "job_status_final_update_retry_limit": differs(
        "the value is ignored: the manager repeats the final state of a job for up to a day",
        there="the number of attempts, by default 10",
    ),
    "prepare_timeout": differs(
        "how long it may take until a job has its machine and folders and its agent runs; pulling images is part of "
        "the job",
        "no limit",
        there="pulling images counts, too",
    ),
    "get_sources_timeout": works("how long the checkout may take", "the job's timeout"),
    "custom_build_dir.enabled": differs(
        "whether jobs may choose their folder below `$CI_BUILDS_DIR` with `GIT_CLONE_PATH`. In containers, in a "
        "sandbox, and with `run_as` or `first_uid`, `$CI_BUILDS_DIR` is then a folder of this slot, project and path",
        "true with containers, else false, also for `instance`",
        there="`$CI_BUILDS_DIR` is the folder of all jobs of the runner",
    ),
    "artifact.upload_timeout": differs(
        "how long an upload may take, including all attempts",
        "the job's timeout",
        there="by default an hour",
    ),
    "artifact.response_header_timeout": ignored("only `upload_timeout` limits the wait for an answer"),
    "monitoring.job_queuing_durations.periods": works(
        "when the entry applies: cron expressions with five fields", "always"
    ),
    "monitoring.job_queuing_durations.timezone": works("time zone of `periods`", "that of the machine"),
    "monitoring.job_queuing_durations.threshold": works(
        "acceptable wait of a job, such as `5m`; the last matching entry is used"
    ),
    "monitoring.job_queuing_durations.jobs_running_for_project": works(
        "regular expression for the number of running jobs of the project; the entry applies only if it matches", "any"
    ),
    "use_slot_cgroups": works(
        "each slot has [its own control group](../how-to/autoscaling.md#several-jobs-on-a-machine), which measures "
        "what jobs use; its name is in `GITLAB_RUNNER_SLOT_CGROUP`",
        "false",
    ),
    "slot_cgroup_template": works(
        "name of the control group of a slot, in every hierarchy of the machine; `${slot}` is the number of the slot, "
        "on created machines the number on that machine. For containers it is the parent group",
        "`gitlab-runner/slot-${slot}`",
    ),
    "referees": ignored("the agent measures usage and sends it with the result", is_open=True),
    "experimental": ignored("no test job is run; `remuda manager status` shows whether the runner is ready"),
    "experimental.boot_verify.enabled": ignored("see `experimental`"),
    "experimental.boot_verify.timeout": ignored("see `experimental`"),
    "experimental.boot_verify.acquire_min_backoff": ignored("see `experimental`"),
    "experimental.boot_verify.acquire_max_backoff": ignored("see `experimental`"),
}

_LOGIN = {key: f"`{key}` for the machines of this group" for key in CONNECTOR}

OWN: Facts = {
    "run_as": own(
        "user that runs the steps of all jobs: a name, `UID` or `UID:GID`. The manager must run as root. The user has "
        "separate working directories and caches (`cache_dir/USER`). All users must be able to search the folders "
        "above `builds_dir` and `cache_dir`",
        "user of the manager",
    ),
    "first_uid": own(
        "instead of `run_as`: each slot has its own user, with the UID `first_uid` plus the number of the slot (from "
        "0). The users need not exist. The ranges of two runners must not overlap"
    ),
    "containers": own(
        'for `executor = "shell"`: with `by-job`, jobs that name `image` or `services` run in containers, by '
        "`[runners.docker]`; all other jobs run on the machine",
        "all jobs run on the machine",
    ),
    "policy": own("[step policy](step-policy.md): what steps may do", is_open=True),
    "signing_key": own(
        "absolute path of a file with an Ed25519 key on the machine where jobs run, to "
        "[sign](standard-steps.md#signatures) artifacts"
    ),
    "git_mirrors": own(
        "disk space for [copies of repositories](standard-steps.md#mirrors) that checkouts share, such as `20g`"
    ),
    "machines.host": own("address of a machine for `instance`, `docker-autoscaler` or `docker+machine`", "required"),
    "machines.name": own("name of the machine in messages; keep it when the address changes", "the host"),
    "machines.port": own("SSH port of the machine", "22"),
    "machines.user": own("user for the SSH login", "`username` of `connector_config`, or root"),
    "machines.identity_file": own("file with the private key", "`key_path` of `connector_config`"),
    "machines.password": own("password, if there is no private key", "`password` of `connector_config`"),
    "machines.known_hosts_file": own("file with the host key of the machine", "`~/.ssh/known_hosts`"),
    "machines.host_key": own("host key of the machine in one line, instead of `known_hosts_file`"),
    "machines.capacity": own("jobs that the machine may run at the same time", "`capacity_per_instance`, or 1"),
    "machines.use_count": own(
        "number of jobs after which the machine gets no more; 0 means no limit", "`max_use_count` or `MaxBuilds`, or 0"
    ),
    "fallback.name": own(
        "name of a group that is used when the groups before it cannot give machines", "name of the plugin"
    ),
    "fallback.plugin": own(
        "plugin of the group; this and the following keys mean the same as in `[runners.autoscaler]`", "required"
    ),
    "fallback.plugin_config": own("settings of the plugin", is_open=True),
    **{
        f"fallback.connector_config.{key}": own(about, "all of `connector_config` of `[runners.autoscaler]`")
        for key, about in _LOGIN.items()
    },
    "fallback.capacity_per_instance": own("jobs on a machine at the same time", "that of `[runners.autoscaler]`"),
    "fallback.max_use_count": own("jobs that a machine may run in its lifetime", "that of `[runners.autoscaler]`"),
    "fallback.max_instances": own("number of machines of this group, in any state", "maximum of the plugin"),
    "fallback.failure_threshold": own(
        "failed health checks before a machine is replaced", "that of `[runners.autoscaler]`"
    ),
    "fallback.scale_throttle.limit": own("machines that may be requested per second", "100"),
    "fallback.scale_throttle.burst": own("machines that may be requested at once", "`max_instances`, or the limit"),
    "plugin_scales": own(
        "the plugin of `[runners.autoscaler]` scales by itself; it has its own policies and limits",
        "false",
    ),
    "known_hosts_file": own(
        "file with the host keys of created machines", "the first key of a machine is trusted from then on"
    ),
    "environment.plugin": own(
        'for `executor = "plugin"`: name of an installed plugin, or the path of its program', "required"
    ),
    "environment.config": own("settings of the plugin; the manager does not check them", is_open=True),
    "hold_failed": own("how long the environment of a failed job is kept for `remuda job shell`, such as `30m`", "0"),
    "hold_by_job": own("upper limit for the variable `REMUDA_HOLD_FAILED` of a job", "0"),
    "allow_shell": own("whether maintainers may open shells in jobs with `remuda job shell`", "true"),
    "before_job": own("shell command that runs on the machine before each job, as the agent's user, outside the job"),
    "after_job": own("shell command that runs on the machine after each job, as `before_job` does"),
    "sandbox": own("jobs run in a bubblewrap sandbox", "false"),
    "slot_memory": own(
        "memory limit for all processes and containers of a job together, including swap, such as `2g`; above it "
        "processes are killed. `slot_memory`, `slot_cpus` and `slot_pids` create a control group for each slot; a job "
        "fails if its limits cannot be enforced",
        "no limit",
    ),
    "slot_cpus": own("CPU limit for all processes and containers of a job together, such as `1.5`", "no limit"),
    "slot_pids": own("limit for the processes and threads of a job; above it none can be started", "no limit"),
    "log_waiting_limit": own("size limit for unsent log on the agent's disk, such as `100m`", "that of the agent"),
    "least_disk": own(
        "with less free disk space where jobs run, no jobs are requested (`local`: also on the disks of `builds_dir` "
        "and `cache_dir`); `0` means no limit",
        "`64m`",
    ),
    "frozen_agent": own("file with the frozen agent, for machines without Python 3.11"),
    "agent_patience": own("how long an agent waits for its manager before it cancels its jobs and cleans up", "24h"),
}
