"""Autoscaled runners: the manager's side of `remuda.taskscaler`."""
