"""From the text of a pipeline file to one tree of values: YAML, places, allowed keys, `extends`, variables in texts."""
