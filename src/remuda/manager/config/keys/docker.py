"""Facts about `[runners.docker]`. Pure."""

from remuda.manager.config.keys.fact import Facts, differs, ignored, own, refused_if_set, works

_NO_HELPER = "there is no helper container: sources, caches and artifacts are handled on the runner's machine"
_JOB = "of a job's container"
_SERVICE = "of each service"
_NO_TLS = "an engine with TLS is not supported; use its socket, or plain TCP on a network of your own"

DOCKER: Facts = {
    "host": differs(
        "the engine: `unix:///PATH` or `tcp://HOST:PORT`. With a remote one, working directories must have the same "
        "paths on its machine",
        "`unix:///var/run/docker.sock`",
    ),
    "tls_cert_path": refused_if_set(_NO_TLS),
    "tls_verify": refused_if_set(_NO_TLS),
    "image": works("for jobs that name none; without it such jobs fail"),
    "pull_policy": works("one of `always`, `if-not-present`, `never`, or a list that is tried in turn", "`always`"),
    "allowed_pull_policies": works("what a job may ask for", "those of `pull_policy`"),
    "allowed_images": works(
        "globs: `*` stays inside a part of the name, `**` does not. The runner's own is always allowed", "all"
    ),
    "allowed_services": works("the same for services", "all"),
    "allowed_users": works("what `docker: {user}` of a job may be", "all"),
    "privileged": works("containers of jobs have all rights", "false"),
    "services_privileged": works("those of services do", "as `privileged`"),
    "allowed_privileged_images": works("which images are privileged, where `privileged` is set", "all"),
    "allowed_privileged_services": works("which services are", "all"),
    "cap_add": works("as in gitlab-runner"),
    "cap_drop": works("as in gitlab-runner"),
    "security_opt": works(_JOB),
    "services_security_opt": works(_SERVICE),
    "devices": works(f"`/dev/HOST[:/dev/INSIDE[:rwm]]` {_JOB}"),
    "services_devices": works("devices of services by the glob of their image", is_open=True),
    "device_cgroup_rules": works(f"{_JOB}, such as `c 189:* rmw`"),
    "gpus": works(f"{_JOB}: `all`, a number, or `device=ID,ID`"),
    "service_gpus": works(_SERVICE),
    "user": works("for all jobs; a job cannot choose another", "the image's"),
    "group_add": works("as in gitlab-runner"),
    "userns_mode": works("as in gitlab-runner"),
    "volumes": differs(
        "`/PATH:/INSIDE`, `/PATH:/INSIDE:ro`, `NAME:/INSIDE`. `/INSIDE` alone ends with the container, where "
        "gitlab-runner keeps it for the next job. Services have them too"
    ),
    "volumes_from": works(f"{_JOB}: containers whose volumes it has too, `NAME[:ro]`"),
    "volume_driver": works("of named volumes that are made for a job"),
    "volume_driver_ops": ignored(
        "volumes are made without options; make them yourself and name them in `volumes`", is_open=True
    ),
    "volume_keep": ignored("volumes without a source end with their container"),
    "cache_dir": ignored("caches are kept in the runner's `cache_dir`"),
    "disable_cache": ignored("there are no cache volumes; a volume without a source ends with its container"),
    "tmpfs": works(f"{_JOB}: path and options", is_open=True),
    "services_tmpfs": works(_SERVICE, is_open=True),
    "network_mode": works("of jobs and services", "a network of the job's own with its services, else `bridge`"),
    "network_mtu": works("of the job's own network", "the engine's"),
    "enable_ipv6": works("in the job's own network", "the engine's"),
    "dns": works("as in gitlab-runner"),
    "dns_search": works("as in gitlab-runner"),
    "extra_hosts": works("as in gitlab-runner"),
    "links": works(f'{_JOB}: containers of the machine, `NAME:ALIAS`; only with `network_mode = "bridge"`'),
    "hostname": works("for all jobs", "the engine's"),
    "mac_address": ignored("the engine chooses: several jobs at a time cannot share one"),
    "memory": works(_JOB),
    "memory_swap": works(_JOB),
    "memory_reservation": works(_JOB),
    "cpus": works(f"{_JOB}, such as `1.5`"),
    "cpuset_cpus": works(_JOB),
    "cpuset_mems": works(_JOB),
    "cpu_shares": works(_JOB),
    "cgroup_parent": works(_JOB),
    "shm_size": works("in bytes"),
    "ulimit": works("`SOFT` or `SOFT:HARD` by name", is_open=True),
    "sysctls": works("as in gitlab-runner", is_open=True),
    "oom_kill_disable": works("as in gitlab-runner"),
    "oom_score_adjust": works("as in gitlab-runner"),
    "pids_limit": own(f"processes {_JOB}"),
    "min_free_disk": own("disk that must be free before a pull, or unused images are removed; `0`: no limit", "`1g`"),
    "runtime": works("as in gitlab-runner"),
    "isolation": works("as in gitlab-runner"),
    "pid_mode": works(f"{_JOB}: `host`, or `container:NAME`"),
    "ipcmode": works(f"{_JOB}: `host`, `private`, `shareable` or `container:NAME`"),
    "wait_for_services_timeout": works("seconds; below 0 nobody waits", "30"),
    "services_limit": works("most services of a job; below 0 is no limit", "-1"),
    "service_memory": works(_SERVICE),
    "service_memory_swap": works(_SERVICE),
    "service_memory_reservation": works(_SERVICE),
    "service_cpus": works(_SERVICE),
    "service_cpuset_cpus": works(_SERVICE),
    "service_cpu_shares": works(_SERVICE),
    "service_cgroup_parent": works(_SERVICE),
    "services.name": works("`[[runners.docker.services]]`, a service of every job: its image", "needed"),
    "services.alias": works("its name in the network", "the image's"),
    "services.entrypoint": works("in place of the image's"),
    "services.command": works("in place of the image's"),
    "services.environment": works("list of `NAME=value`"),
    "helper_image": ignored(_NO_HELPER),
    "helper_image_flavor": ignored(_NO_HELPER),
    "helper_image_autoset_arch_and_os": ignored(_NO_HELPER),
    "container_labels": works("of jobs' containers; variables of the job count in them", is_open=True),
    "disable_entrypoint_overwrite": works(
        "jobs keep the entrypoints of images; those that want another are warned", "false"
    ),
    "log_options": works(f"{_JOB}: options of the driver `json-file`, such as `max-size`", is_open=True),
}
