"""The step `service`: a container beside a job."""
