"""Test tools for plugin authors and operators: builders of values, fakes that pass the same contract tests as the real
parts, and the lab, which runs a whole system.

Wrappers of real servers, which only the tests of this repository use, are in `tests/support`."""
