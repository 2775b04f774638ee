"""The step definition language: parses `func.yml` and references to steps, evaluates `${{ ... }}`. No I/O."""
