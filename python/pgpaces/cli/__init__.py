"""The command line: arguments -> one call -> print. Only here is anything printed."""
