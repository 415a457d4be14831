"""Records generations, and replays drafters on the recordings without a target."""
