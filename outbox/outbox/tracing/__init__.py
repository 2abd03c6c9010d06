"""Traces: the contract of all spans, the context that a job carries, and how spans are made.

`contract` names every span and attribute once, `context` reads and writes W3C trace contexts, `submitting` is the span
of a submission, `tracer` makes the spans of relay and consumer, and `budget` bounds how many. OpenTelemetry's API is
touched where it is there already, or where a process was told to trace; nothing here imports its SDK.
"""
