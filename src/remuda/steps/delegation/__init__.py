"""Delegation: lets another agent, in an environment such as another machine, run a part of a job's steps."""
