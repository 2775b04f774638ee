"""Tasks that carry plans out: plugins, machines, state file. `scaler.Scaler` is the entry point."""
