"""The step `checkout`: fetches the job's commit and checks it out in the working directory."""
