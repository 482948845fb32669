"""The pages of the installation: overview, upcoming, processes, queues, workers, alarms, after a restore."""
