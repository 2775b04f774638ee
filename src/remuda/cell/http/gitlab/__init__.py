"""GitLab's API for people and scripts, under /api/v4. Field names are GitLab's."""
