"""Variables, inputs and secrets that a user gives on the command line and in files."""
