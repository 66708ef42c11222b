"""PyTorch programs: captured, matched, rewritten and proven. Everything here imports torch.

Other packages import it inside functions only; for a file it runs in a child process.
"""
