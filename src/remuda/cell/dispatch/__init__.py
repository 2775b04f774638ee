"""Moves jobs from waiting to ended: hands them out to runners, handles the calls of runners and the commands of users,
applies timeouts, and explains the state of a job."""
