"""The step `sign`: signs the digests of files, for the step `verify`."""
