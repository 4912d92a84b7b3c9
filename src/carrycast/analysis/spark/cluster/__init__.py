"""Runs on a cluster that shares no folder with the driver: artifacts, executors, and results sent to the driver."""
