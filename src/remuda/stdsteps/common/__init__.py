"""What the standard steps share: inputs, outputs, log lines, archives, transfers, retries."""
