"""The pricing service: what each replica runs, and what you would write."""
