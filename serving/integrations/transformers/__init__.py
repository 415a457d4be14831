"""Suffolk's decoding inside ``model.generate`` of transformers."""
