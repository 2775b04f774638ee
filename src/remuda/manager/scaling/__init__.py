"""Runs the scalers (`remuda.taskscaler`) of autoscaled runners, and finds machines of removed runners."""
