"""What makes load. One signature: run(trial) -> intervals."""
