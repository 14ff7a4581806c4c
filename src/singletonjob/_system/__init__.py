"""The only code that reads clocks or starts threads: clocks, timers, the timerfd, worker threads."""
