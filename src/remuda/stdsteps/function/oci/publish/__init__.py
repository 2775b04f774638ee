"""The step `function/oci/publish`."""
