"""The standard steps of a job: checkout, caches, artifacts, containers, services, secrets and signatures. The step
runner starts each as an ordinary program in the job's working directory. A step reads its inputs as JSON from the file
that REMUDA_INPUTS names, prints lines for the job log, and writes its outputs to the file that REMUDA_OUTPUTS names.
Exit codes: 0 for success, 1 for an error of the job, 75 for an error of the platform (such as network, server or disk).
Steps import only the standard library and `remuda.lib`."""
