"""The step `artifacts_download`: unpacks the artifacts of earlier jobs into the working directory."""
