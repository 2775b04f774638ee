"""Public test tools: the lab (a whole system in one process tree), builders, fakes that pass the contract suites."""
