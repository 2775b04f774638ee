"""Facts about the keys outside `[[runners]]`. Pure."""

from remuda.manager.config.keys.fact import Facts, differs, ignored, own, refused_if_set, works

GENERAL: Facts = {
    "concurrent": works("jobs of all runners at the same time, from 1 to 1000000", "1"),
    "check_interval": differs(
        "seconds between two requests that the server answered at once, divided by the number of runners; 0 is the "
        "default. A request that the server holds is followed at once",
        "3",
    ),
    "log_level": works("`debug`, `info`, `warn`, `error`; `fatal` and `panic` mean `error`", "`info`"),
    "log_format": differs(
        "`runner` is text on a terminal and JSON otherwise; `text`, `json`. The words of lines are Remuda's own",
        "`runner`",
    ),
    "listen_address": works("where `/metrics` is served, `host:port`", "nowhere"),
    "shutdown_timeout": differs(
        "seconds that stopping may take after SIGTERM. Jobs are not aborted by it: they go on under the agent, and the "
        "next start finds them. How long SIGQUIT waits for jobs is `drain_timeout` of `[remuda]`",
        "30",
    ),
    "connection_max_age": ignored("a connection that nobody has used for 90 seconds is closed, others stay"),
    "labels": works("sent to the servers for all runners; a runner's own `labels` win", is_open=True),
    "sentry_dsn": ignored("errors are logged, not sent to Sentry"),
    "user": refused_if_set(
        "jobs would run as the manager's own user instead; start the manager as that user and remove the key, or set "
        "`run_as` in `[runners.remuda]`"
    ),
    "session_server": ignored(
        "there is no web terminal in the server's pages; `remuda job shell` opens one through the manager's own "
        "connection"
    ),
    "session_server.listen_address": ignored("as all of `[session_server]`"),
    "session_server.advertise_address": ignored("as all of `[session_server]`"),
    "session_server.session_timeout": ignored("as all of `[session_server]`"),
    "machine": ignored("`delete_instances_on_shutdown` says whether machines go when the manager stops"),
    "machine.shutdown_drain.enabled": ignored("as all of `[machine]`"),
    "machine.shutdown_drain.concurrency": ignored("as all of `[machine]`"),
    "machine.shutdown_drain.max_retries": ignored("as all of `[machine]`"),
    "machine.shutdown_drain.retry_backoff": ignored("as all of `[machine]`"),
    "experimental": ignored("usage is exported with the metrics, and sent to a Remuda cell; no file is written"),
    "experimental.usage_logger.enabled": ignored("as all of `[experimental]`"),
    "experimental.usage_logger.writers": ignored("as all of `[experimental]`"),
    "experimental.usage_logger.logrotate.log_dir": ignored("as all of `[experimental]`"),
    "experimental.usage_logger.logrotate.max_backup_files": ignored("as all of `[experimental]`"),
    "experimental.usage_logger.logrotate.max_rotation_age": ignored("as all of `[experimental]`"),
    "experimental.usage_logger.logrotate.labels": ignored("as all of `[experimental]`", is_open=True),
    "remuda.drain_timeout": own("how long SIGQUIT waits for running jobs, such as `90m` or `2h`", "2h"),
}
