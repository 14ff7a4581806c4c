"""What people get to know: log lines, the accounting of runs, events, counters, histograms, health."""
