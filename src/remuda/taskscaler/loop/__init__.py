"""Asynchronous tasks that carry plans out: they call plugins, log in to instances and write the state file. The runner
manager uses `scaler.Scaler`, or `provider_scaler.ProvidedScaler` for plugins that scale by themselves."""
