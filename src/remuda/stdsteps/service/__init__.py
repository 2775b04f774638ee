"""The step `service`: starts a service container, such as a database, for a job."""
