"""The step `artifacts_download`."""
