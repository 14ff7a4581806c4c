"""The process around an app: signals, forks, the job thread of a sync program, green threads, systemd."""
