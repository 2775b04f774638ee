"""Helpers that all standard steps share: inputs, outputs, log lines, archives, HTTP transfers, retries."""
