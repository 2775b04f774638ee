"""Docker's HTTP API: images, containers of a job, exec, registry logins."""
