"""What makes load. One signature: run(trial) -> intervals. The only importers of the binding."""
