"""One start of an app: the service, the heartbeat, a runner per job, and what terms and runs are made of."""
