"""What a failure means and what follows it: pure decisions from errors, policies and a job's history."""
