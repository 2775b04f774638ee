"""The step `artifacts_upload`."""
