"""Jobs from waiting to ended: hand-out, runner calls, user commands, timeouts, explanations."""
