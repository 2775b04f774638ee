"""Steps of a job that another agent runs."""
