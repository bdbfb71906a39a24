"""What a user asked for: options, workloads, and experiments as checked values."""
