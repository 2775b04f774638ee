"""Says how Remuda treats each key outside of `[[runners]]`: works, differs, ignored or refused (see `fact.py`)."""

from remuda.manager.config.keys.fact import Facts, differs, ignored, own, refused_if_set, works

GENERAL: Facts = {
    "concurrent": works("jobs of all runners that may run at the same time, from 1 to 1000000", "1"),
    "check_interval": differs(
        "seconds between two job requests that the server answered at once, divided by the number of runners; 0 means "
        "the default. After a request that the server held, the next one follows at once",
        "3",
        there="it applies after held requests, too",
    ),
    "log_level": works("`debug`, `info`, `warn`, `error`; `fatal` and `panic` mean `error`", "`info`"),
    "log_format": differs(
        "`text`, `json`, or `runner`, which is text on a terminal and JSON otherwise. The messages are Remuda's own",
        "`runner`",
        there="`runner` is text everywhere, and the messages are others",
    ),
    "listen_address": works("address of `/metrics`, `host:port`", "not served"),
    "shutdown_timeout": differs(
        "seconds that a stop may take after SIGTERM. It does not abort jobs: they continue under the agent, and the "
        "next start takes them over. `drain_timeout` of `[remuda]` limits how long SIGQUIT waits for jobs",
        "30",
        there="SIGTERM aborts the jobs, and this is the time for that",
    ),
    "connection_max_age": ignored("a connection is closed only after 90 seconds without use"),
    "labels": works("sent to the servers for all runners; `labels` of a runner have precedence", is_open=True),
    "sentry_dsn": ignored("errors are logged, not sent to Sentry"),
    "user": refused_if_set(
        "jobs would run as the manager's own user instead; start the manager as that user and remove the key, or set "
        "`run_as` in `[runners.remuda]`"
    ),
    "session_server": ignored(
        "there is no web terminal; `remuda job shell` opens a shell through the manager's own connection"
    ),
    "session_server.listen_address": ignored("see `session_server`"),
    "session_server.advertise_address": ignored("see `session_server`"),
    "session_server.session_timeout": ignored("see `session_server`"),
    "machine": ignored("set `delete_instances_on_shutdown` to remove machines when the manager stops"),
    "machine.shutdown_drain.enabled": ignored("see `machine`"),
    "machine.shutdown_drain.concurrency": ignored("see `machine`"),
    "machine.shutdown_drain.max_retries": ignored("see `machine`"),
    "machine.shutdown_drain.retry_backoff": ignored("see `machine`"),
    "experimental": ignored("usage is part of the metrics and is sent to a Remuda cell; no file is written"),
    "experimental.usage_logger.enabled": ignored("see `experimental`"),
    "experimental.usage_logger.writers": ignored("see `experimental`"),
    "experimental.usage_logger.logrotate.log_dir": ignored("see `experimental`"),
    "experimental.usage_logger.logrotate.max_backup_files": ignored("see `experimental`"),
    "experimental.usage_logger.logrotate.max_rotation_age": ignored("see `experimental`"),
    "experimental.usage_logger.logrotate.labels": ignored("see `experimental`", is_open=True),
    "remuda.drain_timeout": own("how long SIGQUIT waits for running jobs, such as `90m` or `2h`", "2h"),
}
