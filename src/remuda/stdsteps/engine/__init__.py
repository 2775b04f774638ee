"""Client of Docker's HTTP API: images, containers of a job, exec, registry credentials."""
