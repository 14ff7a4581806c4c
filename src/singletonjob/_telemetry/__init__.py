"""What `singletonjob.telemetry` and `singletonjob.prometheus` share: the measures, the spans, the missing extras."""
