"""Real PyTorch ops made of a class with `forward` and `backward`."""
