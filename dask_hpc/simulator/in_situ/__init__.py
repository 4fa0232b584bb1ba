"""In situ pipelines as an application model: what their iterations take, asked the same strategy as live."""
