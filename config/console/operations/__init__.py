"""The pages of the installation: overview, upcoming, processes, queues, workers, alarms, notifications, after a restore."""
