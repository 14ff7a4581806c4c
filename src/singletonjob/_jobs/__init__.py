"""What users write down: jobs, their options and durations. Checked here, where it is written; run elsewhere."""
