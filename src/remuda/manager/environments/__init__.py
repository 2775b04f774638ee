"""Environments, the places where jobs run: this machine, machines behind SSH, autoscaled machines, or plugins."""
