"""Tests of the calculator; run by its pipeline."""
