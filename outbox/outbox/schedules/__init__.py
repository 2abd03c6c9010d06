"""Recurring schedules: rules, the plan of each, and what declares, changes and advances them."""
