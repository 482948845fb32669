"""The pages of the installation: overview, upcoming, processes, queues, workers, alarms, incidents, after a restore."""
