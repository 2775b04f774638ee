"""Environments, deployments and resource groups in GitLab's form."""
