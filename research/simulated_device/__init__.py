"""A simulated device: the real step loop, planner and drafters on a virtual clock, with recorded answers for a model.

Passes take the time of a cost table, and drafts take given times. So a policy can be judged at the speed of any device, on any
machine, to a tenth of a percent. ``python -m research.simulated_device`` compares drafters, and
``python -m research.simulated_device.bars`` checks what the policy must hold.
"""
