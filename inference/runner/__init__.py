"""One device, one step: turns a StepPlan into sampled tokens. Knows nothing of asyncio, HTTP or scheduling."""
