"""The step `checkout`: the job's commit in its working directory."""
