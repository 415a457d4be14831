"""Replicated stores in one process: real logs and decisions; a simulated clock, network, register and disks."""
