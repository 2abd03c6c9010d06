"""A worked example: a small service that has bank statements rendered by a background job."""
