"""The step `function/oci/build`."""
