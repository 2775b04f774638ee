"""Runs the steps of a job: tree, sequence, evaluation of expressions, execution, results."""
