"""The step `artifacts_upload`: packs files of the working directory and sends them to the server."""
