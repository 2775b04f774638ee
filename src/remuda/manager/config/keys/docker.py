"""Says how Remuda treats each key of `[runners.docker]`: works, differs, ignored or refused (see `fact.py`)."""

from remuda.manager.config.keys.fact import Facts, differs, ignored, own, refused_if_set, works

_NO_HELPER = "there is no helper container: sources, caches and artifacts are handled on the runner's machine"
_JOB = "for the containers of jobs"
_SERVICE = "for the containers of services"
_NO_TLS = "an engine with TLS is not supported; use its socket, or plain TCP on a network of your own"

DOCKER: Facts = {
    "host": differs(
        "address of the engine: `unix:///PATH` or `tcp://HOST:PORT`. With a remote engine, working directories must "
        "have the same paths on its machine. `auto`: [the engine that `remuda run` would "
        "use](cli.md#containers-of-jobs), looked for at the start of each job",
        "`unix:///var/run/docker.sock`",
        there="TLS is possible, a remote engine needs no common paths, and there is no `auto`",
    ),
    "tls_cert_path": refused_if_set(_NO_TLS),
    "tls_verify": refused_if_set(_NO_TLS),
    "image": works("image for jobs that name none; without it such jobs fail"),
    "pull_policy": works("`always`, `if-not-present`, `never`, or a list of these that is tried in order", "`always`"),
    "allowed_pull_policies": works("policies that a job may choose", "those of `pull_policy`"),
    "allowed_images": works(
        "images that jobs may use, as globs: `*` does not match a slash, `**` does. `image` is always allowed", "all"
    ),
    "allowed_services": works("images that services may use, as globs", "all"),
    "allowed_users": works("users that a job may choose with `docker: {user}`", "all"),
    "privileged": works("containers of jobs are privileged", "false"),
    "services_privileged": works("containers of services are privileged", "as `privileged`"),
    "allowed_privileged_images": works("images to which `privileged` applies", "all"),
    "allowed_privileged_services": works("images of services to which `services_privileged` applies", "all"),
    "cap_add": works("Linux capabilities to add"),
    "cap_drop": works("Linux capabilities to drop"),
    "security_opt": works(f"security options {_JOB}"),
    "services_security_opt": works(f"security options {_SERVICE}"),
    "devices": works(f"devices `/dev/HOST[:/dev/INSIDE[:rwm]]` {_JOB}"),
    "services_devices": works("devices of services, by a glob of their image", is_open=True),
    "device_cgroup_rules": works(f"device rules {_JOB}, such as `c 189:* rmw`"),
    "gpus": works(f"GPUs {_JOB}: `all`, a number, or `device=ID,ID`"),
    "service_gpus": works(f"GPUs {_SERVICE}"),
    "user": works("user in the containers of all jobs; a job cannot choose another", "that of the image"),
    "group_add": works("additional groups of the user"),
    "userns_mode": works("user namespace mode of the engine"),
    "volumes": differs(
        "`/PATH:/INSIDE`, `/PATH:/INSIDE:ro` or `NAME:/INSIDE`, also for services. `/INSIDE` alone is removed with the "
        "container",
        there="`/INSIDE` alone is kept for the next job",
    ),
    "volumes_from": works(f"other containers whose volumes are mounted, `NAME[:ro]`, {_JOB}"),
    "volume_driver": works("driver of named volumes that are created for a job"),
    "volume_driver_ops": ignored(
        "volumes are created without options; create them yourself and name them in `volumes`", is_open=True
    ),
    "volume_keep": ignored("volumes without a source are removed with their container"),
    "cache_dir": ignored("caches are kept in the runner's `cache_dir`"),
    "disable_cache": ignored("there are no cache volumes; a volume without a source is removed with its container"),
    "tmpfs": works(f"temporary file systems {_JOB}, by path, with their options", is_open=True),
    "services_tmpfs": works(f"temporary file systems {_SERVICE}, by path, with their options", is_open=True),
    "network_mode": works("network of jobs and services", "with services a network of the job's own, else `bridge`"),
    "network_mtu": works("MTU of the job's own network", "that of the engine"),
    "enable_ipv6": works("IPv6 in the job's own network", "that of the engine"),
    "dns": works("addresses of DNS servers"),
    "dns_search": works("DNS search domains"),
    "extra_hosts": works("further lines of `/etc/hosts`, each `NAME:ADDRESS`"),
    "links": works(f'links {_JOB} to other containers, `NAME:ALIAS`; only with `network_mode = "bridge"`'),
    "hostname": works("host name in the containers of all jobs", "chosen by the engine"),
    "mac_address": ignored("the engine chooses it, because several jobs at the same time cannot share one"),
    "memory": works(f"memory limit {_JOB}"),
    "memory_swap": works(f"limit for memory and swap {_JOB}"),
    "memory_reservation": works(f"soft memory limit {_JOB}"),
    "cpus": works(f"number of CPUs {_JOB}, such as `1.5`"),
    "cpuset_cpus": works(f"CPUs that may be used {_JOB}"),
    "cpuset_mems": works(f"memory nodes that may be used {_JOB}"),
    "cpu_shares": works(f"relative CPU weight {_JOB}"),
    "cgroup_parent": works(f"parent control group {_JOB}"),
    "shm_size": works("size of `/dev/shm` in bytes"),
    "ulimit": works("limits by name: `SOFT` or `SOFT:HARD`", is_open=True),
    "sysctls": works("kernel parameters, by name", is_open=True),
    "oom_kill_disable": works("do not kill processes when the memory limit is reached"),
    "oom_score_adjust": works("adjustment of the OOM score"),
    "pids_limit": own(f"limit of processes {_JOB}"),
    "min_free_disk": own(
        "if less disk space is free before a pull, unused images are removed; `0` means no limit", "`1g`"
    ),
    "runtime": works("runtime of the engine"),
    "isolation": works("isolation technology of the engine"),
    "pid_mode": works(f"PID namespace {_JOB}: `host`, or `container:NAME`"),
    "ipcmode": works(f"IPC namespace {_JOB}: `host`, `private`, `shareable` or `container:NAME`"),
    "wait_for_services_timeout": works("seconds to wait until services are ready; negative: do not wait", "30"),
    "services_limit": works("number of services that a job may have; negative: no limit", "-1"),
    "service_memory": works(f"memory limit {_SERVICE}"),
    "service_memory_swap": works(f"limit for memory and swap {_SERVICE}"),
    "service_memory_reservation": works(f"soft memory limit {_SERVICE}"),
    "service_cpus": works(f"number of CPUs {_SERVICE}"),
    "service_cpuset_cpus": works(f"CPUs that may be used {_SERVICE}"),
    "service_cpu_shares": works(f"relative CPU weight {_SERVICE}"),
    "service_cgroup_parent": works(f"parent control group {_SERVICE}"),
    "services.name": works("image of a service that every job has (`[[runners.docker.services]]`)", "required"),
    "services.alias": works("host name of the service", "derived from the image"),
    "services.entrypoint": works("entrypoint of the service, instead of the one of the image"),
    "services.command": works("command of the service, instead of the one of the image"),
    "services.environment": works("variables of the service, a list of `NAME=value`"),
    "helper_image": ignored(_NO_HELPER),
    "helper_image_flavor": ignored(_NO_HELPER),
    "helper_image_autoset_arch_and_os": ignored(_NO_HELPER),
    "container_labels": works("labels of the containers of jobs; variables of the job are replaced", is_open=True),
    "disable_entrypoint_overwrite": works(
        "jobs use the entrypoints of images; a job that sets another gets a warning", "false"
    ),
    "log_options": works(f"options of the log driver `json-file` {_JOB}, such as `max-size`", is_open=True),
}
